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
    neuron rises any more.
    """
    part = field if isinstance(field, Clusters) else field.part(_PART)
    counts = Counts()
    ahead = Stepper(
        together(part, angles, loss, rate),
        stepper.state,
        stepper.time,
        _ROUGH * stepper.tolerance,
        counts,
        stepper.size,
    )
    while ahead.time < until and counts.steps < _STEPS:
        ahead.advance(until)
        contribution = angles.contribution(ahead.state[1])
        weight = torch.maximum(weight, contribution.abs() / contribution.abs().sum())
        if float((part.label * part.outputs(ahead.state[0], contribution)).min()) > _FITTED:
            break
    stepper.counts.sides += counts.sides * len(part.label) / len(field.label)
    return weight
