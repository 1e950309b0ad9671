"""Neurons that feel each other: what they put out together, and how that moves each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.models.activations import relu_power
from extremal.train.aligning import turn
from extremal.train.flow.cluster_field import Clusters
from extremal.train.flow.neuron_dynamics import Angles
from extremal.train.flow.runge_kutta import State
from extremal.train.flow.sample_field import Samples
from extremal.train.losses import Loss

_BLOCK = 4096  # points at a time


@dataclass(frozen=True, eq=False)
class Together:
    """What the flow of all neurons is made of; their states are (place (h, r + 1), theta (h,)).

    `rate` is how much faster time runs than with the mean loss.
    """

    field: Clusters | Samples
    angles: Angles
    loss: Loss
    rate: float

    def outputs(self, state: State) -> Tensor:
        """f at the field's clusters (K,) or samples (n,)."""
        return self.field.outputs(state[0], self.angles.contribution(state[1]))

    def side(self, state: State) -> State:
        """The right-hand side, with the outputs that the neurons have."""
        push = self.field.push(self.loss, self.outputs(state), self.rate)
        return turn(*self.field.pull(state[0], push), state, self.angles)

    def at(self, x: Tensor, state: State) -> Tensor:
        """f at points (n, dim), whatever the field is, (n,)."""
        directions = self.field.frame.lift(state[0]).T.to(x.dtype)
        weight = self.angles.contribution(state[1]).to(x.dtype)
        parts = [relu_power(part @ directions, self.field.p) @ weight for part in x.split(_BLOCK)]
        return torch.cat(parts).double()
