"""Classes at a known distance: random points and lattice cells in the cube, cells of a manifold."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import NORM_ORDERS
from extremal.data.dataset import Dataset, check_draw
from extremal.data.orthonormal_mixture import orthonormal_rows

Kind = Literal["sphere", "torus", "smooth"]

# Draws on the sphere that are too near to a coordinate plane are repeated for so many rounds.
_SPHERE_DRAW_ROUNDS = 1000

# The largest height of a wave of the smooth graph.
_WAVE_HEIGHT = 0.15

# A point that is too near to the other class is drawn again so many times.
_DRAWS_PER_POINT = 200

# More cells than this are refused, since the label of each is kept.
_MOST_CELLS = 1 << 20


class ManifoldCells:
    """Cells of a k-dimensional manifold in d dimensions, with random labels.

    Charts, before a random isometry into R^d:
    "sphere": the unit sphere of R^(k+1); cells are its orthants, without points whose coordinates
    are nearer than `gap` to 0. "torus": (cos 2 pi u_j, sin 2 pi u_j), u in [0, 1)^k; cells are
    halves of each circle without an arc of u within `gap` of their ends. "smooth": the graph
    (u, w(u)), u in [0, 1]^k, of k random waves; cells are halves of each axis, without what is
    nearer than `gap` to the middle.

    So there are 2^k cells, or 2^(k+1) on the sphere, and points of different cells are at least
    `separation` apart in l2, whatever d is.

    Arguments:

    - `kind`: the manifold, "sphere", "torus" or "smooth".
    - `intrinsic`: k, the dimension of the manifold, 1 or more.
    - `dim`: d, the number of coordinates of a point; at least k + 1 for the sphere, else 2 k.
    - `gap`: how much is left out at the borders of cells, above 0, see above; it sets `separation`.
    - `generator`: the torch.Generator that random numbers are drawn from.
    """

    def __init__(
        self,
        kind: Kind,
        intrinsic: int,
        dim: int,
        *,
        gap: float = 0.1,
        generator: torch.Generator,
    ) -> None:
        _check.choice("kind", kind, ("sphere", "torus", "smooth"))
        self.kind = kind
        self.intrinsic = _check.integer("intrinsic", intrinsic, minimum=1)
        chart_dim = intrinsic + 1 if kind == "sphere" else 2 * intrinsic
        self.dim = _check.integer("dim", dim, minimum=chart_dim)
        self.gap = _check.number("gap", gap, above=0.0)
        most = {"sphere": 0.9 / math.sqrt(chart_dim), "torus": 0.25, "smooth": 0.5}[kind]
        _check.require(self.gap < most, "gap", f"be below {most:g}", gap)
        _check.generator("generator", generator)
        self.cell_axes = intrinsic + 1 if kind == "sphere" else intrinsic
        _check_cells("intrinsic", intrinsic, 2, self.cell_axes)
        self.labels = _balanced_labels(2**self.cell_axes, generator)
        self.frame = orthonormal_rows(chart_dim, dim, generator)
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
        """Draw points, uniform in the chart; `group` is the cell.

        Arguments:

        - `count`: the number of points.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        draw = self._sphere_points if self.kind == "sphere" else self._half_axis_points
        points, upper = draw(count, generator)
        group = (upper.long() * 2 ** torch.arange(self.cell_axes)).sum(1)
        return Dataset((points @ self.frame).to(dtype), self.labels[group], group, source=self)

    def _sphere_points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Points of the unit sphere away from the coordinate planes, and their signs."""
        found: list[Tensor] = []
        for _ in range(_SPHERE_DRAW_ROUNDS):
            draw = torch.randn(count, self.cell_axes, generator=generator, dtype=torch.float64)
            draw = draw / draw.norm(dim=1, keepdim=True)
            found.append(draw[(draw.abs() >= self.gap).all(1)])
            if sum(map(len, found)) >= count:
                break
        x = torch.cat(found)[:count]
        _check.require(len(x) == count, "gap", "leave room on the sphere", self.gap)
        return x, x > 0

    def _half_axis_points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
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
        return torch.cat([u, _WAVE_HEIGHT * torch.sin(u @ self._waves)], 1), upper


def separated_points(
    count: int,
    dim: int,
    *,
    separation: float,
    norm: Literal["linf", "l2", "l1"] = "linf",
    generator: torch.Generator,
) -> Dataset:
    """Points (count, dim) uniform in the unit cube with random labels, classes `separation` apart.

    A draw that is nearer to an earlier point of the other class is drawn again. float64, box (0,
    1). Where the points do not fit it is a ValueError.

    Arguments:

    - `count`: the number of points, 2 or more, so that both classes are there.
    - `dim`: d, the number of coordinates of a point; 1 or more.
    - `separation`: the least distance of points of different classes, 0 or more.
    - `norm`: the norm that distances are measured in, "linf" (the default), "l2" or "l1".
    - `generator`: the torch.Generator that random numbers are drawn from.
    """
    _check.integer("count", count, minimum=2)
    _check.integer("dim", dim, minimum=1)
    least = _check.number("separation", separation, minimum=0.0)
    _check.choice("norm", norm, NORM_ORDERS)
    _check.generator("generator", generator)
    x = torch.empty(count, dim, dtype=torch.float64)
    y = torch.where(torch.rand(count, generator=generator) < 0.5, 1, -1)
    y[0], y[1] = 1, -1  # Both classes are there.
    for i in range(count):
        other = x[:i][y[:i] != y[i]]
        for _ in range(_DRAWS_PER_POINT):
            draw = torch.rand(dim, generator=generator, dtype=torch.float64)
            far = torch.linalg.vector_norm(other - draw, ord=NORM_ORDERS[norm], dim=1)
            if bool((far >= least).all()):
                break
        else:
            rule = f"leave room for {count} points in {dim} dimensions"
            _check.require(False, "separation", rule, f"{least:g}, with room for {i}")
        x[i] = draw
    return Dataset(x, y, box=(0.0, 1.0))


class LatticeCells:
    """Small cubes around the points of a lattice in the unit cube, each with a random label.

    `side`^m cells stand at distance 1/side in linf, a cell is a cube of half width `noise`, and a
    sample is uniform in a random cell. With `linear` False m = dim: the general case of Li et al.
    2022, in which labels of exp(d) cells are arbitrary. With `linear` True m = dim - 1 and the last
    coordinate is 1/2 + y `offset`: one neuron along it classifies all points, O(dim) parameters,
    but an attack of radius >= offset hides it, so that a robust network has to know the labels of
    all cells (the idea of Theorem 4.3; the construction is ours).

    Labels are +1 for a random half of the cells.

    Arguments:

    - `dim`: d, the number of coordinates of a point; 2 or more if `linear`, else 1 or more.
      More than 2^20 cells are refused.
    - `side`: cells along each axis, 2 or more.
    - `noise`: half the width of a cell, 0 or more and below 1 / (2 side).
    - `linear`: whether the last coordinate alone tells the class, see above.
    - `offset`: how far the last coordinate is from 1/2, above 0 and at most 1/2; only with
      `linear`.
    - `generator`: the torch.Generator that the labels of cells are drawn from.
    """

    def __init__(
        self,
        dim: int,
        side: int = 2,
        *,
        noise: float = 0.1,
        linear: bool = False,
        offset: float = 0.02,
        generator: torch.Generator,
    ) -> None:
        self.linear = bool(linear)
        self.dim = _check.integer("dim", dim, minimum=2 if linear else 1)
        self.side = _check.integer("side", side, minimum=2)
        self.noise = _check.number("noise", noise, minimum=0.0)
        rule = f"be below half the lattice's spacing, {0.5 / side:g}"
        _check.require(self.noise < 0.5 / side, "noise", rule, noise)
        self.offset = _check.number("offset", offset, above=0.0, maximum=0.5)
        _check_cells("dim", dim, self.side, self.axes)
        self.labels = _balanced_labels(self.side**self.axes, generator)

    def __repr__(self) -> str:
        kind = "linearly separable, " if self.linear else ""
        return f"LatticeCells({kind}dim={self.dim}, side={self.side}, noise={self.noise:g})"

    @property
    def axes(self) -> int:
        """m, the number of coordinates of the lattice."""
        return self.dim - 1 if self.linear else self.dim

    @property
    def count(self) -> int:
        """The number of cells."""
        return len(self.labels)

    @property
    def separation(self) -> float:
        """A linf distance that points of different cells have at least: 1/side - 2 noise."""
        return 1.0 / self.side - 2.0 * self.noise

    @property
    def centers(self) -> Tensor:
        """The cells' middles, (count, dim)."""
        axis = (torch.arange(self.side, dtype=torch.float64) + 0.5) / self.side
        places = torch.cartesian_prod(*[axis] * self.axes).reshape(-1, self.axes)
        if not self.linear:
            return places
        return torch.cat([places, 0.5 + self.offset * self.labels.double().unsqueeze(1)], 1)

    def sample(
        self, count: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Dataset:
        """Draw points; `group` is the cell.

        Arguments:

        - `count`: the number of points.
        - `generator`: the torch.Generator that random numbers are drawn from.
        - `dtype`: of the points, float32 by default.
        """
        check_draw(count, generator, dtype)
        group = torch.randint(self.count, (count,), generator=generator)
        offsets = torch.rand(count, self.axes, generator=generator, dtype=torch.float64)
        x = self.centers[group]
        x[:, : self.axes] += self.noise * (2.0 * offsets - 1.0)
        return Dataset(x.to(dtype), self.labels[group], group, (0.0, 1.0), self)


def _check_cells(name: str, value: int, side: int, axes: int) -> None:
    """Require that side^axes cells, which `value` leads to, are at most 2^20."""
    most = math.floor(math.log(_MOST_CELLS) / math.log(side) + 1e-9)
    rule = f"be at most {value - axes + most}, for {side}^{most} cells"
    _check.require(axes <= most, name, rule, value)


def _balanced_labels(count: int, generator: torch.Generator) -> Tensor:
    """-1 / +1 for `count` cells in random order: equally many, or one more of +1."""
    _check.generator("generator", generator)
    signs = torch.where(torch.arange(count) % 2 == 0, 1, -1)
    return signs[torch.randperm(count, generator=generator)]
