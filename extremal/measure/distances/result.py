"""What a search for the distance between two classifiers returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Distance:
    """The distance found, the scale c, and the point x of the sphere where it is attained.

    `value` is |c f - F| at the witness, the largest that was found. `lower` is a proven lower bound
    on the distance by the same points: the least over c of the largest difference on all points
    that the search found (nan for the paper's algorithm, which fixes c beforehand). `upper` is a
    proven upper bound on the supremum at c, and so on the distance (nan where the two networks have
    different powers, and for the paper's algorithm).
    """

    value: float
    scale: float
    witness: Tensor
    lower: float
    upper: float
    converged: bool
    method: str


@dataclass(frozen=True, eq=False)
class Supremum:
    """The largest |c f - F| found on the sphere at a given scale c, and the point that has it.

    `upper` is a proven upper bound on the supremum (nan where the powers differ).
    """

    value: float
    scale: float
    witness: Tensor
    upper: float
