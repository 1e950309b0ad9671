"""The search for nearest points of other classes, tile by tile.

A lower bound of the distance rules nearly all pairs of a tile out, which there may be billions of;
what is left is measured coordinate by coordinate, first on some of them. Bounds in float32 are
lowered by what rounding may lose, so that no pair is ruled out by it. Memory is that of the data
and a few tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from extremal.data import Dataset

Tile = tuple[Tensor, Tensor]  # places of its rows and of its columns
Bound = Callable[[Tile, Tensor], Tensor]  # tile and rows' limits to (rows, columns) of bool
Sample = tuple[Tensor, Tensor, Tensor]  # pairs of points, and the limits of the first ones

Norm = Literal["linf", "l2", "l1"]
SEPARATION_NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")
"""The norms that distances of points may have."""

# Coordinates that a bound in l-inf looks at.
_BOUND_COORDINATES = 64
# Neighbouring coordinates that a bound in l1 adds up.
_RUN_COORDINATES = 8
# The relative rounding of float32.
_FLOAT32_EPS = torch.finfo(torch.float32).eps
# Rows of a tile of pairs.
_TILE_ROWS = 1024
# Columns of a tile of pairs.
_TILE_COLUMNS = 2048
# Values that are measured at a time: points of all pairs times their coordinates.
_MEASURED_VALUES = 1 << 22
# A first guess of the nearest point is among this many, evenly spaced.
_GUESS_CANDIDATES = 4000
# How many of them are measured for each point.
_GUESSES_PER_POINT = 8
# Pairs are measured on this many coordinates first, evenly spaced.
_FIRST_COORDINATES = 256
# Steps between 0 and 1 of which values may be whole multiples: those of images.
_WHOLE_STEPS = (255, 256, 16)
# How many units in the last place a value may be off such a multiple.
_MOST_ULPS_OFF = 2.0
# Largest values outside of this range are scaled: squares of others leave float32's range.
_UNSCALED_RANGE = (2.0**-30, 2.0**30)


def linf_bound(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l-inf distance over a few coordinates, those that separate the most pairs of a sample.

    In bytes it is exact.
    """
    chosen = separating_coordinates(*sample, count=_BOUND_COORDINATES)
    kind = torch.uint8 if values.dtype == torch.uint8 else torch.float32
    one = values[:, chosen].to(kind).T.contiguous()  # (coordinates, n)
    two = one if other is values else other[:, chosen].to(kind).T.contiguous()
    lost = 0.0 if kind == torch.uint8 else 4.0 * _FLOAT32_EPS * _largest(values, other)

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        a, b = one[:, tile[0]].unsqueeze(2), two[:, tile[1]]  # (coordinates, rows, 1)
        far = torch.zeros(a.shape[1], b.shape[1], dtype=kind)
        for k in range(len(a)):
            gap = torch.maximum(a[k], b[k]).sub_(torch.minimum(a[k], b[k]))
            torch.maximum(far, gap, out=far)
        if kind != torch.uint8:
            return far.sub_(lost) < limit.unsqueeze(1)
        whole = limit.clamp(max=255.0).ceil().to(torch.uint8).unsqueeze(1)
        return (far < whole).logical_or_((limit > 255.0).unsqueeze(1))

    return bound


def separating_coordinates(one: Tensor, two: Tensor, limit: Tensor, *, count: int) -> Tensor:
    """At most `count` coordinates in which pairs (m, dim) are `limit` (m,) apart or more.

    Each next one separates the most of the pairs that no one before has; once none separates
    any more, all pairs count again.
    """
    separated = (one.float() - two.float()).abs_() >= limit.float().unsqueeze(1)
    chosen: list[int] = []
    left = torch.ones(len(separated), dtype=torch.bool)
    free = torch.ones(separated.shape[1], dtype=torch.bool)
    for _ in range(min(count, separated.shape[1])):
        gain = separated[left].sum(0).where(free, -1)
        if int(gain.max()) == 0:
            left.fill_(True)
            gain = separated.sum(0).where(free, -1)
        best = int(gain.argmax())
        chosen.append(best)
        free[best] = False
        left &= ~separated[:, best]
    return torch.tensor(chosen)


def l2_bound(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l2 distance from a matrix product: |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>."""
    middle = values.float().mean(0)
    lengths = [_squared_lengths(x, middle) for x in (values, other)]
    dim = values.shape[1]
    lost = 4.0 * _FLOAT32_EPS * dim**0.5 * _largest(values, other)  # in the points and in the mean

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        rows, columns = tile
        total = lengths[0][rows].unsqueeze(1) + lengths[1][columns].unsqueeze(0)
        one, two = (
            x.index_select(0, at).float() - middle for x, at in ((values, rows), (other, columns))
        )
        found = torch.addmm(total, one, two.T, alpha=-2.0)
        found = found.sub_(2.0 * _FLOAT32_EPS * dim * total).clamp_(min=0.0).sqrt_().sub_(lost)
        return found < limit.unsqueeze(1)

    return bound


def l1_bound(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l1 distance of sums over runs of coordinates, and |a - b| >= (a - b)^2 / the widest."""
    sums = [_run_sums(x.float()) for x in (values, other)]
    products = l2_bound(values, other, sample)
    widest = max(float(x.max()) for x in (values, other))
    widest -= min(float(x.min()) for x in (values, other))
    count = sums[0].shape[1]
    run = _RUN_COORDINATES
    lost = 4.0 * _FLOAT32_EPS * run * run * count * _largest(values, other)

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        within = (limit * max(widest, 1e-30) * (1.0 + 4.0 * _FLOAT32_EPS)).sqrt()
        far = torch.cdist(sums[0][tile[0]], sums[1][tile[1]], p=1.0)
        far = far.mul_(1.0 - 2.0 * _FLOAT32_EPS * count).sub_(lost)
        return products(tile, within).logical_and_(far < limit.unsqueeze(1))

    return bound


def _largest(values: Tensor, other: Tensor) -> float:
    return max(max(float(x.max()), -float(x.min())) for x in (values, other))


def _squared_lengths(x: Tensor, middle: Tensor) -> Tensor:
    """Squared lengths without the mean, in parts: no second copy of the data."""
    return torch.cat([(part.float() - middle).square_().sum(1) for part in x.split(1024)])


def _run_sums(x: Tensor) -> Tensor:
    """Sums of neighbouring coordinates, which are alike in images."""
    whole = x.shape[1] // _RUN_COORDINATES * _RUN_COORDINATES
    runs = x[:, :whole].unflatten(1, (-1, _RUN_COORDINATES)).sum(2)
    return torch.cat([runs, x[:, whole:].sum(1, keepdim=True)], dim=1).contiguous()


class NeighbourSearch:
    """The best distances so far, (n,) in units of the search, and the tiles that may better them.

    `values` and `other_values` are what distances are between, in these units: whole numbers 0..255
    where the data are multiples of a step and the norm is linf; else the points as they are, or
    over a power of two where they are very large or small.
    """

    def __init__(self, data: Dataset, other: Dataset, norm: Norm, *, alone: bool) -> None:
        self.norm, self.alone = norm, alone
        # In linf most distances are nearly equal, and a bound by the best of one point of a pair
        # rules out so many more pairs than by that of either that meeting each twice is cheaper.
        self.visits_pairs_once = alone and norm != "linf"
        self._steps = steps = _whole_steps(data, other) if norm == "linf" else None
        self.unit = 1.0 if steps is not None else _power_of_two_unit(data.x, other.x)
        self.values, self.other_values = data.x, other.x
        if steps is not None:
            self.values = _as_bytes(data.x, steps)
            self.other_values = self.values if alone else _as_bytes(other.x, steps)
        elif self.unit != 1.0:
            self.values = data.x.double() / self.unit
            self.other_values = self.values if alone else other.x.double() / self.unit
        self.y, self.other_y = data.y.to(torch.int32), other.y.to(torch.int32)
        self.best = torch.full((len(data),), torch.inf, dtype=torch.float64)
        self.nearest = torch.zeros(len(data), dtype=torch.long)
        self._guess()
        some = slice(None, None, max(1, data.dim // _FIRST_COORDINATES))
        first = self.values[:, some].contiguous()
        self.first_values = first
        self.other_first_values = first if alone else self.other_values[:, some].contiguous()
        make = {"linf": linf_bound, "l2": l2_bound, "l1": l1_bound}[norm]
        self.bound: Bound = make(self.values, self.other_values, self._sample())

    @property
    def distance(self) -> Tensor:
        """The best distances (n,) in the points' own units."""
        return self.best * self.unit if self._steps is None else self.best / self._steps

    def tiles(self) -> list[Tile]:
        """Tiles of all pairs, far points first; where each is met once, those from i to j >= i."""
        rows = self.best.argsort(descending=True)
        columns = rows if self.alone else torch.arange(len(self.other_values))
        return [
            (rows[first : first + _TILE_ROWS], columns[start : start + _TILE_COLUMNS])
            for first in range(0, len(rows), _TILE_ROWS)
            for start in range(first if self.visits_pairs_once else 0, len(columns), _TILE_COLUMNS)
        ]

    def visit(self, tile: Tile) -> None:
        """Better the best distances by the pairs of one tile."""
        rows, columns = tile
        limit = self.best[rows]
        if self.visits_pairs_once:  # a pair may be the best of either of its points
            limit = limit.clamp(min=float(self.best[columns].max()))
        near = self.bound(tile, limit)
        near &= self.y[rows].unsqueeze(1) != self.other_y[columns]
        i, j = near.nonzero(as_tuple=True)
        self._measure(rows[i], columns[j])

    def within(self, i: int, distance: float) -> list[int]:
        """All points of another class that are at most so far from point i, in those units."""
        other = torch.nonzero(self.other_y != self.y[i]).squeeze(1)
        one = torch.full_like(other, i)
        far = [self._distances(a, b) for a, b in self._parts(one, other)]
        return [int(j) for j in other[torch.cat(far) <= distance]]

    def _guess(self) -> None:
        """Measure a few points each, those next in l2 among some that are evenly spaced."""
        x, other_x = self.values, self.other_values
        some = torch.linspace(0, len(other_x) - 1, min(_GUESS_CANDIDATES, len(other_x))).long()
        few = other_x[some].float()
        for part in torch.arange(len(x)).split(_TILE_ROWS):
            far = torch.cdist(x[part].float(), few)
            far.masked_fill_(self.y[part].unsqueeze(1) == self.other_y[some], torch.inf)
            near = far.topk(min(_GUESSES_PER_POINT, len(some)), largest=False)
            i, k = near.values.isfinite().nonzero(as_tuple=True)
            for one, two in self._parts(part[i], some[near.indices[i, k]]):
                self._keep_better(one, two, self._distances(one, two))

    def _sample(self) -> tuple[Tensor, Tensor, Tensor]:
        """Random pairs and the best distances of their first points, to choose a bound by."""
        g = torch.Generator().manual_seed(0)
        i = torch.randint(len(self.values), (_GUESS_CANDIDATES // 2,), generator=g)
        j = torch.randint(len(self.other_values), (_GUESS_CANDIDATES // 2,), generator=g)
        return self.values[i], self.other_values[j], self.best[i]

    def _measure(self, i: Tensor, j: Tensor) -> None:
        """Measure pairs, but for those that are too far apart in the first coordinates."""
        for one, two in self._parts(i, j):
            limit = self.best[one]
            if self.visits_pairs_once:
                limit = torch.maximum(limit, self.best[two])
            near = _distances(self.first_values, self.other_first_values, one, two, self.norm)
            a, b = one[near < limit], two[near < limit]
            far = self._distances(a, b)
            self._keep_better(a, b, far)
            if self.alone:
                self._keep_better(b, a, far)

    def _parts(self, i: Tensor, j: Tensor) -> list[tuple[Tensor, Tensor]]:
        at_once = max(1, _MEASURED_VALUES // self.values.shape[1])
        return list(zip(i.split(at_once), j.split(at_once), strict=True))

    def _distances(self, i: Tensor, j: Tensor) -> Tensor:
        return _distances(self.values, self.other_values, i, j, self.norm)

    def _keep_better(self, i: Tensor, j: Tensor, distance: Tensor) -> None:
        least = self.best.scatter_reduce(0, i, distance, "amin")
        won = (distance == least[i]) & (distance < self.best[i])
        self.best = least
        self.nearest[i[won]] = j[won]


def _distances(one: Tensor, two: Tensor, i: Tensor, j: Tensor, norm: Norm) -> Tensor:
    """||one_i - two_j|| of rows in float64; differences are exact in bytes."""
    # `index_select` copies whole rows; indexing goes byte by byte.
    a, b = one.index_select(0, i), two.index_select(0, j)
    if a.dtype == torch.uint8:
        gap = torch.maximum(a, b).sub_(torch.minimum(a, b))
    else:
        gap = (a.double() - b.double()).abs_()
    if norm == "linf":
        return gap.amax(1).double()
    return gap.sum(1) if norm == "l1" else gap.square().sum(1).sqrt()


def _whole_steps(data: Dataset, other: Dataset) -> int | None:
    """The number of steps between 0 and 1 that all values are whole multiples of, if there is."""
    return next((n for n in _WHOLE_STEPS if all(_are_whole(x, n) for x in (data.x, other.x))), None)


def _are_whole(x: Tensor, steps: int) -> bool:
    """Whether all values are k/steps with k in 0..255, but for rounding; looked at in parts.

    What rounds to k = 0 has to be 0 itself, so that small values are not taken for it.
    """
    share = _MOST_ULPS_OFF * torch.finfo(x.dtype).eps
    for part in x.split(_TILE_ROWS):
        whole = (part * steps).round_()
        exact = whole / steps
        near = (part - exact).abs_() <= share * exact
        if not bool(near.all()) or float(whole.max()) > 255:  # exact < 0 is near nothing
            return False
    return True


def _power_of_two_unit(x: Tensor, other: Tensor) -> float:
    """1, or the power of two below the largest value where that one is very large or small."""
    largest = _largest(x, other)
    if largest == 0.0 or _UNSCALED_RANGE[0] <= largest <= _UNSCALED_RANGE[1]:
        return 1.0
    return 2.0 ** max(-1000, math.frexp(largest)[1] - 1)


def _as_bytes(x: Tensor, steps: int) -> Tensor:
    return torch.cat([(part * steps).round_().to(torch.uint8) for part in x.split(_TILE_ROWS)])
