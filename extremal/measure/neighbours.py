"""How far apart classes are: each point's nearest neighbour of another class, exactly.

Pairs are looked at in tiles. A lower bound of the distance, mostly by a matrix product, rules nearly
all of a tile out; what is left is measured coordinate by coordinate in float64. Memory is that of
a few tiles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset

Norm = Literal["linf", "l2", "l1"]
Tile = tuple[slice, slice]
Bound = Callable[[Tile], Tensor]  # (rows, columns) of lower bounds

_ROWS, _COLUMNS = 512, 2048  # of a tile
_PAIRS = 4096  # that are measured at a time
_FIRST = 4000  # points that a first guess of the nearest one is among
_GUESSES = 4  # of them for each point
_LOOKED_AT = 1024  # coordinates at most that a bound in l-inf looks at
_LEVELS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5)  # shares of values that "low" may mean there
_RUN = 8  # neighbouring coordinates that a bound in l1 adds up
_EPS = torch.finfo(torch.float32).eps  # bounds are in float32, and give away what that may lose


@dataclass(frozen=True, eq=False)
class Separation:
    """Distances (n,) of points to the nearest point of another class, and which that is, (n,).

    `pairs` are (point, nearest) at the smallest distance; in the case of one data set each of them
    once. `conflicts` are those at distance 0: equal points with different labels. `repeated`
    counts points that equal an earlier one of their own class, in the data looked at.
    """

    norm: Norm
    distance: Tensor
    nearest: Tensor
    pairs: tuple[tuple[int, int], ...]
    repeated: int

    @property
    def minimum(self) -> float:
        """The smallest distance between two classes."""
        return float(self.distance.min())

    @property
    def mean(self) -> float:
        """The mean over points."""
        return float(self.distance.mean())

    @property
    def conflicts(self) -> tuple[tuple[int, int], ...]:
        """Equal points with different labels."""
        return self.pairs if self.minimum == 0.0 else ()


def separation(
    data: Dataset,
    reference: Dataset | None = None,
    *,
    norm: Norm = "linf",
    progress: bool | Progress = False,
) -> Separation:
    """For each point of `data` the nearest point of another class in `reference`, or in `data`.

    Yang et al. 2020, as cited by Li et al. 2022: all pairs of different labels count.
    """
    _check.choice("norm", norm, ("linf", "l2", "l1"))
    _check.instance("data", data, Dataset, "be a Dataset")
    other = data if reference is None else reference
    _check.instance("reference", other, Dataset, "be a Dataset or None")
    _check.require(other.dim == data.dim, "reference", f"have {data.dim} coordinates", other.dim)
    known = set(data.y.unique().tolist())
    seen = set(other.y.unique().tolist())
    lonely = sorted(label for label in known if not seen - {label})
    _check.require(not lonely, "reference", f"have points of classes other than {lonely}", "none")
    search = _Search(data, other, norm, alone=reference is None)
    tiles = list(search.tiles())
    with Bar("separation", len(tiles), progress) as bar:
        for count, tile in enumerate(tiles, start=1):
            search.look(tile)
            bar.done(count)
    return Separation(norm, search.best, search.nearest, search.pairs(), _repeated(data))


class _Search:
    """The best distances so far, and the tiles that may better them."""

    def __init__(self, data: Dataset, other: Dataset, norm: Norm, *, alone: bool) -> None:
        self.exact_x, self.exact_other = data.x, other.x
        self.x, self.other_x = data.x.float(), other.x.float()
        self.y, self.other_y = data.y, other.y
        self.norm, self.alone = norm, alone
        self.best = torch.full((len(data),), torch.inf, dtype=torch.float64)
        self.nearest = torch.zeros(len(data), dtype=torch.long)
        self.largest = max(float(self.x.abs().max()), float(self.other_x.abs().max()))
        self._guess()
        self.bound = {"linf": _by_levels, "l2": _by_products, "l1": _by_sums}[norm](self)

    def tiles(self) -> Iterator[Tile]:
        """All of them, row by row."""
        for first in range(0, len(self.x), _ROWS):
            for column in range(0, len(self.other_x), _COLUMNS):
                yield slice(first, first + _ROWS), slice(column, column + _COLUMNS)

    def look(self, tile: Tile) -> None:
        """Better the best distances by the pairs of one tile."""
        rows, columns = tile
        lower = self.bound(tile)
        lower.masked_fill_(self.y[rows].unsqueeze(1) == self.other_y[columns], torch.inf)
        i, j = (lower < self.best[rows].unsqueeze(1)).nonzero(as_tuple=True)
        self._measure(rows.start + i, columns.start + j)

    def _guess(self) -> None:
        """Measure a few points each, those next in l2 among some that are evenly spaced."""
        some = torch.linspace(0, len(self.other_x) - 1, min(_FIRST, len(self.other_x))).long()
        few = self.other_x[some]
        for part in torch.arange(len(self.x)).split(_ROWS):
            far = torch.cdist(self.x[part], few)
            far.masked_fill_(self.y[part].unsqueeze(1) == self.other_y[some], torch.inf)
            near = far.topk(min(_GUESSES, len(some)), largest=False)
            i, k = near.values.isfinite().nonzero(as_tuple=True)
            self._measure(part[i], some[near.indices[i, k]])

    def _measure(self, i: Tensor, j: Tensor) -> None:
        for one, two in zip(i.split(_PAIRS), j.split(_PAIRS), strict=True):
            gap = (self.exact_x[one].double() - self.exact_other[two].double()).abs_()
            distance = _length(gap, self.norm)
            least = self.best.scatter_reduce(0, one, distance, "amin")
            won = (distance == least[one]) & (distance < self.best[one])
            self.best = least
            self.nearest[one[won]] = two[won]

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Where the smallest distance is attained, in order."""
        at = (self.best == self.best.min()).nonzero().squeeze(1).tolist()
        found = [(i, int(self.nearest[i])) for i in at]
        if self.alone:
            found = [(min(pair), max(pair)) for pair in found]
        return tuple(sorted(set(found)))


def _length(gap: Tensor, norm: Norm) -> Tensor:
    """The norm of each row of absolute values."""
    if norm == "linf":
        return gap.amax(1)
    return gap.sum(1) if norm == "l1" else gap.square().sum(1).sqrt()


def _by_levels(search: _Search) -> Bound:
    """Infinite where a coordinate tells a pair to be farther apart than the best of its point.

    With t the best distance of a point a, a coordinate with a >= low + t and b <= low, or with
    a <= high - t and b >= high, is enough. A matrix product counts such coordinates. Looked at are
    those of the largest variance.
    """
    spread = search.other_x.var(0)
    chosen = spread.topk(min(_LOOKED_AT, len(spread))).indices
    low, high = _levels(search, chosen)
    one, two = search.x[:, chosen], search.other_x[:, chosen]
    beyond = 4.0 * _EPS * search.largest

    def bound(tile: Tile) -> Tensor:
        a, b = one[tile[0]], two[tile[1]]
        t = (search.best[tile[0]].float() + beyond).unsqueeze(1)
        left = torch.cat([a >= low + t, a <= high - t], dim=1).float()
        right = torch.cat([b <= low, b >= high], dim=1).float()
        return torch.where(left @ right.T > 0.5, torch.inf, 0.0)

    return bound


def _levels(search: _Search, chosen: Tensor) -> tuple[float, float]:
    """The levels "low" and "high" that rule out the most of some pairs."""
    g = torch.Generator().manual_seed(0)
    i = torch.randint(len(search.x), (_FIRST,), generator=g)
    j = torch.randint(len(search.other_x), (_FIRST,), generator=g)
    a, b = search.x[i][:, chosen], search.other_x[j][:, chosen]
    t = search.best[i].float().unsqueeze(1)
    ordered = b.flatten()[:: max(1, b.numel() // 100_000)].sort().values
    known = [ordered[round(share * (len(ordered) - 1))] for share in _LEVELS]
    tops = [ordered[round((1.0 - share) * (len(ordered) - 1))] for share in _LEVELS]
    low = max(known, key=lambda level: int(((b <= level) & (a >= level + t)).any(1).sum()))
    high = max(tops, key=lambda level: int(((b >= level) & (a <= level - t)).any(1).sum()))
    return float(low), float(high)


def _by_products(search: _Search) -> Bound:
    """The l2 distance from a matrix product: |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>."""
    middle = search.x.mean(0)
    one, two = search.x - middle, search.other_x - middle
    lengths = [x.square().sum(1) for x in (one, two)]
    dim = search.x.shape[1]
    lost = 4.0 * _EPS * dim**0.5 * search.largest  # in x and in the means

    def bound(tile: Tile) -> Tensor:
        rows, columns = tile
        total = lengths[0][rows].unsqueeze(1) + lengths[1][columns].unsqueeze(0)
        found = torch.addmm(total, one[rows], two[columns].T, alpha=-2.0)
        return found.sub_(2.0 * _EPS * dim * total).clamp_(min=0.0).sqrt_().sub_(lost)

    return bound


def _by_sums(search: _Search) -> Bound:
    """The l1 distance of sums over runs of coordinates, and |a - b| >= (a - b)^2 / the widest."""
    sums = [_runs(search.x), _runs(search.other_x)]
    by_products = _by_products(search)
    both = (search.x, search.other_x)
    widest = max(float(x.max()) for x in both) - min(float(x.min()) for x in both)
    count = sums[0].shape[1]
    lost = 4.0 * _EPS * _RUN * _RUN * count * search.largest

    def bound(tile: Tile) -> Tensor:
        first = by_products(tile).clamp_(min=0.0).square_().div_(max(widest, 1e-30))
        second = torch.cdist(sums[0][tile[0]], sums[1][tile[1]], p=1.0)
        second.mul_(1.0 - 2.0 * _EPS * count).sub_(lost)
        return torch.maximum(first.mul_(1.0 - 4.0 * _EPS), second)

    return bound


def _runs(x: Tensor) -> Tensor:
    """Sums of neighbouring coordinates, which are alike in images."""
    whole = x.shape[1] // _RUN * _RUN
    parts = [x[:, :whole].unflatten(1, (-1, _RUN)).sum(2), x[:, whole:].sum(1, keepdim=True)]
    return torch.cat(parts, dim=1).contiguous()


def _repeated(data: Dataset) -> int:
    """How many points equal an earlier one of their own class."""
    seen = {
        (int(label), hashlib.sha256(row.numpy().tobytes()).digest())
        for row, label in zip(data.x.contiguous(), data.y, strict=True)
    }
    return len(data) - len(seen)
