"""A smaller network with the same function, and a bound on what was changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import Preparation
from extremal.models.two_layer_form import TwoLayerForm, polar_form

# The share of the tolerated change that joining a leader may cost. Moving a group to its weighted
# mean direction at most triples the summed cost of joining its leader (the mean moves by at most
# the mean cost, its normalisation by as much again), and two kinds of allowance share the half of
# the budget that dropping leaves: 3 * 2 * 2 = 12.
_JOINING_BUDGET_SHARE = 1.0 / 12.0

# A distance that was computed as sqrt(2 - 2 <u, v>) is wrong by less than this.
_DISTANCE_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Reduction:
    """What `effective` changed, and by how much f may differ for it.

    For each neuron of the original: the size |c_oj| of its contributions, its offset, and for the
    ones that were merged the distance of its direction (`gap`) and of its offset (`shift`) to the
    neuron it now is part of, and that one's offset.
    """

    p: float  # the power of both networks
    preparation: Preparation  # of the inputs of both networks
    kept: Tensor  # (width,) bool: merged (or left alone) rather than dropped
    contribution_sizes: Tensor  # (outputs, width): |c_oj|
    offset: Tensor  # (width,)
    gap: Tensor  # (width,)
    shift: Tensor  # (width,)
    merged_offset: Tensor  # (width,): that of the neuron it now is part of
    rounding_residue: Tensor  # (outputs, width'): between summed and stored contributions
    residue_offset: Tensor  # (width',): the offsets of the smaller network's neurons
    constant: Tensor  # (outputs,): how far the two networks' constants differ

    def bound(self, radius: float = 1.0, center: Tensor | None = None) -> float:
        """An upper bound on max_o |f_o(x) - f'_o(x)| over ||x - `center`|| <= `radius`.

        With R the largest norm of a prepared input there: a dropped neuron changes f by at most
        |c| relu(R + offset)^p; a merged one by |c| p relu(R + max offset)^(p-1) (R gap + shift),
        the mean value theorem; in exact arithmetic, for the weights as stored.
        """
        _check.number("radius", radius, minimum=0.0)
        reach = self.preparation.reach(radius, center)
        size = torch.relu(reach + self.offset) ** self.p
        high = torch.relu(reach + torch.maximum(self.offset, self.merged_offset))
        slope = self.p * high ** (self.p - 1.0)
        moved = slope * (reach * self.gap + self.shift)
        change = self.contribution_sizes * torch.where(self.kept, moved, size)
        rest = self.rounding_residue * torch.relu(reach + self.residue_offset) ** self.p
        return float((change.sum(1) + rest.sum(1) + self.constant).max())


@dataclass(frozen=True, eq=False)
class _Distances:
    """How far apart the directions of some neurons are."""

    distance: np.ndarray[Any, Any]  # (k, k)
    place: list[int]  # where each neuron of the network is among them
    closest: list[float]  # (k,): the distance to the nearest other one


def reduced_networks(net: PReLUNet, tolerances: Iterable[float]) -> Iterator[PReLUNet]:
    """Smaller networks: negligible neurons dropped, neurons of one direction and offset merged.

    One for each tolerance, made when it is asked for; the distances of neurons are computed once.
    A tolerance is relative: on the ball of prepared inputs of norm 1, f changes by at most
    tolerance * max_o sum_j |c_oj| relu(1 + offset_j)^p, the most that f could be there, and by the
    rounding of the result's weights to the network's dtype. The result carries its `reduction`,
    whose `bound` counts both and holds for any ball. Neurons that are silent on the whole ball of
    norm 1 (offset <= -1) are dropped, however large they are beyond it. The result's parameters are
    frozen: trained, it would be another network than its `reduction` describes.

    Arguments:

    - `net`: a `PReLUNet`; it is left as it is.
    - `tolerances`: numbers of at least 0, at least one of them, as described above.
    """
    old = polar_form(net)
    sizes = old.weights.abs()
    effect = sizes * torch.relu(1.0 + old.all_offsets) ** net.p
    budgets = [
        _check.number("tolerance", tolerance, minimum=0.0) * float(effect.sum(1).max())
        for tolerance in tolerances
    ]
    # |u - v|^2 of all pairs in one product, which rounds; a nearest leader's is computed again.
    most = torch.nonzero(_worth_keeping(effect.amax(0), min(budgets) / 2.0)).squeeze(1)
    directions = old.directions[most]
    distance = (2.0 - 2.0 * directions @ directions.T).clamp(min=0.0).sqrt_()
    place = torch.zeros_like(sizes[0], dtype=torch.int64)
    place[most] = torch.arange(len(most), device=most.device)
    closest = distance.clone().fill_diagonal_(torch.inf).amin(1)
    known = _Distances(distance.numpy(force=True), place.tolist(), closest.tolist())
    for budget in budgets:
        kept = _worth_keeping(effect.amax(0), budget / 2.0)
        owner = _merged_into(old, known, sizes.amax(0), effect.amax(0), kept, budget)
        small = _merged_network(net, old, sizes.amax(0), owner)
        small.reduction = _bound_of_changes(old, small, owner)
        yield small.freeze(*dict(small.named_parameters()))


def _worth_keeping(effect: Tensor, budget: float) -> Tensor:
    """All but the neurons of least effect whose effects sum to at most `budget`."""
    order = torch.argsort(effect)
    dropped = effect[order].cumsum(0) <= budget
    dropped[-1] = False  # a network has at least one neuron
    kept = torch.ones_like(effect, dtype=torch.bool)
    kept[order[dropped]] = False
    return kept


def _merged_into(
    old: TwoLayerForm,
    known: _Distances,
    size: Tensor,
    effect: Tensor,
    kept: Tensor,
    budget: float,
) -> Tensor:
    """The merged neuron of each neuron (-1: dropped); neurons join leaders in order of size.

    A neuron joins the nearest leader where the cost, its size times slope times distance, is within
    its allowance: of the budget as much as it has of all effect, or an equal part.
    """
    owner = torch.full_like(kept, -1, dtype=torch.int64)
    indices = torch.nonzero(kept).squeeze(1)
    indices = indices[torch.argsort(size[indices], descending=True, stable=True)]
    directions, offsets = old.directions[indices], old.all_offsets[indices]
    share = (effect / effect.sum().clamp(min=1e-300)).clamp(min=1.0 / len(indices))
    slope = old.p * torch.relu(1.0 + offsets.max()) ** (old.p - 1.0)
    reach = (_JOINING_BUDGET_SHARE * budget * share / (size * slope).clamp(min=1e-300))[indices]
    within, shift = (reach + _DISTANCE_ROUNDING).tolist(), offsets.numpy(force=True)
    leaders = np.empty((2, len(indices)), dtype=np.int64)  # Places in `indices`, rows of `known`.
    count = 0
    for place, j in enumerate(indices.tolist()):
        row = known.place[j]
        if count and known.closest[row] <= within[place]:
            places, rows = leaders[:, :count]
            gaps = known.distance[row, rows] + np.abs(shift[places] - shift[place])
            best = int(gaps.argmin())
            leader = int(places[best])
            gap = torch.linalg.vector_norm(directions[leader] - directions[place])
            if gap + (offsets[leader] - offsets[place]).abs() <= reach[place]:
                owner[j] = best
                continue
        owner[j] = count
        leaders[:, count] = place, row
        count += 1
    return owner


def _merged_network(net: PReLUNet, old: TwoLayerForm, size: Tensor, owner: Tensor) -> PReLUNet:
    """The network of merged neurons: summed contributions, mean direction weighted by size."""
    count = int(owner.max()) + 1
    kept = owner >= 0
    weight = torch.where(size > 0, size, 1e-300)[kept]
    groups = owner[kept]
    total = size.new_zeros(count).index_add_(0, groups, weight)
    share = weight / total[groups]
    mean = size.new_zeros(count, net.dim)
    mean.index_add_(0, groups, share[:, None] * old.directions[kept])
    length = torch.linalg.vector_norm(mean, dim=1, keepdim=True)
    mean = mean / torch.where(length > 0, length, 1.0)
    offset = size.new_zeros(count).index_add_(0, groups, share * old.all_offsets[kept])
    summed = size.new_zeros(net.outputs, count)
    summed.index_add_(1, groups, old.weights[:, kept])
    scale = summed.abs().amax(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)  # Neurons that cancel keep their direction.
    votes = summed / scale
    biased = net.bias is not None or bool((old.constant != 0).any())
    return PReLUNet(
        net.dim,
        count,
        net.p,
        net.outputs,
        bias=biased,
        hidden_bias=net.hidden_bias is not None,
        preparation=net.preparation,
        init=Explicit(scale[:, None] * mean, votes, scale * offset, old.constant),
        dtype=net.neurons.dtype,
        generator=torch.Generator(),
    )


def _bound_of_changes(old: TwoLayerForm, small: PReLUNet, owner: Tensor) -> Reduction:
    """The differences between the original and the network as stored."""
    new = polar_form(small)
    kept = owner >= 0
    mine = owner.clamp(min=0)
    summed = torch.zeros_like(new.weights)
    summed.index_add_(1, owner[kept], old.weights[:, kept])
    return Reduction(
        p=small.p,
        preparation=small.preparation,
        kept=kept,
        contribution_sizes=old.weights.abs(),
        offset=old.all_offsets,
        gap=torch.linalg.vector_norm(old.directions - new.directions[mine], dim=1),
        shift=(old.all_offsets - new.all_offsets[mine]).abs(),
        merged_offset=new.all_offsets[mine],
        rounding_residue=(summed - new.weights).abs(),
        residue_offset=new.all_offsets,
        constant=(old.constant - new.constant).abs(),
    )
