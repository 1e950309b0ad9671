"""Stabilised Runge-Kutta steps for flows that are stiff: Chebyshev polynomials damp fast decay.

An explicit step of s stages is stable up to about .65 s^2 over the largest rate, not 2 s over it.
Sommeijer, Shampine & Verwer 1998, "RKC: an explicit solver for parabolic PDEs", second order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from extremal.train.flow.runge_kutta import (
    AdaptiveStepper,
    Counts,
    RightHandSide,
    State,
    largest_or_infinite,
)

# The damping of RKC, which keeps the polynomial below 1 inside the stable interval.
_DAMPING = 2.0 / 13.0
# The most stages of a step; a longer step is cut to what they can hold.
_MOST_STAGES = 50
# A step of s stages is stable up to (s^2 - 1)/1.54 over the largest rate (RKC, eq. 2.12), of which
# the estimate is from below: stages are chosen for 1.2 times it.
_STAGES_SQUARED = 1.54 * 1.2
# The rate is estimated anew after so many attempts at a step; one that was unstable has failed.
_ATTEMPTS_PER_RATE = 5
# The first estimate of the largest rate takes so many products with the Jacobian, later ones one.
_FIRST_RATE_PRODUCTS = 8
# The Jacobian is seen by a move of this size.
_JACOBIAN_MOVE = 1e-4


class ChebyshevStepper(AdaptiveStepper):
    """Steps with as many stages as their length asks for.

    A step is accepted where the estimate of its error, as `measure` finds it, is at most
    `tolerance`; unless given, that is `largest_change`. `rate` is an estimate of the
    largest size of an eigenvalue of the Jacobian, by the power method.
    """

    def __init__(
        self,
        right_hand_side: RightHandSide,
        state: State,
        time: float,
        tolerance: float,
        counts: Counts,
        *,
        measure: Callable[[State, State], float] | None = None,
    ) -> None:
        super().__init__(right_hand_side, state, time, tolerance, counts)
        self.measure = measure or largest_change
        self.rate, self._attempts_at_rate = 0.0, 0
        self._fast: State = self.slope  # the direction of the power method
        for _ in range(_FIRST_RATE_PRODUCTS):
            self._update_rate()
        largest = self.measure(self.slope, state)
        self.size = tolerance ** (1.0 / self.order) / max(self.rate, largest, 1e-300)

    def restarted(self, right_hand_side: RightHandSide, state: State) -> ChebyshevStepper:
        """A stepper like this one, from here on, for another form of the equation and the state."""
        given = (right_hand_side, state, self.time, self.tolerance, self.counts)
        found = ChebyshevStepper(*given, measure=self.measure)
        found.size = self.size
        return found

    @property
    def order(self) -> int:
        """The order of the estimate of the error."""
        return 3

    @property
    def dense(self) -> None:
        """Nothing: states within a step are on the cubic through its ends."""

    def _longest_step(self) -> float:
        """The step that the most stages can hold, at the rate as it was some steps ago."""
        self._attempts_at_rate += 1
        if self._attempts_at_rate >= _ATTEMPTS_PER_RATE:
            self._update_rate()
        return (_MOST_STAGES**2 - 1.0) / max(_STAGES_SQUARED * self.rate, 1e-300)

    def _attempt(self, size: float) -> tuple[State, list[State], float]:
        start, first = self.state, self.slope
        stages = math.ceil(math.sqrt(1.0 + _STAGES_SQUARED * size * self.rate) - 1e-9)
        opening, recurrence = _coefficients(max(stages, 2))
        older = start
        newer = tuple(y + opening * size * f for y, f in zip(start, first, strict=True))
        for whole, one, two, slope_share, first_share in recurrence:
            slope = self._evaluate(newer)
            parts = zip(start, newer, older, slope, first, strict=True)
            older, newer = (
                newer,
                tuple(
                    whole * y0 + one * y1 + two * y2 + size * (slope_share * f1 + first_share * f0)
                    for y0, y1, y2, f1, f0 in parts
                ),
            )
        last = self._evaluate(newer)
        return newer, [first, last], self._error(newer, last, size)

    def _error(self, state: State, slope: State, size: float) -> float:
        """The estimate of a step's error over the tolerance, from slopes at both ends."""
        ends = zip(self.state, state, self.slope, slope, strict=True)
        missed = tuple(0.8 * (y0 - y1) + 0.4 * size * (f0 + f1) for y0, y1, f0, f1 in ends)
        found = self.measure(missed, self.state) / self.tolerance
        return found if math.isfinite(found) else math.inf

    def _update_rate(self) -> None:
        """One product with the Jacobian, by a difference of slopes."""
        length = self.measure(self._fast, self.state)
        if not 0.0 < length < math.inf:
            self._fast = self.slope
            return
        self._attempts_at_rate = 0
        unit = tuple((_JACOBIAN_MOVE / length) * part for part in self._fast)
        moved = tuple(y + move for y, move in zip(self.state, unit, strict=True))
        slope = self._evaluate(moved)
        change = tuple(new - old for new, old in zip(slope, self.slope, strict=True))
        found = math.sqrt(_squares(change) / _squares(unit))
        if math.isfinite(found):
            self.rate = max(found, 0.5 * (self.rate + found))
            self._fast = change


def _squares(state: State) -> float:
    return sum(float(part.square().sum()) for part in state)


def largest_change(change: State, state: State) -> float:
    """The largest entry of a change, relative to that of the state where it is larger than 1."""
    pairs = zip(change, state, strict=True)
    found = [float((part.abs() / whole.abs().clamp(min=1.0)).max()) for part, whole in pairs]
    return largest_or_infinite(found)


@functools.cache
def _coefficients(
    stages: int,
) -> tuple[float, tuple[tuple[float, float, float, float, float], ...]]:
    """The weight of the first slope in the first stage, and a row for each further stage.

    A row has the weights of the start, of the last two stages, of the last stage's slope and of the
    first slope (the paper's 1 - mu - nu, mu, nu, mu~ and gamma~).
    """
    w0 = 1.0 + _DAMPING / stages**2
    value, slope, bend = [1.0, w0], [0.0, 1.0], [0.0, 0.0]  # T_j, T_j', T_j'' at w0
    for j in range(2, stages + 1):
        value.append(2.0 * w0 * value[-1] - value[-2])
        slope.append(2.0 * w0 * slope[-1] - slope[-2] + 2.0 * value[j - 1])
        bend.append(2.0 * w0 * bend[-1] - bend[-2] + 4.0 * slope[j - 1])
    w1 = slope[stages] / bend[stages]
    b = [bend[2] / slope[2] ** 2, 1.0 / w0]
    b += [bend[j] / slope[j] ** 2 for j in range(2, stages + 1)]
    rows = []
    for j in range(2, stages + 1):
        one, two = 2.0 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2]
        slope_share = 2.0 * b[j] * w1 / b[j - 1]
        first_share = -(1.0 - b[j - 1] * value[j - 1]) * slope_share
        rows.append((1.0 - one - two, one, two, slope_share, first_share))
    return b[1] * w1, tuple(rows)
