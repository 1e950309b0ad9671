"""Networks that are certified in place of a large one, and what each point pays for that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from extremal.attack import Ball
from extremal.certify.neuron_clusters import NeuronClusters
from extremal.models import (
    LowestGaps,
    PReLUNet,
    Reduction,
    TwoLayerForm,
    as_two_layer_form,
    inner_network,
    reduced_networks,
    relu_power,
    two_layer_rounding,
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
    lowest: LowestGaps  # what rounding leaves of differences of the original's outputs
    reduction: Reduction | None = None
    outputs: int = 1  # how many outputs of the original a margin takes: 1 or 2

    @cached_property
    def gram(self) -> Tensor:
        """The inner products of all neurons' directions, (h, h)."""
        return self.form.directions @ self.form.directions.T

    @cached_property
    def clusters(self) -> NeuronClusters:
        """Its pairs of outputs for the closed form."""
        return NeuronClusters(self.form, self.gram, self.lowest)

    def slack(self, reach: Tensor) -> Tensor:
        """By how much the original's margin may be smaller at inputs of l2 norm <= reach (n,)."""
        if self.reduction is None:
            return torch.zeros_like(reach)
        power = (reach.clamp(1e-150, 1e150).log() / math.log(NORM_LEVEL)).ceil()
        levels, place = power.unique(return_inverse=True)
        bounds = [self.reduction.bound(NORM_LEVEL**level) for level in levels.tolist()]
        slack = self.outputs * torch.tensor(bounds, dtype=reach.dtype, device=reach.device)
        slack = self.lowest.growth * slack
        return torch.where(reach.isfinite(), slack[place], torch.inf)

    @cached_property
    def cancelled_weights(self) -> Tensor:
        """What merged neurons for and against each pair of outputs have in common, (C, C)."""
        every = torch.arange(len(self.form.weights), device=self.form.weights.device)
        rows = [self.lowest.weights(torch.full_like(every, o), every)[1].sum(1) for o in every]
        return torch.stack(rows)

    def cancelled(self, x: Tensor, y: Tensor, far: Tensor) -> Tensor:
        """What rounding may cost the margin where merged neurons oppose each other, (n,).

        Anywhere in l2 balls of radii `far` (n,) around points x (n, dim).
        """
        worst = torch.zeros_like(far)
        if self.reduction is None or not bool(self.cancelled_weights.any()):
            return worst
        form, own, q = self.form, self.form.own(y), self.form.preparation.normalize
        before = form.preparation.scale * (form.preparation.distance(x.double()) + far)
        most = (before ** (1.0 - q)).unsqueeze(1)
        reach = self.lowest.reach(most, self.lowest.lost(torch.zeros_like(before), before, q))
        spread = relu_power(most + reach, form.p) - relu_power(most - reach, form.p)
        for mine, weights in enumerate(self.cancelled_weights):
            largest = weights.expand_as(own).masked_fill(own, 0.0).amax(1)
            worst = torch.where(own[:, mine], torch.maximum(worst, largest), worst)
        return worst * spread.squeeze(1)


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
    itself = unreduced(net)
    few = []
    for small in smaller:
        assert small.reduction is not None
        merged = replace(itself.lowest, owner=small.reduction.owner, count=small.width)
        form = _form(with_readout_of(small, net))
        few.append(ReducedNetwork(form, merged, small.reduction, outputs))
    return (*few, itself)


def unreduced(net: nn.Module) -> ReducedNetwork:
    """The network itself, with its rounding in the dtype that it runs in."""
    form, dtype = _form(net), inner_network(net).neurons.dtype
    return ReducedNetwork(form, LowestGaps(form, two_layer_rounding(net, dtype)))


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
            rows = left[good]
            yield choice, rows, slack[good] + choice.cancelled(x[rows], y[rows], far[rows])
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
