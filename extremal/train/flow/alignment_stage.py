"""The flow while the network's output is below the tolerance, and how long that is safe to say."""

from __future__ import annotations

import math

import torch

from extremal.train.aligning import Aligning, Pull, across
from extremal.train.flow.cluster_field import Clusters, Constant
from extremal.train.flow.runge_kutta import Counts, State
from extremal.train.sketched import Sketched
from extremal.train.together import Together

_QUIET = 0.3  # of the tolerance: the output up to which neurons go on by themselves
_LOUD = 2.0  # of the tolerance: the output at which a step was too long


class Quiet:
    """Neurons that don't hear each other: the push is that of zero outputs.

    `first_loss` is the mean loss then, `fastest` a bound on how fast an angle grows.
    """

    def __init__(self, neurons: Together, start: State, tolerance: float, counts: Counts) -> None:
        self.neurons, self.tolerance = neurons, tolerance
        field, loss = neurons.field, neurons.loss
        rest = field.outputs(start[0], torch.zeros_like(start[1]))
        push = field.push(loss, rest, neurons.rate)
        self.first_loss = field.loss(loss, rest)
        pull: Pull = (
            Constant(field, push)
            if isinstance(field, Clusters)
            else Sketched(field, push, tolerance)
        )
        first = 0.1 / float(push.abs().sum())
        self.aligning = Aligning(pull, neurons.angles, first, tolerance, counts)
        self.fastest = field.fastest * neurons.rate * (0.5 if loss.name == "logistic" else 1.0)

    def advance(self, state: State, most: float) -> tuple[State, float] | None:
        """The state after a time of at most `most`, and that time; None where outputs count."""
        largest = self._largest_output(state)
        span = min(most, self._safe_time(state))
        while largest < _QUIET * self.tolerance:
            after = self.aligning.advance(state, span)
            if self._largest_output(after) <= _LOUD * self.tolerance:
                return after, span
            span, largest = 0.5 * span, 0.0
        return None

    def still(self, state: State) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        place, theta = state
        pull, growth = self.aligning.field.pull(place, torch.arange(len(theta)))
        return not bool(growth.any()) and not bool(across(pull, place).any())

    def _safe_time(self, state: State) -> float:
        """A time in which the output can't grow to the tolerance: sinh(2 theta) < exp(2 theta)."""
        log_total = float(torch.logsumexp(self.neurons.angles.log_ceiling(state[1]), 0))
        wait = (math.log(self.tolerance) - log_total) / (2.0 * self.fastest)
        return max(wait, 0.05 / self.fastest)

    def _largest_output(self, state: State) -> float:
        return float(self.neurons.outputs(state).abs().max())
