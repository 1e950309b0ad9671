"""When a gradient flow ends: at a time, or once a loss or a margin is reached.

A goal is looked for at the end of each step, and then located within the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

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
    holds there already: the trajectory's `info["ended_by"]` says "time", "loss" or "margin", and
    `info["converged"]` is True for each of them. Goals are looked at after each step and then
    located within it: to 1e-9 of the time, or 1e-6 while neurons align by themselves.

    Without a time, a flow that can't reach its goal ends as "stationary", with `converged` False:
    where nothing moves any more, or where the loss has not fallen by a millionth in the last 200
    steps or more, while the flow time grew a thousandfold.
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


def as_until(until: float | Until) -> Until:
    """An `Until` from a flow time, or itself."""
    if isinstance(until, Until):
        return until
    return Until(_check.number("until", until, above=0.0))
