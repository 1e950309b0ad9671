"""The network of a cover of a manifold: how large it is, and what it proves of fresh points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extremal import certify, models
from extremal.data import Dataset, ManifoldCells
from extremal.models.provable_constructions import distances, least_distance

_MOST = 200_000  # points that are drawn


@dataclass(frozen=True)
class Covered:
    """A cover network: points of the cover, parameters, and two shares of fresh points.

    `coverage` is the share within reach of the cover, `error` the one whose class is not proven at
    the radius: its certified robust error.
    """

    points: int
    parameters: int
    coverage: float
    error: float


def covered(
    params: Mapping[str, Any], source: ManifoldCells, generator: torch.Generator
) -> Covered:
    """Cover a manifold until `coverage` of fresh points are within reach, and build the network.

    In l1, which the memoriser knows. Radius and reach are the shares `cover_radius` and
    `cover_reach` of the classes' l1 distance in a first sample: distances in l1 grow with the
    ambient dimension although the manifold stays as it is. `cover_batch` points at a time are
    drawn; those of them that are bare are covered in turn, until few enough are.
    """
    size, goal = params["cover_batch"], params["coverage"]

    def draw() -> Dataset:
        return source.sample(size, generator=generator, dtype=torch.float64)

    first = draw()
    apart = least_distance(first.x[first.y == 1], first.x[first.y == -1], "l1")
    radius, reach = params["cover_radius"] * apart, params["cover_reach"] * apart
    found, drawn = first.take(models.cover(first, reach, "l1")), size
    while True:
        fresh, drawn = draw(), drawn + size
        bare = _bare(fresh, found, reach)
        coverage = 1.0 - float(bare.double().mean())
        if coverage >= goal or drawn >= _MOST:
            break
        left = fresh.take(bare)
        left = left.take(models.cover(left, reach, "l1"))
        found = Dataset(torch.cat([found.x, left.x]), torch.cat([found.y, left.y]))
    net = models.Memoriser(found, radius + reach, "l1")
    test = draw()
    proven = certify.radius(net, test.x, test.y, norm="l1")
    error = float((proven < radius).double().mean())
    return Covered(len(found), net.parameter_count, coverage, error)


def _bare(fresh: Dataset, found: Dataset, reach: float) -> Tensor:
    """Which fresh points (n,) no point of their class covers."""
    far = distances(fresh.x, found.x, "l1")
    return far.where(fresh.y.unsqueeze(1) == found.y, torch.inf).amin(1) > reach
