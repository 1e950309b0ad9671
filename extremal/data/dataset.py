"""A data set: points, labels, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from extremal import _check


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points `x` (n, dim) with labels `y` (n,), checked when made.

    Labels are -1 / +1, or 0..C-1, and kept as int64. `group` (n,) holds the latent subclass in
    0..K-1 where it is known, `box` the interval (low, high) that every coordinate lies in, and
    `source` the object that made the data, for methods that can use what it knows.
    """

    x: Tensor
    y: Tensor
    group: Tensor | None = None
    box: tuple[float, float] | None = None
    source: Any = None

    def __post_init__(self) -> None:
        x = _check.matrix("x", self.x)
        object.__setattr__(self, "y", _check.labels("y", self.y, count=len(x)))
        if self.group is not None:
            _check_group(self.group, len(x))
        if self.box is not None:
            _check_box(self.box, x)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return self.x.shape[1]

    @property
    def signed(self) -> bool:
        """Whether the labels are -1 / +1 (a one-output network's kind)."""
        return bool((self.y.abs() == 1).all()) and bool((self.y < 0).any() | (self.y == 1).all())

    def take(self, index: Tensor | slice) -> Dataset:
        """The data set of the chosen rows."""
        group = None if self.group is None else self.group[index]
        return replace(self, x=self.x[index], y=self.y[index], group=group)

    def to(self, target: torch.dtype | torch.device | str) -> Dataset:
        """The same data with points of another dtype, or everything on another device."""
        if isinstance(target, torch.dtype):
            return replace(self, x=self.x.to(target))
        group = None if self.group is None else self.group.to(target)
        return replace(self, x=self.x.to(target), y=self.y.to(target), group=group)


def _check_group(group: object, count: int) -> None:
    rule = f"be an integer tensor of shape ({count},) with entries >= 0"
    _check.require(isinstance(group, Tensor), "group", rule, type(group).__name__)
    assert isinstance(group, Tensor)
    whole = not (group.is_floating_point() or group.is_complex() or group.dtype == torch.bool)
    good = whole and tuple(group.shape) == (count,)
    _check.require(good, "group", rule, f"shape {tuple(group.shape)} of {group.dtype}")
    _check.require(int(group.min()) >= 0, "group", rule, f"smallest entry {int(group.min())}")


def _check_box(box: object, x: Tensor) -> None:
    pair = isinstance(box, tuple) and len(box) == 2
    _check.require(pair, "box", "be a pair (low, high)", box)
    low, high = (_check.number("box", side) for side in box)  # type: ignore[attr-defined]
    _check.require(low < high, "box", "have low < high", box)
    inside = bool((x >= low).all() & (x <= high).all())
    seen = f"x in [{float(x.min()):g}, {float(x.max()):g}]"
    _check.require(inside, "box", f"contain every coordinate of x, here {box}", seen)
