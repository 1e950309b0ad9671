"""A rough run ahead to see which neurons will ever matter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.train.flow.cluster_field import Clusters
from extremal.train.flow.runge_kutta import Counts, State, Stepper
from extremal.train.flow.sample_field import Samples
from extremal.train.together import Together

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

    neurons: Together
    stepper: Stepper
    until: float

    def largest_shares(self, share: Tensor) -> Tensor:
        """The largest share of all contributions that each neuron ever has, from `share` (h,) on.

        If samples outside the part are not fitted in the end, they join it, and it runs again.
        """
        field = self.neurons.field
        if isinstance(field, Clusters):
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

    def _rises(self, field: Clusters | Samples, share: Tensor, size: float) -> tuple[Tensor, State]:
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
