"""Networks that know their own robust radii, and distances between finite sets."""

from __future__ import annotations

import math
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from extremal import _check

Norm = Literal["linf", "l2", "l1"]
POWERS: dict[str, float] = {"linf": math.inf, "l2": 2.0, "l1": 1.0}
_VALUES = 1 << 24  # distances that are computed at a time


@runtime_checkable
class Provable(Protocol):
    """A network whose construction proves radii at which points keep their class."""

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """Radii (n,) within which each point of x (n, dim) provably has class y; 0 where none."""
        ...


def distances(x: Tensor, points: Tensor, norm: Norm) -> Tensor:
    """All distances (n, m) between two sets, without the cancellation of matrix products."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(x, points, p=POWERS[norm], compute_mode=mode)


def least_distance(one: Tensor, two: Tensor, norm: Norm) -> float:
    """The smallest distance between a point of one set and a point of another, in float64."""
    parts = one.double().split(max(1, _VALUES // len(two)))
    return min(float(distances(part, two.double(), norm).min()) for part in parts)


def stretch(own: Norm, asked: Norm, dim: int) -> float:
    """The largest ||z||_own / ||z||_asked: radii in `own` over it are radii in `asked`."""
    shares = {"linf": 0.0, "l2": 0.5, "l1": 1.0}  # 1/p
    return float(dim) ** max(0.0, shares[own] - shares[asked])


def finite_set(name: str, points: object, dim: int | None = None) -> Tensor:
    """A finite set of points as a float64 tensor (m, dim) of its own."""
    return _check.matrix(name, points, columns=dim).detach().double().clone()
