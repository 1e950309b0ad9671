"""Embedded Runge-Kutta pairs with control of the error and dense output."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

State = tuple[Tensor, ...]
RightHandSide = Callable[[State], State]
# Maps (estimate of the error, state before, state after) to an error in units of the tolerance.
ErrorMeasure = Callable[[State, State, State], float]


@dataclass(frozen=True)
class Tableau:
    """A pair of Runge-Kutta methods whose last stage is the first stage of the next step.

    `order` is the higher one, `error` the difference of the two methods' weights. `dense` completes
    the cubic through both ends of a step to the pair's own interpolant.
    """

    order: int
    stages: tuple[tuple[float, ...], ...]
    error: tuple[float, ...]
    dense: tuple[float, ...] | None = None


# Bogacki & Shampine 1989, 3(2); the cubic through both ends is of third order itself.
BOGACKI_SHAMPINE_32 = Tableau(
    3,
    ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    (-5 / 72, 1 / 12, 1 / 9, -1 / 8),
)
# Dormand & Prince 1980, 5(4); the interpolant, of fourth order, is Hairer, Norsett & Wanner's.
DORMAND_PRINCE_54 = Tableau(
    5,
    (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    (
        -12715105075 / 11282082432,
        0.0,
        87487479700 / 32700410799,
        -10690763975 / 1880347072,
        701980252875 / 199316789632,
        -1453857185 / 822651844,
        69997945 / 29380423,
    ),
)


@dataclass
class Counts:
    """How much work an integration took; a right-hand side on a part counts as that part."""

    steps: int = 0
    rejected: int = 0
    right_hand_sides: float = 0.0
    most_attempts: float = math.inf  # at steps, the rejected ones included

    def require_more(self) -> None:
        """Raise an `OutOfStepsError` where no further step is allowed."""
        if self.steps + self.rejected >= self.most_attempts:
            raise OutOfStepsError


class OutOfStepsError(Exception):
    """A flow that has not come to its end in the steps it was given."""


class AdaptiveStepper(ABC):
    """Integrates y' = right_hand_side(y) from `state` at `time`, one accepted step at a time."""

    def __init__(
        self,
        right_hand_side: RightHandSide,
        state: State,
        time: float,
        tolerance: float,
        counts: Counts,
    ) -> None:
        self.right_hand_side, self.tolerance, self.counts = right_hand_side, tolerance, counts
        self.state, self.time = state, time
        self.size = 0.0  # of the next step, if it is accepted
        self.slope = self._evaluate(state)
        # When and where the last step began, its slopes, and their weights in `dense_state`.
        self._last_step: tuple[float, State, list[State], tuple[float, ...] | None] | None = None

    @property
    @abstractmethod
    def order(self) -> int:
        """The power of a step's size with which the estimate of its error grows."""

    @property
    @abstractmethod
    def dense(self) -> tuple[float, ...] | None:
        """The weights of a step's slopes that complete the cubic through its ends."""

    @abstractmethod
    def _longest_step(self) -> float:
        """The longest step that is stable, as far as the method knows."""

    @abstractmethod
    def _attempt(self, size: float) -> tuple[State, list[State], float]:
        """The state after a step, the slopes, and the error: at most 1 to be accepted.

        The first slope is that at the start of the step, the last one that at its end.
        """

    def advance(self, limit: float) -> None:
        """Take one accepted step, not beyond `limit`."""
        while True:
            planned = min(self.size, self._longest_step())
            reaches_limit = planned >= limit - self.time
            size = limit - self.time if reaches_limit else planned
            state, slopes, error = self._attempt(size)
            factor = step_factor(error, self.order)
            if error <= 1.0:
                self.counts.steps += 1
                self._last_step = (self.time, self.state, slopes, self.dense)
                self.state, self.slope = state, slopes[-1]
                self.time = limit if reaches_limit else self.time + size
                # A step cut short says nothing against the longer one that was planned.
                self.size = max(self.size, size * factor) if reaches_limit else size * factor
                return
            self.counts.rejected += 1
            self.size = size * factor
            if not self.size > 1e-14 * self.time:
                raise ArithmeticError(f"the step size vanished at time {self.time:g}")

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return not any(bool(part.any()) for part in self.slope)

    def state_at(self, time: float) -> State:
        """The state at a time within the last step."""
        if self._last_step is None or time >= self.time:
            return self.state
        start, before, slopes, dense = self._last_step
        return dense_state((start, self.time), before, self.state, slopes, time, dense)

    def _evaluate(self, state: State) -> State:
        self.counts.right_hand_sides += 1
        return self.right_hand_side(state)


class RungeKuttaStepper(AdaptiveStepper):
    """Steps of an embedded pair, which may be changed on the way.

    A step is accepted where `error` of its estimate is at most 1; unless said, that is where no
    entry of the state is estimated to be wrong by more than `tolerance` after it.
    """

    def __init__(
        self,
        right_hand_side: RightHandSide,
        state: State,
        time: float,
        tolerance: float,
        counts: Counts,
        size: float,
        *,
        tableau: Tableau = BOGACKI_SHAMPINE_32,
        error: ErrorMeasure | None = None,
    ) -> None:
        super().__init__(right_hand_side, state, time, tolerance, counts)
        self.tableau, self.error = tableau, error or self._largest_error
        self.size = size

    def restarted(self, right_hand_side: RightHandSide, state: State) -> RungeKuttaStepper:
        """A stepper like this one, from here on, for another form of the equation and the state."""
        return RungeKuttaStepper(
            right_hand_side,
            state,
            self.time,
            self.tolerance,
            self.counts,
            self.size,
            tableau=self.tableau,
        )

    @property
    def order(self) -> int:
        """The order of the pair."""
        return self.tableau.order

    @property
    def dense(self) -> tuple[float, ...] | None:
        """The weights of the pair's interpolant."""
        return self.tableau.dense

    def _longest_step(self) -> float:
        return math.inf

    def _attempt(self, size: float) -> tuple[State, list[State], float]:
        slopes = [self.slope]
        for weights in self.tableau.stages:
            state = stepped(self.state, slopes, weights, size)
            slopes.append(self._evaluate(state))
        estimate = tuple(
            size * _weighted_sum(parts, self.tableau.error) for parts in zip(*slopes, strict=True)
        )
        error = self.error(estimate, self.state, state)
        return state, slopes, error if math.isfinite(error) else math.inf

    def _largest_error(self, estimate: State, before: State, after: State) -> float:
        del before, after
        return largest_or_infinite([float(p.abs().max()) for p in estimate]) / self.tolerance


def dense_state(
    span: tuple[float, float],
    before: State,
    after: State,
    slopes: list[State],
    time: float,
    dense: tuple[float, ...] | None = None,
) -> State:
    """The state at a time within a step over `span`, by the cubic through both ends.

    The first and the last of `slopes` are those at the ends; with `dense`, weights of all of them,
    the cubic is completed to a higher order.
    """
    size = span[1] - span[0]
    share = (time - span[0]) / size
    found = []
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        rise = new - old
        bend = size * slopes[0][i] - rise
        inner = rise - size * slopes[-1][i] - bend
        if dense is not None:
            extra = _weighted_sum(tuple(slope[i] for slope in slopes), dense)
            inner = inner + (1.0 - share) * size * extra
        found.append(old + share * (rise + (1.0 - share) * (bend + share * inner)))
    return tuple(found)


def largest_or_infinite(parts: list[float]) -> float:
    """The largest number, infinite where one is not a number: max() would pass over it."""
    return max(parts) if all(map(math.isfinite, parts)) else math.inf


def step_factor(error: float, order: int) -> float:
    """The factor for the next step's size, from the error of the last one over the tolerance."""
    if not math.isfinite(error):
        return 0.2
    return min(5.0, max(0.2, 0.9 * (error + 1e-12) ** (-1.0 / order)))


def stepped(
    state: State, slopes: list[State], weights: tuple[float, ...], size: float | Tensor
) -> State:
    """state + size times the weighted slopes."""
    moves = (_weighted_sum(parts, weights) for parts in zip(*slopes, strict=True))
    return tuple(part + size * move for part, move in zip(state, moves, strict=True))


def _weighted_sum(parts: tuple[Tensor, ...], weights: tuple[float, ...]) -> Tensor:
    pairs = [(part, w) for part, w in zip(parts, weights, strict=True) if w]
    total = pairs[0][1] * pairs[0][0]
    for part, weight in pairs[1:]:
        total = total + weight * part
    return total
