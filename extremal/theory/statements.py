"""What statements of the papers are about and say: the mixture's numbers, and a `Bound`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from extremal._check import integer, number, require


@dataclass(frozen=True)
class Bound:
    """An accuracy at l2 radius `radius` is at least 1 - tail (lower) or at most tail (upper).

    The tail is kept raw, neither clipped nor subtracted, so that it says how small an error of
    1e-40 is and how far a vacuous bound is from saying something.
    """

    side: Literal["lower", "upper"]  # whether the accuracy is bounded from below or above
    tail: float  # 0 or more; from 1 on the bound says nothing
    radius: float

    @property
    def value(self) -> float:
        """The bound on the accuracy: <= 0 (lower) or >= 1 (upper) where it says nothing."""
        return 1.0 - self.tail if self.side == "lower" else self.tail

    @property
    def vacuous(self) -> bool:
        """Whether every accuracy in [0, 1] satisfies the bound."""
        return self.tail >= 1.0

    def allows(self, accuracy: float) -> bool:
        """Whether `accuracy`, in [0, 1], agrees with the bound."""
        return accuracy >= self.value if self.side == "lower" else accuracy <= self.value


@dataclass(frozen=True)
class Mixture:
    """K1 + K2 orthonormal centres in R^D with noise N(0, alpha^2/D I), all equally likely."""

    dim: int
    positive: int
    negative: int
    spread: float

    @property
    def total(self) -> int:
        """K = K1 + K2."""
        return self.positive + self.negative

    @property
    def deviation(self) -> float:
        """The noise's standard deviation along any unit vector, alpha / sqrt(D)."""
        return self.spread / math.sqrt(self.dim)

    @property
    def classes(self) -> tuple[tuple[int, int, float], ...]:
        """Each class as (its own centres, the opposing centres, its share of the samples)."""
        k1, k2 = self.positive, self.negative
        return ((k1, k2, k1 / self.total), (k2, k1, k2 / self.total))

    def decay(self, margin: float) -> float:
        """exp(-C D margin^2 / alpha^2) with C = 1/2: Lemma 3 without its factor 2."""
        return math.exp(-0.5 * (margin / self.deviation) ** 2)


def mixture(dim: int, positive: int, negative: int, spread: float) -> Mixture:
    """Return the checked numbers: K1, K2 >= 1 centres, at most D of them, and alpha > 0."""
    positive = integer("positive", positive, minimum=1)
    negative = integer("negative", negative, minimum=1)
    dim = integer("dim", dim, minimum=2)
    room = f"be at least positive + negative = {positive + negative} (orthonormal centres)"
    require(dim >= positive + negative, "dim", room, dim)
    return Mixture(dim, positive, negative, number("spread", spread, above=0.0))
