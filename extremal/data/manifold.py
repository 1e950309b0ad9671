"""Separated sets on a k-dimensional manifold in d dimensions: sphere, torus, a smooth graph."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset
from extremal.data.orthonormal_mixture import orthonormal
from extremal.data.separated_sets import balanced_labels, check_cells

Kind = Literal["sphere", "torus", "smooth"]
_TRIES = 1000  # rounds of draws on the sphere
_WAVES = 0.15  # height of the smooth graph's waves


class ManifoldCells:
    """Cells of a manifold of `intrinsic` dimension k in `dim` = d dimensions, with random labels.

    Charts, before an isometry into R^d (the first axes, or a random frame):
    "sphere": the unit sphere of R^(k+1); cells are its orthants, without points whose coordinates
    are nearer than `gap` to 0. "torus": (cos 2 pi u_j, sin 2 pi u_j), u in [0, 1)^k; cells are
    halves of each circle without an arc of u within `gap` of their ends. "smooth": the graph
    (u, w(u)), u in [0, 1]^k, of k random waves; cells are halves of each axis, without what is
    nearer than `gap` to the middle.

    So there are 2^k cells, or 2^(k+1) on the sphere, and points of different cells are at least
    `separation` apart in l2, whatever d is.
    """

    def __init__(
        self,
        kind: Kind,
        intrinsic: int,
        dim: int,
        *,
        gap: float = 0.1,
        rotated: bool = True,
        generator: torch.Generator,
    ) -> None:
        _check.choice("kind", kind, ("sphere", "torus", "smooth"))
        self.kind = kind
        self.intrinsic = _check.integer("intrinsic", intrinsic, minimum=1)
        flat = {"sphere": intrinsic + 1, "torus": 2 * intrinsic, "smooth": 2 * intrinsic}[kind]
        self.dim = _check.integer("dim", dim, minimum=flat)
        self.gap = _check.number("gap", gap, above=0.0)
        most = {"sphere": 0.9 / math.sqrt(flat), "torus": 0.25, "smooth": 0.5}[kind]
        _check.require(self.gap < most, "gap", f"be below {most:g}", gap)
        _check.generator("generator", generator)
        self.cell_axes = intrinsic + 1 if kind == "sphere" else intrinsic
        check_cells("intrinsic", intrinsic, 2, self.cell_axes)
        self.labels = balanced_labels(2**self.cell_axes, generator)
        self.frame = orthonormal(flat, dim, generator if rotated else None)  # (flat, dim)
        self._waves = 3.0 * torch.randn(
            intrinsic, intrinsic, generator=generator, dtype=torch.float64
        )

    def __repr__(self) -> str:
        return f"ManifoldCells({self.kind}, k={self.intrinsic}, dim={self.dim}, gap={self.gap:g})"

    @property
    def separation(self) -> float:
        """An l2 distance that points of different cells have at least."""
        return 2.0 * math.sin(2.0 * math.pi * self.gap) if self.kind == "torus" else 2.0 * self.gap

    def sample(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw `count` points, uniform in the chart; `group` is the cell."""
        _check.integer("count", count, minimum=1)
        _check.generator("generator", generator)
        _check.floating("dtype", dtype)
        flat, upper = (
            self._sphere(count, generator)
            if self.kind == "sphere"
            else self._halves(count, generator)
        )
        group = (upper.long() * 2 ** torch.arange(self.cell_axes)).sum(1)
        return Dataset((flat @ self.frame).to(dtype), self.labels[group], group, source=self)

    def _sphere(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Points of the unit sphere away from the coordinate planes, and their signs."""
        found: list[Tensor] = []
        for _ in range(_TRIES):
            draw = torch.randn(count, self.cell_axes, generator=generator, dtype=torch.float64)
            draw = draw / draw.norm(dim=1, keepdim=True)
            found.append(draw[(draw.abs() >= self.gap).all(1)])
            if sum(map(len, found)) >= count:
                break
        x = torch.cat(found)[:count]
        _check.require(len(x) == count, "gap", "leave room on the sphere", self.gap)
        return x, x > 0

    def _halves(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Points of the torus or the graph, and which half of each axis they are in."""
        shape = (count, self.intrinsic)
        upper = torch.rand(shape, generator=generator) < 0.5
        share = torch.rand(shape, generator=generator, dtype=torch.float64)
        low, high = (self.gap, 0.5 - self.gap) if self.kind == "torus" else (0.0, 0.5 - self.gap)
        u = low + (high - low) * share
        if self.kind == "torus":
            angle = 2.0 * math.pi * (u + 0.5 * upper)
            return torch.cat([angle.cos(), angle.sin()], 1), upper
        u = torch.where(upper, 1.0 - u, u)
        return torch.cat([u, _WAVES * torch.sin(u @ self._waves)], 1), upper
