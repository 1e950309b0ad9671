"""The second stage: neurons interact, until those that matter have gathered in few directions.

A rough run ahead to see which neurons will ever matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.neuron_dynamics import NeuronSystem
from extremal.train.flow.neuron_groups import Groups, groups_within_tolerance
from extremal.train.flow.runge_kutta import Counts, State, Stepper
from extremal.train.flow.sample_field import SampleField

_PART = 1000  # samples for running ahead
_STEPS = 400  # that it takes at most
_FITTED = 4.0  # the margin from which on a sample hardly pulls
_ROUGH = 10.0  # tolerances
_AGAIN = 3  # parts of the samples that are tried


@dataclass(frozen=True, eq=False)
class Ahead:
    """Neurons from where a stepper stands to the time `until`; the stepper stays where it is.

    Roughly: ten times the tolerance, and a part of the samples. Once all of them are fitted no
    neuron rises any more.
    """

    neurons: NeuronSystem
    stepper: Stepper
    until: float

    def largest_shares(self, share: Tensor) -> Tensor:
        """The largest share of all contributions that each neuron ever has, from `share` (h,) on.

        If samples outside the part are not fitted in the end, they join it, and it runs again.
        """
        field = self.neurons.field
        if isinstance(field, ClusterField):
            return self._rises(field, share, 1.0)[0]
        index = field.some(_PART)
        count = len(field) / len(index) * field.share[index]
        for _ in range(_AGAIN):
            share, end = self._rises(field.part(index, count), share, len(index) / len(field))
            margin = field.label * self.neurons.outputs(end)
            missing = (margin < 0.5 * _FITTED).double()
            missing[index] = 0.0
            more = torch.nonzero(missing).squeeze(1)
            if len(more) == 0:
                break
            more = more[torch.argsort(margin[more])][:_PART]
            index = torch.cat([index, more])
            count = torch.cat([count, field.share[more]])
        return share

    def _rises(
        self, field: ClusterField | SampleField, share: Tensor, size: float
    ) -> tuple[Tensor, State]:
        """The largest shares on the way to the end in that field, and the state there.

        `size` is that of the field as a share of the whole one, for the count of right-hand sides.
        """
        counts, start = Counts(), self.stepper
        neurons = replace(self.neurons, field=field)
        tolerance = _ROUGH * start.tolerance
        ahead = Stepper(neurons.side, start.state, start.time, tolerance, counts, start.size)
        while ahead.time < self.until and counts.steps < _STEPS:
            ahead.advance(self.until)
            contribution = neurons.angles.contribution(ahead.state[1]).abs()
            share = torch.maximum(share, contribution / contribution.sum())
            if float((field.label * neurons.outputs(ahead.state)).min()) > _FITTED:
                break
        start.counts.sides += size * counts.sides
        return share, ahead.state


_FALLEN = 0.7  # of the loss at the last look: time to look anew
_LATER = 2.0  # times the time of the last look: too
_EARLY, _WAIT = 0.6, 3.0  # of the first loss, and times the alignment: clusters gather until then
_MANY = 400  # directions that the last stage takes at most, while the loss is above _LATE
_LATE = 1e-3  # of the first loss
_LEAVE = 0.1  # of the tolerance: the share of all contributions that no group need have


class CoupledStage:
    """All neurons from where `stepper` stands; `begun` is when their outputs began to count.

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
        self._looked, self._look_time = 1.0, stepper.time

    @property
    def state(self) -> State:
        """Place (h, r + 1) and theta (h,) at the time reached."""
        return self.stepper.state

    @property
    def still(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return not any(bool(part.any()) for part in self.stepper.slope)

    def advance(self, limit: float) -> bool:
        """Take one step, not beyond `limit`; whether the loss has fallen enough to look anew."""
        self.stepper.advance(limit)
        neurons, time = self.neurons, self.stepper.time
        share = neurons.field.loss(neurons.loss, neurons.outputs(self.state)) / self.first_loss
        due = share <= _FALLEN * self._looked or time >= _LATER * self._look_time
        if due:
            self._looked, self._look_time = min(share, self._looked), time
        return due

    def few(self) -> tuple[Groups, float] | None:
        """The groups to go on with, and what they change on the field; None if there are too many.

        What neurons contribute now says early if there are. Which ones may be left out depends on
        what they will contribute on the way to `until`.
        """
        if self.known and self._looked > _EARLY and self.stepper.time < _WAIT * self.begun:
            return None
        most = math.inf if self._looked <= _LATE else _MANY
        contribution = self.neurons.angles.contribution(self.state[1])
        share = contribution.abs() / contribution.abs().sum()
        whole = self.neurons.outputs(self.state)
        if len(self._groups(whole, contribution, share)[0].leaders) > most:
            return None
        weight = Ahead(self.neurons, self.stepper, self.until).largest_shares(share)
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
            leave=_LEAVE * self.stepper.tolerance,
            thin=field.thin,
        )
