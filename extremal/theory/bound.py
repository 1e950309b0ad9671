"""What a probabilistic statement of the papers says, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Bound:
    """An accuracy at l2 radius `radius` is at least 1 - tail (lower) or at most tail (upper).

    The tail is kept raw, neither clipped nor subtracted, so that it says how small an error of
    1e-40 is and how far a vacuous bound is from saying something.
    """

    side: Literal["lower", "upper"]
    tail: float
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
        """Whether an accuracy agrees with the bound."""
        return accuracy >= self.value if self.side == "lower" else accuracy <= self.value
