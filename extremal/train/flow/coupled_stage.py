"""The second stage: neurons interact, until those that matter have gathered in few directions.

Which neurons will ever matter is found by a preview, a rough run to the end of the flow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.neuron_dynamics import NeuronSystem
from extremal.train.flow.neuron_groups import Groups, groups_within_tolerance
from extremal.train.flow.runge_kutta import Counts, State, Stepper

# A preview starts on so many samples, and adds at most so many that it leaves unfitted.
_PREVIEW_SAMPLES = 1000
# A preview ends after so many steps even if some sample is not fitted.
_MOST_PREVIEW_STEPS = 400
# A sample with this margin hardly pulls any more, so a preview ends once all have it.
_FITTED_MARGIN = 4.0
# A preview may err by so many times the tolerance of the flow.
_PREVIEW_TOLERANCE_FACTOR = 10.0
# So many previews are made, each with samples that the one before left unfitted.
_PREVIEW_ATTEMPTS = 3
# Groups are looked for again once the loss is this share of what it was the last time.
_CHECK_LOSS_RATIO = 0.7
# Groups are looked for again once the flow time has grown by this factor.
_CHECK_TIME_RATIO = 2.0
# Under known clusters neurons go on gathering while the loss is above this share of the first.
_GATHERING_LOSS_SHARE = 0.6
# Under known clusters neurons go on gathering until this many times the end of the alignment.
_GATHERING_TIME_FACTOR = 3.0
# The last stage waits until at most so many groups are left, or `_LATE_LOSS_SHARE` is reached.
_MOST_GROUPS = 400
# Once the loss is below this share of the first, the last stage takes any number of groups.
_LATE_LOSS_SHARE = 1e-3
# Neurons whose contributions sum to this share of the tolerance may be in no group.
_LEFT_OUT_TOLERANCE_SHARE = 0.1


def largest_future_shares(
    neurons: NeuronSystem, stepper: Stepper, until: float, share: Tensor
) -> Tensor:
    """The largest share of all contributions that each neuron will ever have, at least `share`.

    Found by a preview from where the stepper stands, which is left there, to the time `until`: with
    ten times the tolerance, and on a part of the samples. If samples outside the part are not
    fitted in the end, they join it, and it runs again. Once all samples are fitted, no neuron
    rises any more.
    """
    field = neurons.field
    if isinstance(field, ClusterField):
        return _preview(neurons, stepper, until, share, 1.0)[0]
    index = field.random_rows(_PREVIEW_SAMPLES)
    count = len(field) / len(index) * field.share[index]
    for _ in range(_PREVIEW_ATTEMPTS):
        part = replace(neurons, field=field.restricted(index, count))
        share, end = _preview(part, stepper, until, share, len(index) / len(field))
        margin = field.label * neurons.outputs(end)
        missing = (margin < 0.5 * _FITTED_MARGIN).double()
        missing[index] = 0.0
        more = torch.nonzero(missing).squeeze(1)
        if len(more) == 0:
            break
        more = more[torch.argsort(margin[more])][:_PREVIEW_SAMPLES]
        index = torch.cat([index, more])
        count = torch.cat([count, field.share[more]])
    return share


def _preview(
    neurons: NeuronSystem, stepper: Stepper, until: float, share: Tensor, size: float
) -> tuple[Tensor, State]:
    """The largest shares on the way to the end, and the state there.

    `size` is that of the neurons' field as a share of the whole one, by which its right-hand sides
    are counted.
    """
    counts, field = Counts(), neurons.field
    tolerance = _PREVIEW_TOLERANCE_FACTOR * stepper.tolerance
    ahead = Stepper(neurons.velocity, stepper.state, stepper.time, tolerance, counts, stepper.size)
    while ahead.time < until and counts.steps < _MOST_PREVIEW_STEPS:
        ahead.advance(until)
        contribution = neurons.angles.contribution(ahead.state[1]).abs()
        share = torch.maximum(share, contribution / contribution.sum())
        if float((field.label * neurons.outputs(ahead.state)).min()) > _FITTED_MARGIN:
            break
    stepper.counts.right_hand_sides += size * counts.right_hand_sides
    return share, ahead.state


class CoupledStage:
    """All neurons from where `stepper` stands; `begun` is when they began to interact.

    With `known` clusters, whose pull costs little, neurons are left more time to gather.
    """

    def __init__(
        self,
        neurons: NeuronSystem,
        stepper: Stepper,
        until: float,
        first_loss: float,
        *,
        begun: float,
        known: bool,
    ) -> None:
        self.neurons, self.stepper, self.until = neurons, stepper, until
        self.first_loss, self.begun, self.known = first_loss, begun, known
        self._checked_share, self._checked_time = 1.0, stepper.time

    @property
    def state(self) -> State:
        """Place (h, r + 1) and theta (h,) at the time reached."""
        return self.stepper.state

    def advance(self, limit: float) -> bool:
        """Take one step, not beyond `limit`; whether it is time to look for groups again."""
        self.stepper.advance(limit)
        neurons, time = self.neurons, self.stepper.time
        share = neurons.field.loss(neurons.loss, neurons.outputs(self.state)) / self.first_loss
        fallen = share <= _CHECK_LOSS_RATIO * self._checked_share
        due = fallen or time >= _CHECK_TIME_RATIO * self._checked_time
        if due:
            self._checked_share, self._checked_time = min(share, self._checked_share), time
        return due

    def groups_if_few(self) -> tuple[Groups, float] | None:
        """The groups to go on with, and what they change on the field; None if there are too many.

        What neurons contribute now says early if there are. Which ones may be left out depends on
        what they will contribute on the way to `until`.
        """
        early = self.stepper.time < _GATHERING_TIME_FACTOR * self.begun
        if self.known and self._checked_share > _GATHERING_LOSS_SHARE and early:
            return None
        most = math.inf if self._checked_share <= _LATE_LOSS_SHARE else _MOST_GROUPS
        contribution = self.neurons.angles.contribution(self.state[1])
        share = contribution.abs() / contribution.abs().sum()
        whole = self.neurons.outputs(self.state)
        if len(self._groups(whole, contribution, share)[0].leaders) > most:
            return None
        weight = largest_future_shares(self.neurons, self.stepper, self.until, share)
        groups, change = self._groups(whole, contribution, weight)
        return None if len(groups.leaders) > most else (groups, change)

    def _groups(self, whole: Tensor, contribution: Tensor, weight: Tensor) -> tuple[Groups, float]:
        """The groups of neurons that weigh `weight` (h,), and the change of the outputs `whole`."""
        (place, theta), field = self.state, self.neurons.field
        return groups_within_tolerance(
            whole,
            lambda groups: field.merged(groups, place),
            place,
            contribution,
            theta,
            weight,
            tolerance=self.stepper.tolerance,
            left_out_share=_LEFT_OUT_TOLERANCE_SHARE * self.stepper.tolerance,
            off_subspace_ratio=field.off_subspace_ratio,
        )
