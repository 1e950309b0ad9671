"""Networks that are certified in place of a large one, and what each point pays for that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from extremal.attack import Ball
from extremal.certify.neuron_clusters import NeuronClusters
from extremal.models import (
    PReLUNet,
    Reduction,
    ShallowRounding,
    TwoLayerForm,
    as_two_layer_form,
    inner_network,
    reduced_networks,
    shallow_rounding,
    with_readout_of,
)

# The relative changes of f that networks in place of a large one may make, coarsest first.
RELATIVE_TOLERANCES = (1e-3, 5e-4, 2.5e-4, 1e-4, 1e-5, 1e-7, 1e-9)
# A network of at most this many neurons is not replaced by a smaller one: nothing is gained.
MOST_UNREDUCED_NEURONS = 64
# A change is worth its cost where it leaves this many times fewer neurons.
LEAST_SAVING = 4
# A finer tolerance takes a coarser one's place where it needs at most this many times its neurons.
MOST_GROWTH = 1.25
# What a change may cost a point, as a share of its margin.
MOST_SLACK_SHARE = 0.004
# Norms are rounded up to powers of this number, so that few bounds are computed.
NORM_LEVEL = 1.02


@dataclass(frozen=True, eq=False)
class ReducedNetwork:
    """A network's form, and by what it was reduced: None for the network itself."""

    form: TwoLayerForm
    rounding: ShallowRounding  # of the network itself, as it runs
    reduction: Reduction | None = None
    outputs: int = 1  # how many outputs of the original a margin takes: 1 or 2

    @cached_property
    def gram(self) -> Tensor:
        """The inner products of all neurons' directions, (h, h)."""
        return self.form.directions @ self.form.directions.T

    @cached_property
    def clusters(self) -> NeuronClusters:
        """Its pairs of outputs for the closed form."""
        return NeuronClusters(self.form, self.gram, self.rounding)

    def slack(self, reach: Tensor) -> Tensor:
        """By how much the original's margin may be smaller at inputs of l2 norm <= reach (n,)."""
        if self.reduction is None:
            return torch.zeros_like(reach)
        power = (reach.clamp(1e-150, 1e150).log() / math.log(NORM_LEVEL)).ceil()
        levels, place = power.unique(return_inverse=True)
        bounds = [self.reduction.bound(NORM_LEVEL**level) for level in levels.tolist()]
        slack = self.outputs * torch.tensor(bounds, dtype=reach.dtype, device=reach.device)
        return torch.where(reach.isfinite(), slack[place], torch.inf)


def reduced_versions(net: nn.Module) -> tuple[ReducedNetwork, ...]:
    """Networks close to `net`, the smallest first and itself last.

    Of those that are about as wide as each other only the closest.
    """
    inner = inner_network(net)
    smaller: list[PReLUNet] = []
    if inner.hidden_bias is None and inner.width > MOST_UNREDUCED_NEURONS:
        for small in reduced_networks(inner, RELATIVE_TOLERANCES):
            if LEAST_SAVING * small.width > inner.width:
                break
            if smaller and small.width <= MOST_GROWTH * smaller[-1].width:
                smaller.pop()
            smaller.append(small)
    outputs = 1 if inner.outputs == 1 else 2
    rounding = shallow_rounding(net, inner.neurons.dtype)
    few = (
        ReducedNetwork(_form(with_readout_of(small, net)), rounding, small.reduction, outputs)
        for small in smaller
    )
    return (*few, ReducedNetwork(rounding.form, rounding))


def assigned_points(
    choices: tuple[ReducedNetwork, ...], x: Tensor, y: Tensor, far: Tensor
) -> Iterator[tuple[ReducedNetwork, Tensor, Tensor]]:
    """Each point's network: the first whose slack costs it little; with places and slacks.

    For points x (n, dim) and balls of l2 radius `far` (n,) around them; without the points that
    the network misclassifies. What a point is given depends on no other point.
    """
    reach = torch.linalg.vector_norm(x.double(), dim=1) + far
    left = torch.arange(len(x), device=x.device)
    for choice in choices:
        slack = choice.slack(reach[left])
        # At x itself, too, the original's margin is smaller by at most the slack.
        margins = choice.form.margins(x[left].double(), choice.form.own(y[left])) - slack
        good = (margins > 0) & (slack <= MOST_SLACK_SHARE * margins)
        if bool(good.any()):
            yield choice, left[good], slack[good]
        left = left[~good]
        if len(left) == 0:
            break


def distance_to_zero_output(form: TwoLayerForm, x: Tensor, norm: str) -> Tensor:
    """The distance (n,) of the centre, where a network without biases is 0; inf with biases."""
    center = form.preparation.center
    moved = x.double() if center is None else x.double() - center
    distance = Ball(norm, 0.0).norms(moved)
    return torch.full_like(distance, torch.inf) if form.biased else distance


def _form(net: nn.Module) -> TwoLayerForm:
    form = as_two_layer_form(net)
    assert form is not None
    return form
