"""When a gradient flow ends: at a time, or once a loss or a margin is reached."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from extremal import _check
from extremal.models import output_margins
from extremal.train.losses import Loss


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

    time: float = math.inf
    loss: float | None = None
    margin: float | None = None

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
        """Which goal the training outputs meet: "loss", "margin", or "" where none is met."""
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
