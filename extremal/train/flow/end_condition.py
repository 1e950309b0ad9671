"""When a gradient flow ends: at a time, once a loss or a margin is reached, or at rest.

A goal is looked for at the end of each step, and then located within the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models import output_margins
from extremal.train.losses import Loss
from extremal.train.recording import Recorder

if TYPE_CHECKING:
    from extremal.train.flow.driver import Flow

# A step whose states are known within is bisected at most so often.
_MOST_BISECTIONS = 40
# Bisection ends once the goal is located to this share of the time.
_BISECTED_TIME_SHARE = 1e-9
# Where states within a step cost as much as the step, the goal is located to this share.
_RETRACED_TIME_SHARE = 1e-6
# A loss that falls by less than this share, for the time and steps below, has come to rest.
_STATIONARY_LOSS_FALL = 1e-6
# The flow must take so many steps before a loss that does not fall is taken to rest.
_STATIONARY_STEPS = 200
# The first steps do not count as rest: small weights move long before the loss does.
_LEAST_STEPS_BEFORE_REST = 100
# Sizes of neurons are noted once the loss has not fallen while the time grew by this factor.
_NOTED_TIME_FACTOR = 2.0
# Rest has lasted where the time has grown by this factor since, and no neuron has.
_QUIET_TIME_FACTOR = 5.0
# A neuron that grows by this share meanwhile may be one that still wakes. Where none does, one of
# 1e-9 would take 2000 times as long to come to 1.
_GROWTH_SHARE = 0.01
# By then rest has lasted, whatever neurons do that the loss does not see.
_STATIONARY_TIME_FACTOR = 1e3


@dataclass(frozen=True, eq=False)
class Goals:
    """What a flow is to reach, on the recorder's data and with its loss."""

    flow: Flow
    recorder: Recorder
    until: Until

    def met_at(self, time: float) -> str:
        """Which goal is met at a time within the last step; none is ""."""
        if not self.until.goals:
            return ""
        outputs = self.flow.outputs(time)
        return self.until.reached(outputs, self.recorder.data.y, self.recorder.loss)

    def first_met(self, before: float, goal: str) -> tuple[float, str]:
        """When the last step, from `before` to where `goal` is met, first met one, and which."""
        low, high = before, self.flow.time
        share = _BISECTED_TIME_SHARE if self.flow.dense else _RETRACED_TIME_SHARE
        for _ in range(_MOST_BISECTIONS):
            if high - low <= share * high:
                break
            middle = 0.5 * (low + high)
            found = self.met_at(middle)
            low, high, goal = (low, middle, found) if found else (middle, high, goal)
        return high, goal


@dataclass(frozen=True)
class Until:
    """End at flow time `time`, or once the loss falls to `loss` or all margins reach `margin`.

    The margin of a sample is y f(x), or f_y(x) minus the largest other output; the one that counts
    is the smallest on the training data. Whatever comes first ends the flow, at the start if it
    holds there already. Goals are looked at after each step and then located within it: to 1e-9 of
    the time, or 1e-6 while neurons align by themselves.

    The trajectory's `info["ended_by"]` says what has ended the flow, and `info["converged"]`
    whether that is what was asked for: so it is for "loss", for "margin", and for "time" where no
    goal was named. Where one was and the time came first, the flow has ended by "goal missed".

    Without a time, a flow that can't reach its goal ends as "stationary", not converged: where
    nothing moves any more, or where the loss has not fallen by a millionth in the last 200 steps or
    more while the flow time doubled, and then grew fivefold without any neuron growing by a
    hundredth; or, whatever neurons do, while it grew a thousandfold. A loss that still falls,
    however slowly, is followed for `max_steps`.
    """

    time: float = math.inf  # flow time, above 0
    loss: float | None = None  # of the training data, above 0; None for no such goal
    margin: float | None = None  # the smallest one to reach; None for no such goal

    def __post_init__(self) -> None:
        if self.time != math.inf:
            _check.number("until.time", self.time, above=0.0)
        if self.loss is not None:
            _check.number("until.loss", self.loss, above=0.0)
        if self.margin is not None:
            _check.number("until.margin", self.margin)
        ends = self.time != math.inf or self.goals
        _check.require(ends, "until", "name a time, a loss or a margin", "none")

    @property
    def goals(self) -> bool:
        """Whether the end depends on the outputs."""
        return self.loss is not None or self.margin is not None

    @property
    def sentence(self) -> str:
        """What is asked for, in words: "loss 0.001 or time 300"."""
        asked = {"loss": self.loss, "margin": self.margin, "time": self.time}
        named = {name: value for name, value in asked.items() if value not in (None, math.inf)}
        return " or ".join(f"{name} {value:g}" for name, value in named.items())

    def reached(self, outputs: Tensor, y: Tensor, loss: Loss) -> str:
        """Which goal the training outputs meet: "loss", "margin", or "" where none is met.

        Arguments:

        - `outputs`: the outputs (n,) or (n, C) on the training data.
        - `y`: their labels (n,).
        - `loss`: the `Loss` that is trained with.
        """
        if self.loss is not None and float(loss.value(outputs, y)) <= self.loss:
            return "loss"
        if self.margin is not None and float(output_margins(outputs, y).min()) >= self.margin:
            return "margin"
        return ""


class LossAtRest:
    """Watches a loss for having come to rest, as `Until` says."""

    def __init__(self, time: float, steps: int) -> None:
        self._begin(time, math.inf, steps)

    def _begin(self, time: float, lowest: float, steps: int) -> None:
        self.since, self.lowest, self.steps = time, lowest, steps  # when the loss last fell
        self.noted: tuple[float, Tensor] | None = None  # a time, and sizes of neurons then

    def holds(self, time: float, steps: int, loss: float, sizes: Callable[[], Tensor]) -> bool:
        """Whether the loss rests after a step; `sizes` are the neurons' now, asked for rarely."""
        least = _STATIONARY_LOSS_FALL * abs(self.lowest) if self.lowest < math.inf else 0.0
        falls = loss < self.lowest - least
        if falls or steps < _LEAST_STEPS_BEFORE_REST or self.since == 0.0:
            self._begin(time, min(loss, self.lowest), steps)
            return False
        if self.noted is None and time > _NOTED_TIME_FACTOR * self.since:
            self.noted = time, sizes()
        if steps - self.steps < _STATIONARY_STEPS or self.noted is None:
            return False
        if time > _STATIONARY_TIME_FACTOR * self.since:
            return True
        at, before = self.noted
        if time <= _QUIET_TIME_FACTOR * at:
            return False
        self.noted = time, sizes()
        return not bool((self.noted[1] > (1.0 + _GROWTH_SHARE) * before).any())


def neuron_sizes(net: nn.Module) -> Tensor:
    """The lengths of the rows of a network's matrices and kernels, and |b| of its vectors, (m,)."""
    parts = [part.detach() for part in net.parameters()]
    rows = [
        part.flatten(1).norm(dim=1) if part.ndim > 1 else part.flatten().abs() for part in parts
    ]
    return torch.cat(rows)


def as_until(until: float | Until) -> Until:
    """An `Until` from a flow time, or itself."""
    if isinstance(until, Until):
        return until
    return Until(_check.number("until", until, above=0.0))
