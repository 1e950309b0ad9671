"""Neurons that feel each other, and a rough run ahead to see which of them will ever matter."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.train.aligning import turn
from extremal.train.closure import Clusters
from extremal.train.loss import Loss
from extremal.train.polar import Angles
from extremal.train.runge_kutta import Counts, Side, State, Stepper
from extremal.train.samples import Samples

_PART = 1000  # samples for running ahead
_STEPS = 400  # that it takes at most
_FITTED = 4.0  # the margin from which on a sample hardly pulls
_ROUGH = 10.0  # tolerances
_AGAIN = 3  # parts of the samples that are tried


def together(field: Clusters | Samples, angles: Angles, loss: Loss, rate: float) -> Side:
    """The right-hand side for (place, theta) of all neurons, with the outputs they have."""

    def side(state: State) -> State:
        outputs = field.outputs(state[0], angles.contribution(state[1]))
        push = field.push(loss, outputs, rate)
        return turn(*field.pull(state[0], push), state, angles)

    return side


def run_ahead(
    field: Clusters | Samples,
    angles: Angles,
    loss: Loss,
    rate: float,
    stepper: Stepper,
    weight: Tensor,
    until: float,
) -> Tensor:
    """The largest share of all contributions that each neuron ever has, from `weight` (h,) on.

    Roughly: ten times the tolerance, and a part of the samples. Once all of them are fitted no
    neuron rises any more. If other samples are not fitted then, they join the part, and it runs
    again.
    """
    if isinstance(field, Clusters):
        return _rises(field, angles, loss, rate, stepper, weight, until, 1.0)[0]
    index = field.some(_PART)
    share = len(field) / len(index) * field.share[index]
    for _ in range(_AGAIN):
        part = field.part(index, share)
        size = len(index) / len(field)
        weight, end = _rises(part, angles, loss, rate, stepper, weight, until, size)
        margin = field.label * field.outputs(end[0], angles.contribution(end[1]))
        missing = (margin < 0.5 * _FITTED).double()
        missing[index] = 0.0
        more = torch.nonzero(missing).squeeze(1)
        if len(more) == 0:
            break
        more = more[torch.argsort(margin[more])][:_PART]
        index = torch.cat([index, more])
        share = torch.cat([share, field.share[more]])
    return weight


def _rises(
    field: Clusters | Samples,
    angles: Angles,
    loss: Loss,
    rate: float,
    stepper: Stepper,
    weight: Tensor,
    until: float,
    size: float,
) -> tuple[Tensor, State]:
    """The largest shares of contributions on the way to the end, and the state there.

    `size` is that of the field as a share of the whole one, for the count of right-hand sides.
    """
    counts = Counts()
    tolerance = _ROUGH * stepper.tolerance
    side = together(field, angles, loss, rate)
    ahead = Stepper(side, stepper.state, stepper.time, tolerance, counts, stepper.size)
    while ahead.time < until and counts.steps < _STEPS:
        ahead.advance(until)
        contribution = angles.contribution(ahead.state[1])
        weight = torch.maximum(weight, contribution.abs() / contribution.abs().sum())
        if float((field.label * field.outputs(ahead.state[0], contribution)).min()) > _FITTED:
            break
    stepper.counts.sides += size * counts.sides
    return weight, ahead.state
