"""The second stage: neurons interact, until few of them are left that will ever matter.

Which ones will is found by a preview, a run of all neurons to the end of the flow on a part of the
samples. The few that are to stand for all are run ahead as well, and are taken only where their
outputs stay within some tolerances of those of all neurons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.train.flow.chebyshev import ChebyshevStepper
from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.fitting_stage import FittingStage, GroupsCheck
from extremal.train.flow.flow_stage import FlowStage, StagePlan
from extremal.train.flow.neuron_dynamics import NeuronSystem
from extremal.train.flow.neuron_groups import (
    Groups,
    group_neurons,
    heaviest_neurons,
)
from extremal.train.flow.runge_kutta import (
    DORMAND_PRINCE_54,
    AdaptiveStepper,
    Counts,
    RungeKuttaStepper,
    State,
    largest_or_infinite,
)

# A preview starts on so many samples at least, and adds at most so many that it leaves unfitted.
_PREVIEW_SAMPLES = 1000
# It starts on as many samples as make so many products with all neurons.
_PREVIEW_PRODUCTS = 2_000_000
# Neurons that come to anything in it are run on as many samples as make so many products.
_CANDIDATE_PRODUCTS = 10_000_000
# Those that together come to this share of the tolerance, of all contributions, are not run again.
_CANDIDATE_TOLERANCE_SHARE = 1e-3
# A preview ends after so many steps even if some sample is not fitted; it then drops nobody.
_MOST_PREVIEW_STEPS = 1000
# The few are run ahead with at most so many steps.
_MOST_CHECK_STEPS = 2000
# The few, which cost little, are run ahead with errors of this share of the tolerance.
_CHECK_TOLERANCE_SHARE = 0.1
# The few are compared with all neurons whenever the loss has become this share of what it was.
_COMPARED_LOSS_RATIO = 0.5
# A sample with this margin hardly pulls any more, so a preview ends once all have it.
_FITTED_MARGIN = 4.0
# So many previews are made, each with samples that the one before left unfitted.
_PREVIEW_ATTEMPTS = 3
# The few are looked for again once the loss is this share of what it was the last time.
_CHECK_LOSS_RATIO = 0.7
# The few are looked for again once the flow time has grown by this factor.
_CHECK_TIME_RATIO = 2.0
# Under known clusters neurons go on gathering while the loss is above this share of the first.
_GATHERING_LOSS_SHARE = 0.6
# Under known clusters neurons go on gathering until this many times the end of the alignment.
_GATHERING_TIME_FACTOR = 3.0
# The last stage waits until at most so many groups are left, or `_LATE_LOSS_SHARE` is reached.
_MOST_GROUPS = 400
# Once the loss is below this share of the first, the last stage takes any number of groups.
_LATE_LOSS_SHARE = 1e-3
# These shares of the tolerance, of all contributions, are left out of the few in turn.
_LEFT_OUT_TOLERANCE_SHARES = (0.1, 1e-4)
# For p = 1 neurons that samples see so far apart are one of the few, in turn.
_MERGED_DISTANCES = (0.3, 0.1, 0.03)
# The few may end so many tolerances from all neurons, whose own run errs by about one.
_MOST_MISSED_TOLERANCES = 10.0
# With so few products of neurons and samples all neurons are followed to the end: it is faster.
_FEW_PRODUCTS = 200_000
# So many times as many where p > 1: for p = 1 neurons are merged, which buys more time.
_FEW_PRODUCTS_FACTOR = 2.5
# The share of the tolerance where all neurons are followed to the end.
_ALL_NEURONS_TOLERANCE_SHARE = 0.03
# The subspace is looked at again once the loss is this share of what it was the last time.
_WATCHED_LOSS_RATIO = 0.75
# The same once the flow time has grown by this factor.
_WATCHED_TIME_RATIO = 1.5
# Every so many steps it is asked whether late ones are bound by stability.
_STEPS_BETWEEN_STIFFNESS_CHECKS = 100
# They are where a step times the largest rate is above this; the pair's limit is 3.3.
_STIFF_STEP = 2.0
# Chebyshev steps pay where so many steps of the pair are left.
_LEAST_STIFF_STEPS = 1000


@dataclass(frozen=True, eq=False)
class Preview:
    """A run of neurons ahead: what each will contribute, and where they are on the way."""

    system: NeuronSystem  # all neurons, on the samples that were used
    run: NeuronSystem  # the neurons that were run, on all samples
    samples_share: float  # which part of all samples was used
    largest_share: Tensor  # (h,): of all contributions, that a neuron ever has
    outputs: dict[float, Tensor]  # f at the samples, at some times; the last is the end
    end: State  # of the neurons that were run
    steps: int
    finished: bool  # whether it came to its end, not just to its last step

    def check(self, groups: Groups, start: AdaptiveStepper, tolerance: float) -> GroupsCheck:
        """The groups alone beside all neurons on the way, in the same field.

        What they miss is infinite where they need too many steps.
        """
        few, state = self.system.of_groups(groups, start.state)
        counts = Counts()
        run = RungeKuttaStepper(
            few.velocity,
            state,
            start.time,
            _CHECK_TOLERANCE_SHARE * tolerance,
            counts,
            start.size,
            tableau=DORMAND_PRINCE_54,
        )
        end, gap = max(self.outputs), 0.0
        for time, whole in self.outputs.items():
            while run.time < time and counts.steps < _MOST_CHECK_STEPS:
                run.advance(end)
            if run.time < time:
                gap = math.inf
                break
            apart = (few.outputs(run.state_at(time)) - whole).abs().max()
            gap = largest_or_infinite([gap, float(apart)])
        part = self.samples_share * len(groups.leaders) / len(groups.owner)
        start.counts.right_hand_sides += part * counts.right_hand_sides
        largest = max(float(whole.abs().max()) for whole in self.outputs.values())
        return GroupsCheck(gap / max(largest, 1e-300), len(self.system.field.label), end)


def previewed(plan: StagePlan, stepper: AdaptiveStepper, share: Tensor) -> Preview:
    """A preview from where the stepper stands, which is left there, to the plan's horizon.

    `share` (h,) are the shares of all contributions that neurons have now. All neurons are run on a
    part of the samples. Which of two neurons wins a centre may depend on the others, so that those
    that come to anything are run on all samples as well; not for p = 1, where no neuron wins alone.
    """
    system, tolerance = plan.system, plan.tolerance
    field, state = system.field, stepper.state
    if isinstance(field, ClusterField):
        return _run_ahead(plan, system, system, stepper, state, share, 1.0)
    rough = _run_on_a_part(plan, stepper, share)
    if not rough.finished or rough.samples_share == 1.0 or field.p == 1.0:
        return rough
    contribution = system.invariants.contribution(state[1])
    left_out_share = _CANDIDATE_TOLERANCE_SHARE * tolerance
    candidates = heaviest_neurons(contribution, state[1], rough.largest_share, left_out_share)
    missed = rough.check(candidates, stepper, tolerance).missed
    if missed > _MOST_MISSED_TOLERANCES * tolerance:
        return replace(rough, finished=False)
    leaders = torch.tensor(candidates.leaders)
    index, count = field.random_part(_CANDIDATE_PRODUCTS // len(leaders))
    few, places = system.of_groups(candidates, state)
    seen = replace(few, field=few.field.restricted(index, count))  # type: ignore[union-attr]
    part = len(index) / len(field)
    size = part * len(leaders) / len(contribution)
    found = _run_ahead(plan, seen, few, stepper, places, share[leaders], size)
    return replace(
        found,
        system=replace(system, field=field.restricted(index, count)),
        samples_share=part,
        largest_share=torch.zeros_like(share).index_copy_(0, leaders, found.largest_share),
        steps=rough.steps + found.steps,
    )


def _run_on_a_part(plan: StagePlan, stepper: AdaptiveStepper, share: Tensor) -> Preview:
    """A preview of all neurons on a part of the samples.

    If others are not fitted in the end, they join it, and it runs again. Once all samples are
    fitted, no neuron rises any more.
    """
    system, field = plan.system, plan.system.field
    assert not isinstance(field, ClusterField)
    index, count = field.random_part(max(_PREVIEW_SAMPLES, _PREVIEW_PRODUCTS // len(share)))
    steps = 0
    for _ in range(_PREVIEW_ATTEMPTS):
        seen = replace(system, field=field.restricted(index, count))
        size = len(index) / len(field)
        found = _run_ahead(plan, seen, system, stepper, stepper.state, share, size)
        share, steps = found.largest_share, steps + found.steps
        margin = field.label * system.outputs(found.end)
        missing = (margin < 0.5 * _FITTED_MARGIN).double()
        missing[index] = 0.0
        more = torch.nonzero(missing).squeeze(1)
        if len(more) == 0 or not found.finished:
            break
        more = more[torch.argsort(margin[more])][:_PREVIEW_SAMPLES]
        index = torch.cat([index, more])
        count = torch.cat([count, field.share[more]])
    return replace(found, steps=steps)


def _run_ahead(
    plan: StagePlan,
    seen: NeuronSystem,
    run: NeuronSystem,
    stepper: AdaptiveStepper,
    state: State,
    share: Tensor,
    size: float,
) -> Preview:
    """Some neurons on the samples `seen`, from a `state` at the stepper's time to the end.

    At the tolerance itself: neurons near their starts are led by cosines of 1/sqrt(dim), which
    larger errors would decide. `run` are the same neurons on all samples, and `size` is that of
    `seen` as a share of the whole flow, by which its right-hand sides are counted.
    """
    counts, field = Counts(), seen.field
    ahead = RungeKuttaStepper(
        seen.velocity, state, stepper.time, plan.tolerance, counts, stepper.size
    )
    outputs: dict[float, Tensor] = {}
    last_loss = math.inf
    finished = False
    while not finished and counts.steps < _MOST_PREVIEW_STEPS:
        ahead.advance(plan.horizon)
        contribution = seen.invariants.contribution(ahead.state[1]).abs()
        share = torch.maximum(share, contribution / contribution.sum())
        found = seen.outputs(ahead.state)
        fitted = float((field.label * found).min()) > _FITTED_MARGIN
        finished = fitted or ahead.time >= plan.horizon
        loss = field.loss(seen.loss, found)
        if loss < _COMPARED_LOSS_RATIO * last_loss or finished:
            outputs[ahead.time], last_loss = found, loss
    stepper.counts.right_hand_sides += size * counts.right_hand_sides
    return Preview(seen, run, size, share, outputs, ahead.state, counts.steps, finished)


class CoupledStage(FlowStage):
    """All neurons, from the `state` and time at which they begin to interact."""

    def __init__(self, plan: StagePlan, state: State, time: float, step_size: float) -> None:
        super().__init__(plan)
        self.begun = time
        factor = 1.0 if plan.system.field.p == 1.0 else _FEW_PRODUCTS_FACTOR
        few = len(state[1]) * len(plan.data) <= factor * _FEW_PRODUCTS
        self._goes_to_the_end = few and not plan.known
        tolerance = plan.tolerance * (
            _ALL_NEURONS_TOLERANCE_SHARE if self._goes_to_the_end else 1.0
        )
        self.stepper: RungeKuttaStepper | ChebyshevStepper = RungeKuttaStepper(
            plan.system.velocity, state, time, tolerance, plan.counts, step_size
        )
        self._checked_share, self._checked_time = 1.0, time
        self._watched_share, self._watched_time = 1.0, time
        self._preview_steps, self._steps_since_preview = 0, 0
        self._fits, self._steps_since_stiffness_check = False, 0
        self.residual = 0.0  # the largest share of a gradient that was seen off the subspace
        self._widen(plan.system, state)

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.stepper.time

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return self.stepper.is_at_rest

    def advance(self, limit: float) -> FlowStage | None:
        """Now and then look at the subspace and for the few, then take one step up to `limit`.

        Looks come before the step, so that the states within it stay known.
        """
        if self._is_watch_due():
            self._widen(self.plan.system, self.stepper.state)
        if self._is_check_due():
            fitting = self.fitting_if_few()
            if fitting is not None:
                return fitting
        self._stabilise_if_stiff()
        self.stepper.advance(limit)
        place, theta = self.stepper.state
        self.stepper.state = (unit_rows(place), theta)
        self._steps_since_preview += 1
        return None

    def _stabilise_if_stiff(self) -> None:
        """Go on in Chebyshev steps where stability bounds many steps to come.

        Neurons that slide along kinks (p = 1) fall back onto them at a rate that stays while
        everything else slows down, and a pair of Runge & Kutta must follow it to the end.
        """
        many_left = self.plan.horizon - self.time > _LEAST_STIFF_STEPS * self.stepper.size
        if not (self._fits and many_left and isinstance(self.stepper, RungeKuttaStepper)):
            self._steps_since_stiffness_check = 0
            return
        self._steps_since_stiffness_check += 1
        if self._steps_since_stiffness_check < _STEPS_BETWEEN_STIFFNESS_CHECKS:
            return
        self._steps_since_stiffness_check = 0
        stabilised = ChebyshevStepper(
            self.plan.system.velocity,
            self.stepper.state,
            self.time,
            self.stepper.tolerance,
            self.plan.counts,
        )
        if self.stepper.size * stabilised.rate > _STIFF_STEP:
            self.stepper = stabilised

    def _is_watch_due(self) -> bool:
        """Whether the subspace is to be looked at again."""
        field, share = self.plan.system.field, self._watched_share
        if isinstance(field, ClusterField) or field.is_whole:
            return False
        now = self._loss_share()
        due = now <= _WATCHED_LOSS_RATIO * share
        due |= self.time >= _WATCHED_TIME_RATIO * self._watched_time
        if due:
            self._watched_share, self._watched_time = min(now, share), self.time
        return due

    def _is_check_due(self) -> bool:
        """Whether the few are to be looked for again; previews take no more steps than the flow."""
        waits = self._steps_since_preview < self._preview_steps
        if waits or self._goes_to_the_end or self._steps_since_preview == 0:
            return False
        now = self._loss_share()
        due = now <= _CHECK_LOSS_RATIO * self._checked_share
        due |= self.time >= _CHECK_TIME_RATIO * self._checked_time
        if due:
            self._checked_share, self._checked_time = min(now, self._checked_share), self.time
        return due

    def _loss_share(self) -> float:
        """The loss as a share of the first one."""
        system = self.plan.system
        return (
            system.field.loss(system.loss, system.outputs(self.stepper.state))
            / self.plan.zero_output_loss
        )

    def _widen(self, system: NeuronSystem, state: State) -> bool:
        """Follow all neurons in more dimensions where some at a state are pulled off the present.

        What pulls changes while the data are fitted: first the large groups of samples, and then
        those whose directions hold a small part of the data.
        """
        field, own = system.field, self.plan.system.field
        if isinstance(field, ClusterField) or isinstance(own, ClusterField) or own.is_whole:
            return False
        push = field.push(system.loss, system.outputs(state), 1.0)
        off = field.off_frame(state[0], system.invariants.contribution(state[1]), push)
        share = float(torch.linalg.vector_norm(off, dim=1).max())
        self.residual = max(self.residual, share)
        if share <= own.most_off:
            return False
        place, theta = self.stepper.state
        wider, found = own.widened(place, off)
        self.plan = replace(self.plan, system=replace(self.plan.system, field=wider))
        self.stepper = self.stepper.restarted(self.plan.system.velocity, (found, theta))
        return True

    def report(self) -> dict[str, float]:
        """What the stage has left of the neurons, all, and how well the subspace held them."""
        return super().report() | {"residual": self.residual}

    def tighten(self) -> None:
        """Go on with smaller errors, and let the next stage do so as well."""
        self._fits = True
        assert isinstance(self.stepper, RungeKuttaStepper)  # it is stabilised later
        self.stepper.tolerance, self.stepper.tableau = self.plan.late_tolerance, DORMAND_PRINCE_54

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), at a time within the last step."""
        return self.plan.outputs(self._state_at(time))

    def neurons_at(self, time: float) -> State:
        """Directions (h, dim) and theta (h,) of all neurons at a time within the last step."""
        place, theta = self._state_at(time)
        return self.plan.system.field.frame.lift(place), theta

    def _state_at(self, time: float) -> State:
        place, theta = self.stepper.state_at(time)
        return unit_rows(place), theta

    def fitting_if_few(self) -> FittingStage | None:
        """The last stage, if few neurons are left that will ever matter."""
        early = self.time < _GATHERING_TIME_FACTOR * self.begun
        gathering = self.plan.known and self._checked_share > _GATHERING_LOSS_SHARE and early
        ended = self.time >= self.plan.horizon  # so that nothing is left to run ahead to
        skipped = gathering or ended or self._goes_to_the_end
        found = None if skipped else self._checked_groups()
        if found is None:
            return None
        fitting = FittingStage(self.plan, self.stepper, *found, residual=self.residual)
        if self._fits:
            fitting.tighten()
        return fitting

    def _checked_groups(self) -> tuple[Groups, float, GroupsCheck] | None:
        """The groups to go on with, what they change now, and what they were seen to miss later.

        None where they are too many, or miss too much, or where a preview did not come to its end.
        What neurons contribute now says early if they are too many. Which ones may be left out
        depends on what they will contribute.
        """
        most = math.inf if self._checked_share <= _LATE_LOSS_SHARE else _MOST_GROUPS
        contribution = self.plan.system.invariants.contribution(self.stepper.state[1])
        share = contribution.abs() / contribution.abs().sum()
        coarsest = next(self._candidates(contribution, share))
        if len(coarsest.leaders) > most:
            return None
        preview = previewed(self.plan, self.stepper, share)
        while preview.finished and self._widen(preview.run, preview.end):
            preview = previewed(self.plan, self.stepper, share)
        self._preview_steps, self._steps_since_preview = preview.steps, 0
        if not preview.finished:
            return None
        for groups in self._candidates(contribution, preview.largest_share):
            if len(groups.leaders) > most:
                return None
            check = preview.check(groups, self.stepper, self.plan.tolerance)
            if check.missed <= _MOST_MISSED_TOLERANCES * self.plan.tolerance:
                return groups, self._change(groups), check
        return None

    def _candidates(self, contribution: Tensor, weight: Tensor) -> Iterator[Groups]:
        """Groups of neurons that weigh `weight` (h,), the fewest first.

        For p > 1 each is one neuron. For p = 1 neurons that have met are one group: they gather in
        few directions, and many of them matter.
        """
        place, theta = self.stepper.state
        first, *more = (share * self.plan.tolerance for share in _LEFT_OUT_TOLERANCE_SHARES)
        if self.plan.system.field.p == 1.0:
            distance = self.plan.system.field.distances(place)
            for reach in _MERGED_DISTANCES:
                yield group_neurons(
                    distance, contribution, theta, weight, left_out_share=first, reach=reach
                )
        else:
            yield heaviest_neurons(contribution, theta, weight, first)
        for left_out_share in more:
            yield heaviest_neurons(contribution, theta, weight, left_out_share)

    def _change(self, groups: Groups) -> float:
        """How much groups change an output now, over the largest, or over 1 where that is less."""
        system, state = self.plan.system, self.stepper.state
        few, places = system.of_groups(groups, state)
        whole = system.outputs(state)
        return float((few.outputs(places) - whole).abs().max() / whole.abs().max().clamp(min=1.0))
