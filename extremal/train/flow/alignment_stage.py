"""The first stage of the flow: the network's output is negligible, so neurons do not interact.

The push of the data is then constant, and each neuron takes its own steps (`IndependentNeurons`).
`AlignmentStage` says for how long the output stays negligible.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.train.flow.coupled_stage import CoupledStage
from extremal.train.flow.flow_stage import FlowStage, StagePlan
from extremal.train.flow.neuron_dynamics import (
    ConstantPull,
    NeuronInvariants,
    polar_velocity,
    tangential,
)
from extremal.train.flow.runge_kutta import BOGACKI_SHAMPINE_32, Counts, State, stepped

# Every so many rounds of steps the neurons are checked for having come to rest at a kink.
_ROUNDS_BETWEEN_REST_CHECKS = 16
# Neurons are independent while the largest output is below this share of its tolerance.
_DECOUPLED_OUTPUT_SHARE = 0.3
# A step after which the largest output exceeds this many tolerances was too long.
_REJECTED_OUTPUT_SHARE = 2.0


class IndependentNeurons:
    """Neurons under a constant push, each with its own step size, at first `first_size`."""

    def __init__(
        self,
        field: ConstantPull,
        invariants: NeuronInvariants,
        first_size: float,
        tolerance: float,
        counts: Counts,
    ) -> None:
        self.field, self.invariants = field, invariants
        self.tolerance, self.counts = tolerance, counts
        self.step_size = torch.full_like(invariants.log_scale, first_size)
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
            self.counts.require_more()
            here = (place[active], theta[active])
            self.field.refresh(here[0], left[active], active)
            invariants = self.invariants.take(active)
            velocity = self._velocity_of(active, invariants)
            pull, growth = self.field.pull(here[0], active)
            first = polar_velocity(pull, growth, here, invariants)
            if not bool(torch.isfinite(pull).all()):
                raise ArithmeticError("the pull of the data is not finite; make the data smaller")
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

    def _velocity_of(self, rows: Tensor, invariants: NeuronInvariants) -> Callable[[State], State]:
        """The right-hand side for the neurons `rows`."""
        return lambda state: polar_velocity(*self.field.pull(state[0], rows), state, invariants)

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
    error = torch.maximum(miss[0].abs().amax(1), miss[1].abs())
    # Powers overflow in a step that is far too long: what is left of it is not a number.
    return new, torch.nan_to_num(error, nan=torch.inf, posinf=torch.inf)


class AlignmentStage(FlowStage):
    """Neurons do not interact yet, and each takes its own steps: outputs are taken as zero.

    It ends once an output reaches a share of the tolerance, long before the loss has moved.
    """

    ended_phase = "alignment ends"
    dense = False
    interacts = False

    def __init__(self, plan: StagePlan, start: State, time: float) -> None:
        super().__init__(plan)
        system = plan.system
        zero = torch.zeros_like(system.field.label, dtype=torch.float64)
        push = system.field.push(system.loss, zero, system.rate)
        self.independent = IndependentNeurons(
            system.field.constant_pull(push, plan.alignment_tolerance),
            system.invariants,
            0.1 / float(push.abs().sum()),
            plan.alignment_tolerance,
            plan.counts,
        )
        self._longest_sample = float(torch.linalg.vector_norm(plan.data.x, dim=1).max())
        self.state, self._time = start, time
        self._last_start = (start, time)  # of the last step

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self._time

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        place, theta = self.state
        pull, growth = self.independent.field.pull(place, torch.arange(len(theta)))
        return not bool(growth.any()) and not bool(tangential(pull, place).any())

    def advance(self, limit: float) -> FlowStage | None:
        """Go forward while the outputs are negligible; then the stage in which they count."""
        left = limit - self._time
        largest = self._largest_output(self.state)
        span = min(left, self._safe_time())
        tolerance = self.plan.alignment_tolerance
        while largest < _DECOUPLED_OUTPUT_SHARE * tolerance:
            after = self.independent.advance(self.state, span)
            if (
                self._largest_output(after)
                <= _REJECTED_OUTPUT_SHARE * self.plan.alignment_tolerance
            ):
                self._last_start = (self.state, self._time)
                self.state = after
                self._time = limit if span == left else self._time + span
                return None
            span, largest = 0.5 * span, 0.0
        size = float(self.independent.step_size.median())
        coupled = CoupledStage(self.plan, self.state, self._time, size)
        return coupled.fitting_if_few() or coupled

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), at a time within the last step."""
        return self.plan.outputs(self._state_at(time))

    def neurons_at(self, time: float) -> State:
        """Directions (h, dim) and theta (h,) of all neurons at a time within the last step."""
        place, theta = self._state_at(time)
        return self.plan.system.field.frame.lift(place), theta

    def _state_at(self, time: float) -> State:
        """The state at a time within the last step, by taking a part of that step once more."""
        start, begun = self._last_start
        if time >= self._time or time <= begun:
            return self.state if time >= self._time else start
        # It is no step of the flow, so that `max_steps` does not end it.
        replayed = copy.copy(self.independent)
        replayed.counts = Counts()
        return replayed.advance(start, time - begun)

    def _safe_time(self) -> float:
        """A time in which the output can't grow to the tolerance: sinh(2 theta) < exp(2 theta)."""
        bound = self.plan.growth_rate_bound
        log_total = float(
            torch.logsumexp(self.plan.system.invariants.log_ceiling(self.state[1]), 0)
        )
        wait = (math.log(self.plan.alignment_tolerance) - log_total) / (2.0 * bound)
        return max(wait, 0.05 / bound)

    def _largest_output(self, state: State) -> float:
        """The largest |f| on the data, or a bound on it where that is small enough: it is cheap."""
        contribution = self.plan.system.invariants.contribution(state[1]).abs().sum()
        bound = float(contribution) * self._longest_sample**self.plan.system.field.p
        if bound < _DECOUPLED_OUTPUT_SHARE * self.plan.alignment_tolerance:
            return bound
        return float(self.plan.system.outputs(state).abs().max())
