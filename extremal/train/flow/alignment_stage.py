"""The first stage of the flow: the network's output is negligible, so neurons do not interact.

The push of the data is then constant, and each neuron takes its own steps (`IndependentNeurons`).
On many samples a random part of them pulls in place of all, with a correction for each neuron
(`SubsampledPull`). `AlignmentStage` says for how long the output stays negligible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.train.flow.cluster_field import ClusterField, ConstantClusterPull
from extremal.train.flow.neuron_dynamics import (
    NeuronAngles,
    NeuronSystem,
    polar_velocity,
    tangential,
)
from extremal.train.flow.runge_kutta import BOGACKI_SHAMPINE_32, Counts, State, stepped
from extremal.train.flow.sample_field import SampleField

# Every so many rounds of steps the neurons are checked for having come to rest at a kink.
_ROUNDS_BETWEEN_REST_CHECKS = 16
# So many samples stand for all of them between two corrections; twice as many are used whole.
_SUBSAMPLE_SIZE = 2000
# A neuron may turn by so many tolerances before its pull is corrected by all samples again.
_MOST_TURN_TOLERANCES = 100.0
# Neurons are independent while the largest output is below this share of the tolerance.
_DECOUPLED_OUTPUT_SHARE = 0.3
# A step after which the largest output exceeds this many tolerances was too long.
_REJECTED_OUTPUT_SHARE = 2.0


class ConstantPull(Protocol):
    """The pull of a constant push on neurons, as it is while the network's output is negligible."""

    @property
    def p(self) -> float: ...

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor) -> None:
        """Correct the pull on those of the neurons `rows` whose correction is too old."""
        ...

    def correct(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Correct the pull on the chosen ones of the neurons `rows`."""
        ...

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G up to a multiple of u, (k, r + 1), and g, (k,), of the neurons `rows`."""
        ...


class IndependentNeurons:
    """Neurons under a constant push, each with its own step size, at first `first_size`."""

    def __init__(
        self,
        field: ConstantPull,
        angles: NeuronAngles,
        first_size: float,
        tolerance: float,
        counts: Counts,
    ) -> None:
        self.field, self.angles = field, angles
        self.tolerance, self.counts = tolerance, counts
        self.step_size = torch.full_like(angles.log_scale, first_size)
        self.resting_places: Tensor | None = None  # (h, r + 1): where neurons rest at a kink

    def advance(self, state: State, span: float) -> State:
        """Bring each neuron forward by the time `span`."""
        place, theta = state[0].clone(), state[1].clone()
        left = torch.full_like(theta, span)
        active = torch.arange(len(theta))
        before = (place.clone(), left.clone())
        rounds = 0
        while len(active):
            rounds += 1
            here = (place[active], theta[active])
            self.field.refresh(here[0], left[active], active)
            angles = self.angles.take(active)
            velocity = self._velocity_of(active, angles)
            pull, growth = self.field.pull(here[0], active)
            first = polar_velocity(pull, growth, here, angles)
            settled = self._turns_no_more(tangential(pull, here[0]), first, left[active])
            settled |= self._still_resting(here[0], active)
            if rounds % _ROUNDS_BETWEEN_REST_CHECKS == 0:
                settled |= self._newly_resting(first[1], here[0], left[active], before, active)
                before = (place.clone(), left.clone())
            if bool(settled.any()):
                self.field.correct(here[0], left[active], active, settled)
                first = velocity(here)
                theta[active[settled]] += first[1][settled] * left[active[settled]]
                left[active[settled]] = 0.0
            size = torch.minimum(self.step_size[active], left[active])
            new, error = _attempted_step(velocity, here, first, size)
            good = (error <= self.tolerance) & ~settled
            rows = active[good]
            place[rows], theta[rows] = unit_rows(new[0][good]), new[1][good]
            left[rows] -= size[good]
            self._update_step_sizes(active, size, error / self.tolerance, good, settled)
            active = active[left[active] > 1e-12 * span]
        return place, theta

    def _velocity_of(self, rows: Tensor, angles: NeuronAngles) -> Callable[[State], State]:
        """The right-hand side for the neurons `rows`."""
        return lambda state: polar_velocity(*self.field.pull(state[0], rows), state, angles)

    def _update_step_sizes(
        self, active: Tensor, size: Tensor, error: Tensor, good: Tensor, settled: Tensor
    ) -> None:
        """Choose the next step of the active neurons by their errors, in tolerances."""
        factor = (0.9 * (error + 1e-12) ** (-1.0 / BOGACKI_SHAMPINE_32.order)).clamp(0.2, 5.0)
        # A step cut short by the end says nothing against the longer one that was planned.
        planned = torch.where(good & (size < self.step_size[active]), self.step_size[active], 0.0)
        changed = torch.maximum(planned, size * factor)
        self.step_size[active] = torch.where(settled, self.step_size[active], changed)
        self.counts.right_hand_sides += 4 * len(active) / len(self.step_size)
        self.counts.steps += 1

    def _turns_no_more(self, turning: Tensor, slope: State, left: Tensor) -> Tensor:
        """Which neurons will not turn any more: they approach their direction at the rate p g.

        A neuron with a small vote hardly turns now, but will turn once its vote has grown. So its
        speed is taken to be at least the speed that it would have if |v| were ||w||.
        """
        speed = torch.maximum(turning.abs().amax(1), slope[0].abs().amax(1))
        rate = (self.field.p * slope[1].abs()).clamp(min=1e-300)
        return speed * torch.minimum(left, 1.0 / rate) <= 0.01 * self.tolerance

    def _newly_resting(
        self, growth: Tensor, place: Tensor, left: Tensor, before: State, active: Tensor
    ) -> Tensor:
        """Which neurons have stayed within the tolerance for a while, and so rest at a kink.

        With p = 1 a neuron may rest where an opposing cluster is just inactive. If it crosses the
        kink it is pushed back within a short time, so that explicit steps jump to and fro there.
        """
        moved = (place - before[0][active]).abs().amax(1)
        rested = (before[1][active] - left) * self.field.p * growth.abs()
        found = (moved <= self.tolerance) & (rested >= 3.0)
        if self.field.p < 2.0:
            if self.resting_places is None:
                self.resting_places = torch.full_like(before[0], torch.inf)
            self.resting_places[active[found]] = place[found]
        return found

    def _still_resting(self, place: Tensor, active: Tensor) -> Tensor:
        """Which neurons are where they came to rest at a kink: the push has not changed since."""
        if self.resting_places is None:
            return torch.zeros(len(active), dtype=torch.bool)
        return (place - self.resting_places[active]).abs().amax(1) <= self.tolerance


def _attempted_step(
    velocity: Callable[[State], State], state: State, first: State, size: Tensor
) -> tuple[State, Tensor]:
    """A step of Bogacki & Shampine with a size for each neuron, and each one's error, (h,)."""
    slopes = [first]
    for weights in BOGACKI_SHAMPINE_32.stages:
        new = tuple(
            stepped((part,), [(slope[i],) for slope in slopes], weights, h)[0]
            for i, (part, h) in enumerate(zip(state, (size[:, None], size), strict=True))
        )
        slopes.append(velocity(new))
    miss = [
        h * sum(w * slope[i] for w, slope in zip(BOGACKI_SHAMPINE_32.error, slopes, strict=True))
        for i, h in enumerate((size[:, None], size))
    ]
    return new, torch.maximum(miss[0].abs().amax(1), miss[1].abs())


class SubsampledPull:
    """The pull of a constant push by a random part of the samples, corrected with all of them.

    The correction of a neuron is the pull of all samples minus that of the part, at the place where
    the neuron was then. Its error is how much that difference has changed since, which is 0 where
    a neuron rests.
    """

    def __init__(self, samples: SampleField, push: Tensor, tolerance: float) -> None:
        self.samples, self.push, self.p = samples, push, samples.p
        self.most_turn = _MOST_TURN_TOLERANCES * tolerance
        small = len(samples) <= 2 * _SUBSAMPLE_SIZE
        index = samples.random_rows(_SUBSAMPLE_SIZE)
        grown = len(samples) / len(index)
        self.subsample = None if small else samples.restricted(index, grown * samples.share[index])
        self.subsample_push = grown * push[index]
        zeros = torch.zeros(len(samples.frame.rest), dtype=torch.float64)
        places = torch.zeros(len(zeros), len(samples.frame.basis) + 1, dtype=torch.float64)
        self.corrected_at = torch.full_like(places, torch.inf)  # each neuron's place then
        self.time_left_then = zeros  # of the step in which a neuron was corrected
        self.correction = (places, zeros.clone())
        self.passes = 0.0  # how often all samples were used, in passes over all neurons

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor) -> None:
        """Correct neurons that have turned, or grown, since their last correction."""
        if self.subsample is None:
            return
        turned = (place - self.corrected_at[rows]).abs().amax(1)
        grown = (self.time_left_then[rows] - left) * self.p * self.samples.growth_rate_bound
        stale = (turned > self.most_turn) | ((grown > 1.0) & (turned > 0.0))
        self.correct(place, left, rows, stale)

    def correct(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Compare the part with all samples for the chosen neurons."""
        if self.subsample is None or not bool(chosen.any()):
            return
        mine, here = rows[chosen], place[chosen]
        whole = self.samples.pull(here, self.push, mine)
        part = self.subsample.pull(here, self.subsample_push, mine)
        self.corrected_at[mine], self.time_left_then[mine] = here, left[chosen]
        self.correction[0][mine], self.correction[1][mine] = whole[0] - part[0], whole[1] - part[1]
        self.passes += len(mine) / len(self.corrected_at)

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G, (k, r + 1), and g, (k,), of the neurons `rows`."""
        if self.subsample is None or self.passes == 0.0:
            return self.samples.pull(place, self.push, rows)
        pull, growth = self.subsample.pull(place, self.subsample_push, rows)
        return pull + self.correction[0][rows], growth + self.correction[1][rows]


class AlignmentStage:
    """Neurons do not interact yet, so each takes its own step: the push is that of zero outputs.

    `first_loss` is the mean loss of zero outputs, `growth_rate_bound` bounds an angle's growth.
    """

    def __init__(
        self, neurons: NeuronSystem, start: State, tolerance: float, counts: Counts
    ) -> None:
        self.neurons, self.tolerance = neurons, tolerance
        field, loss = neurons.field, neurons.loss
        zero = field.outputs(start[0], torch.zeros_like(start[1]))
        push = field.push(loss, zero, neurons.rate)
        self.first_loss = field.loss(loss, zero)
        pull: ConstantPull = (
            ConstantClusterPull(field, push)
            if isinstance(field, ClusterField)
            else SubsampledPull(field, push, tolerance)
        )
        first = 0.1 / float(push.abs().sum())
        self.independent = IndependentNeurons(pull, neurons.angles, first, tolerance, counts)
        slope = 0.5 if loss.name == "logistic" else 1.0
        self.growth_rate_bound = field.growth_rate_bound * neurons.rate * slope

    def advance(self, state: State, most: float) -> tuple[State, float] | None:
        """The state after a time of at most `most`, and that time; None where neurons interact."""
        largest = self._largest_output(state)
        span = min(most, self._safe_time(state))
        while largest < _DECOUPLED_OUTPUT_SHARE * self.tolerance:
            after = self.independent.advance(state, span)
            if self._largest_output(after) <= _REJECTED_OUTPUT_SHARE * self.tolerance:
                return after, span
            span, largest = 0.5 * span, 0.0
        return None

    def is_at_rest(self, state: State) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        place, theta = state
        pull, growth = self.independent.field.pull(place, torch.arange(len(theta)))
        return not bool(growth.any()) and not bool(tangential(pull, place).any())

    def _safe_time(self, state: State) -> float:
        """A time in which the output can't grow to the tolerance: sinh(2 theta) < exp(2 theta)."""
        log_total = float(torch.logsumexp(self.neurons.angles.log_ceiling(state[1]), 0))
        wait = (math.log(self.tolerance) - log_total) / (2.0 * self.growth_rate_bound)
        return max(wait, 0.05 / self.growth_rate_bound)

    def _largest_output(self, state: State) -> float:
        return float(self.neurons.outputs(state).abs().max())
