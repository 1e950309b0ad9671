"""Networks that are certified in place of a large one, and what each point pays for that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from extremal.certify.neuron_clusters import NeuronClusters
from extremal.models import (
    PReLUNet,
    Reduction,
    TwoLayerForm,
    as_two_layer_form,
    inner_network,
    reduced_networks,
    with_readout_of,
)

TOLERANCES = (1e-3, 5e-4, 2.5e-4, 1e-4, 1e-5, 1e-7, 1e-9)  # relative changes of f
FEW = 64  # neurons below which nothing is gained
SMALLER = 4  # times fewer neurons are worth a change
LITTLE = 1.25  # times more neurons are worth a finer tolerance
WORTH = 0.004  # of a point's margin: what a change may cost it
LEVEL = 1.02  # norms are rounded up to its powers, so that few bounds are computed


@dataclass(frozen=True, eq=False)
class ReducedNetwork:
    """A network's form, and by what it was reduced: None for the network itself."""

    form: TwoLayerForm
    reduction: Reduction | None = None
    outputs: int = 1  # that a margin takes from the original: 1 or 2

    @cached_property
    def gram(self) -> Tensor:
        """The inner products of all neurons' directions, (h, h)."""
        return self.form.directions @ self.form.directions.T

    @cached_property
    def clusters(self) -> NeuronClusters:
        """The closed form's view of its neurons."""
        return NeuronClusters(self.form, self.gram)

    def slack(self, reach: Tensor) -> Tensor:
        """By how much the original's margin may be smaller at inputs of l2 norm <= reach (n,)."""
        if self.reduction is None:
            return torch.zeros_like(reach)
        power = (reach.clamp(1e-150, 1e150).log() / math.log(LEVEL)).ceil()
        levels, place = power.unique(return_inverse=True)
        bounds = [self.reduction.bound(LEVEL**level) for level in levels.tolist()]
        slack = self.outputs * torch.tensor(bounds, dtype=reach.dtype, device=reach.device)
        return torch.where(reach.isfinite(), slack[place], torch.inf)


def reduced_versions(net: nn.Module) -> tuple[ReducedNetwork, ...]:
    """Networks close to `net`, the smallest first and itself last.

    Of those that are about as wide as each other only the closest.
    """
    inner = inner_network(net)
    smaller: list[PReLUNet] = []
    if inner.hidden_bias is None and inner.width > FEW:
        for small in reduced_networks(inner, TOLERANCES):
            if SMALLER * small.width > inner.width:
                break
            if smaller and small.width <= LITTLE * smaller[-1].width:
                smaller.pop()
            smaller.append(small)
    outputs = 1 if inner.outputs == 1 else 2
    few = [
        ReducedNetwork(_form(with_readout_of(small, net)), small.reduction, outputs)
        for small in smaller
    ]
    return (*few, ReducedNetwork(_form(net)))


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
        good = (margins > 0) & (slack <= WORTH * margins)
        if bool(good.any()):
            yield choice, left[good], slack[good]
        left = left[~good]
        if len(left) == 0:
            break


def _form(net: nn.Module) -> TwoLayerForm:
    form = as_two_layer_form(net)
    assert form is not None
    return form
