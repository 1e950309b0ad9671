"""How far apart classes are: each point's nearest neighbour of another class, exactly.

And which points are equal, of one class or of several.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.measure.nearest_neighbours import SEPARATION_NORMS, NeighbourSearch, Norm

Pairs = tuple[tuple[int, int], ...]

# Of this many points at the smallest distance, at most, all partners are looked for.
_MOST_POINTS_WITH_ALL_PARTNERS = 100
# Points whose rows are copied at a time to be digested.
_DIGESTED_POINTS = 1024


def equal_pairs(data: Dataset, reference: Dataset | None) -> tuple[Pairs, Pairs]:
    """Pairs (point, first equal one) of one class, and of different classes, by digests of rows.

    Without a reference the second is earlier in the data. A point has one pair for each class that
    has an equal point, so that many equal points do not make a square of pairs.
    """
    other = data if reference is None else reference
    kind = torch.promote_types(data.x.dtype, other.x.dtype)
    first: dict[bytes, dict[int, int]] = {}
    if reference is not None:
        for j, (digest, label) in enumerate(_digests(reference, kind)):
            first.setdefault(digest, {}).setdefault(label, j)
    same: list[tuple[int, int]] = []
    different: list[tuple[int, int]] = []
    for i, (digest, label) in enumerate(_digests(data, kind)):
        for known, j in first.get(digest, {}).items():
            pair = (i, j) if reference is not None else (j, i)
            (same if known == label else different).append(pair)
        if reference is None:
            first.setdefault(digest, {}).setdefault(label, i)
    return tuple(sorted(same)), tuple(sorted(different))


def _digests(data: Dataset, kind: torch.dtype) -> Iterator[tuple[bytes, int]]:
    """A digest of each point's values, in which -0 is 0, and its label."""
    points, labels = data.x.split(_DIGESTED_POINTS), data.y.split(_DIGESTED_POINTS)
    for part, own in zip(points, labels, strict=True):
        values = (part.detach().cpu().to(kind) + 0.0).numpy()
        for row, label in zip(values, own.tolist(), strict=True):
            yield hashlib.blake2b(row.tobytes(), digest_size=32).digest(), label


@dataclass(frozen=True, eq=False)
class Separation:
    """Distances (n,) of points to the nearest point of another class, and which that is, (n,).

    In the case of one data set each of `pairs` is listed once. `duplicates` have each point with
    the first that it equals (in the reference, or earlier in the data); `conflicts` with the first
    of every other class.
    """

    norm: Norm  # "l1", "l2" or "linf", the norm of distances
    distance: Tensor  # (n,) float64
    nearest: Tensor  # (n,): rows of the reference, or of the data where there is none
    labels: Tensor  # (n,), the points' own
    pairs: Pairs  # (point, nearest) at the smallest distance
    duplicates: Pairs  # equal points of one class
    conflicts: Pairs  # equal points of different classes

    @property
    def minimum(self) -> float:
        """The smallest distance between two classes."""
        return float(self.distance.min())

    @property
    def mean(self) -> float:
        """The mean over points."""
        return float(self.distance.mean())

    @property
    def repeated(self) -> int:
        """How many points equal an earlier one (or one of the reference) of their own class."""
        return len(self.duplicates)

    @property
    def by_class(self) -> dict[int, tuple[float, float]]:
        """The minimum and the mean of each class's points."""
        own = {int(label): self.distance[self.labels == label] for label in self.labels.unique()}
        return {label: (float(far.min()), float(far.mean())) for label, far in own.items()}


def separation(
    data: Dataset,
    reference: Dataset | None = None,
    *,
    norm: Norm = "linf",
    progress: bool | Progress = False,
) -> Separation:
    """For each point of `data` the nearest point of another class in `reference`, or in `data`.

    Yang et al. 2020, as cited by Li et al. 2022: all pairs of different labels count. Exact. In
    l-inf, images whose values are whole multiples of 1/255, 1/256 or 1/16, rounded to their dtype,
    are measured in those units: |i - j| / 255 in float64.

    Arguments:

    - `data`: the points, a `Dataset`.
    - `reference`: the `Dataset` that neighbours are sought in; None (the default) for `data`
      itself.
    - `norm`: "l1", "l2" or "linf", the norm of distances between points.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    _check.choice("norm", norm, SEPARATION_NORMS)
    _check.instance("data", data, Dataset, "be a Dataset")
    other = data if reference is None else reference
    _check.instance("reference", other, Dataset, "be a Dataset or None")
    _check.require(other.dim == data.dim, "reference", f"have {data.dim} coordinates", other.dim)
    known = set(data.y.unique().tolist())
    present = set(other.y.unique().tolist())
    alone = sorted(label for label in known if not present - {label})
    named = "data" if reference is None else "reference"
    _check.require(not alone, named, f"have points of classes other than {alone}", "none")
    search = NeighbourSearch(data, other, norm, alone=reference is None)
    tiles = search.tiles()
    with Bar("separation", len(tiles), progress) as bar:
        for count, tile in enumerate(tiles, start=1):
            search.visit(tile)
            bar.done(count)
    same, different = equal_pairs(data, reference)
    pairs = _closest_pairs(search, alone=reference is None)
    return Separation(norm, search.distance, search.nearest, data.y, pairs, same, different)


def _closest_pairs(search: NeighbourSearch, *, alone: bool) -> Pairs:
    """Where the smallest distance is attained, in order: all pairs of the first such points."""
    least = search.best.min()
    at = torch.nonzero(search.best == least).squeeze(1)
    found = [(i, int(search.nearest[i])) for i in at.tolist()]
    for i in at[:_MOST_POINTS_WITH_ALL_PARTNERS].tolist():
        found += [(i, j) for j in search.within(i, float(least))]
    if alone:
        found = [(min(pair), max(pair)) for pair in found]
    return tuple(sorted(set(found)))
