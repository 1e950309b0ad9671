"""The embedded pair of Bogacki & Shampine, 3(2), with control of the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

State = tuple[Tensor, ...]
Side = Callable[[State], State]
ORDER = 3
ERROR = (-5 / 72, 1 / 12, 1 / 9, -1 / 8)


@dataclass
class Counts:
    """How much work an integration took; a right-hand side of a part counts as that part."""

    steps: int = 0
    rejected: int = 0
    sides: float = 0.0


class Stepper:
    """Integrates y' = side(y) from `state` at `time`, step by step.

    A step is accepted when no entry of the state is estimated to be wrong by more than `tolerance`
    after it. The last stage of a step is the first of the next one.
    """

    def __init__(
        self, side: Side, state: State, time: float, tolerance: float, counts: Counts, size: float
    ) -> None:
        self.side, self.tolerance, self.counts = side, tolerance, counts
        self.state, self.time, self.size = state, time, size
        self.slope = self._side(state)

    def advance(self, limit: float) -> None:
        """Take one accepted step, not beyond `limit`."""
        while True:
            cut = self.size >= limit - self.time
            size = limit - self.time if cut else self.size
            state, slope, error = self._attempt(size)
            factor = grown(error / self.tolerance)
            if error <= self.tolerance:
                self.counts.steps += 1
                self.state, self.slope = state, slope
                self.time = limit if cut else self.time + size
                self.size = max(self.size, size * factor) if cut else size * factor
                return
            self.counts.rejected += 1
            self.size = size * factor
            if self.size < 1e-14 * max(self.time, 1e-300):
                raise ArithmeticError(f"the step size vanished at time {self.time:g}")

    def _attempt(self, size: float) -> tuple[State, State, float]:
        first = self.slope
        second = self._side(_moved(self.state, (first,), (0.5 * size,)))
        third = self._side(_moved(self.state, (second,), (0.75 * size,)))
        weights = (2 / 9 * size, 1 / 3 * size, 4 / 9 * size)
        new = _moved(self.state, (first, second, third), weights)
        fourth = self._side(new)
        error = size * max(
            float(_weighted(parts, ERROR).abs().max())
            for parts in zip(first, second, third, fourth, strict=True)
        )
        return new, fourth, error if math.isfinite(error) else math.inf

    def _side(self, state: State) -> State:
        self.counts.sides += 1
        return self.side(state)


def grown(error: float) -> float:
    """The factor for the next step's size, from the error of the last one over the tolerance."""
    if not math.isfinite(error):
        return 0.2
    return min(5.0, max(0.2, 0.9 * (error + 1e-12) ** (-1.0 / ORDER)))


def _moved(state: State, slopes: tuple[State, ...], weights: tuple[float, ...]) -> State:
    moves = (_weighted(parts, weights) for parts in zip(*slopes, strict=True))
    return tuple(part + move for part, move in zip(state, moves, strict=True))


def _weighted(parts: tuple[Tensor, ...], weights: tuple[float, ...]) -> Tensor:
    total = weights[0] * parts[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + weight * part
    return total
