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

# Moving a group to its weighted mean direction at most triples the summed cost of joining its
# leader (the mean moves by at most the mean cost, its normalisation by as much again), and two
# kinds of allowance share the half of the budget that dropping leaves: 3 * 2 * 2 = 12.
_SHARE = 1.0 / 12.0
_ROUNDING = 1e-6  # of a distance that was computed as sqrt(2 - 2 <u, v>), with room to spare


@dataclass(frozen=True, eq=False)
class Polar:
    """A network's neurons as directions, offsets and contributions, in float64.

    f_o(x) = sum_j contributions_oj relu(<z, directions_j> + offsets_j)^p + constant_o.
    """

    directions: Tensor  # (width, dim), unit rows
    offsets: Tensor  # (width,)
    contributions: Tensor  # (outputs, width)
    constant: Tensor  # (outputs,)


@dataclass(frozen=True, eq=False)
class Reduction:
    """What `effective` changed, and by how much f may differ for it.

    For each neuron of the original: `mass` |c_oj| (outputs, width), its `offset`, and for the ones
    that were merged the distance `gap` of its direction and `shift` of its offset to the neuron it
    now is part of, and that one's offset `target`. `residue` (outputs, width') is the difference
    between summed and stored contributions, which rounding leaves.
    """

    p: float  # the power of both networks
    preparation: Preparation  # of the inputs of both networks
    kept: Tensor  # (width,) bool: merged (or left alone) rather than dropped
    mass: Tensor  # (outputs, width)
    offset: Tensor  # (width,)
    gap: Tensor  # (width,)
    shift: Tensor  # (width,)
    target: Tensor  # (width,)
    residue: Tensor  # (outputs, width')
    residue_offset: Tensor  # (width',): the offsets of the smaller network's neurons
    constant: Tensor  # (outputs,): how far the two networks' constants differ

    def bound(self, radius: float = 1.0, center: Tensor | None = None) -> float:
        """An upper bound on max_o |f_o(x) - f'_o(x)| over ||x - center|| <= radius.

        With R the largest norm of a prepared input there: a dropped neuron changes f by at most
        |c| relu(R + offset)^p; a merged one by |c| p relu(R + max offset)^(p-1) (R gap + shift),
        the mean value theorem; in exact arithmetic, for the weights as stored.
        """
        _check.number("radius", radius, minimum=0.0)
        reach = self.preparation.reach(radius, center)
        size = torch.relu(reach + self.offset) ** self.p
        high = torch.relu(reach + torch.maximum(self.offset, self.target))
        slope = self.p * high ** (self.p - 1.0)
        moved = slope * (reach * self.gap + self.shift)
        change = self.mass * torch.where(self.kept, moved, size)
        rest = self.residue * torch.relu(reach + self.residue_offset) ** self.p
        return float((change.sum(1) + rest.sum(1) + self.constant).max())


@dataclass(frozen=True, eq=False)
class _Distances:
    """How far apart the directions of some neurons are."""

    distance: np.ndarray[Any, Any]  # (k, k)
    place: list[int]  # of each neuron of the network among them
    closest: list[float]  # (k,): to any other


def polar(net: PReLUNet) -> Polar:
    """The neurons of a network in polar form; a zero neuron has direction and contribution zero.

    For p = 1 a zero neuron with a hidden bias is the constant v relu(b), which goes to `constant`.

    Arguments:

    - `net`: a `PReLUNet`; it is left as it is.
    """
    with torch.no_grad():
        w, v = net.neurons.double(), net.votes.double()
        largest = w.abs().amax(1)
        unit = torch.where(largest > 0, largest, 1.0)
        length = torch.linalg.vector_norm(w / unit[:, None], dim=1)
        norms = length * unit
        alive = norms > 0
        safe = torch.where(alive, norms, 1.0)
        b = torch.zeros_like(norms) if net.hidden_bias is None else net.hidden_bias.double()
        constant = torch.zeros_like(v[:, 0]) if net.bias is None else net.bias.double().clone()
        if net.p == 1.0:
            constant += (v * torch.where(alive, 0.0, torch.relu(b))).sum(1)
        directions = (w / unit[:, None]) / torch.where(length > 0, length, 1.0)[:, None]
        return Polar(directions, torch.where(alive, b / safe, 0.0), v * norms, constant)


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
    old = polar(net)
    mass = old.contributions.abs()
    effect = mass * torch.relu(1.0 + old.offsets) ** net.p
    budgets = [
        _check.number("tolerance", tolerance, minimum=0.0) * float(effect.sum(1).max())
        for tolerance in tolerances
    ]
    # |u - v|^2 of all pairs in one product, which rounds; a nearest leader's is computed again.
    most = torch.nonzero(_worth_keeping(effect.amax(0), min(budgets) / 2.0)).squeeze(1)
    some = old.directions[most]
    distance = (2.0 - 2.0 * some @ some.T).clamp(min=0.0).sqrt_()
    place = torch.zeros_like(mass[0], dtype=torch.int64)
    place[most] = torch.arange(len(most), device=most.device)
    known = _Distances(distance.numpy(force=True), place.tolist(), _closest(distance).tolist())
    for budget in budgets:
        kept = _worth_keeping(effect.amax(0), budget / 2.0)
        owner = _merge(old, known, mass.amax(0), effect.amax(0), kept, net.p, budget)
        small = _build(net, old, mass.amax(0), owner)
        small.reduction = _account(old, small, owner, mass)
        yield small.freeze(*dict(small.named_parameters()))


def _closest(distance: Tensor) -> Tensor:
    """The least entry of each row (k,) off the diagonal."""
    return distance.clone().fill_diagonal_(torch.inf).amin(1)


def _worth_keeping(effect: Tensor, budget: float) -> Tensor:
    """All but the neurons of least effect whose effects sum to at most `budget`."""
    order = torch.argsort(effect)
    dropped = effect[order].cumsum(0) <= budget
    dropped[-1] = False  # a network has at least one neuron
    kept = torch.ones_like(effect, dtype=torch.bool)
    kept[order[dropped]] = False
    return kept


def _merge(
    old: Polar,
    known: _Distances,
    mass: Tensor,
    effect: Tensor,
    kept: Tensor,
    p: float,
    budget: float,
) -> Tensor:
    """The merged neuron of each neuron (-1: dropped), by joining leaders in order of mass.

    A neuron joins the nearest leader where the cost, its mass times slope times distance, is within
    its allowance: of the budget as much as it has of all effect, or an equal part.
    """
    owner = torch.full_like(kept, -1, dtype=torch.int64)
    indices = torch.nonzero(kept).squeeze(1)
    indices = indices[torch.argsort(mass[indices], descending=True, stable=True)]
    directions, offsets = old.directions[indices], old.offsets[indices]
    share = (effect / effect.sum().clamp(min=1e-300)).clamp(min=1.0 / len(indices))
    slope = p * torch.relu(1.0 + offsets.max()) ** (p - 1.0)
    reach = (_SHARE * budget * share / (mass * slope).clamp(min=1e-300))[indices]
    within, shift = (reach + _ROUNDING).tolist(), offsets.numpy(force=True)
    leaders = np.empty((2, len(indices)), dtype=np.int64)  # places in `indices`, in `known`
    count = 0
    for place, j in enumerate(indices.tolist()):
        at = known.place[j]
        if count and known.closest[at] <= within[place]:
            some = leaders[:, :count]
            gaps = known.distance[at, some[1]] + np.abs(shift[some[0]] - shift[place])
            best = int(gaps.argmin())
            leader = int(some[0, best])
            gap = torch.linalg.vector_norm(directions[leader] - directions[place])
            if gap + (offsets[leader] - offsets[place]).abs() <= reach[place]:
                owner[j] = best
                continue
        owner[j] = count
        leaders[:, count] = place, at
        count += 1
    return owner


def _build(net: PReLUNet, old: Polar, mass: Tensor, owner: Tensor) -> PReLUNet:
    """The network of merged neurons: summed contributions, mass-weighted mean direction."""
    count = int(owner.max()) + 1
    kept = owner >= 0
    weight = torch.where(mass > 0, mass, 1e-300)[kept]
    groups = owner[kept]
    total = mass.new_zeros(count).index_add_(0, groups, weight)
    share = weight / total[groups]
    mean = mass.new_zeros(count, net.dim)
    mean.index_add_(0, groups, share[:, None] * old.directions[kept])
    length = torch.linalg.vector_norm(mean, dim=1, keepdim=True)
    mean = mean / torch.where(length > 0, length, 1.0)
    offset = mass.new_zeros(count).index_add_(0, groups, share * old.offsets[kept])
    summed = mass.new_zeros(net.outputs, count)
    summed.index_add_(1, groups, old.contributions[:, kept])
    scale = summed.abs().amax(0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)  # neurons that cancel keep their direction
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


def _account(old: Polar, small: PReLUNet, owner: Tensor, mass: Tensor) -> Reduction:
    """The differences between the original and the network as stored."""
    new = polar(small)
    kept = owner >= 0
    mine = owner.clamp(min=0)
    summed = torch.zeros_like(new.contributions)
    summed.index_add_(1, owner[kept], old.contributions[:, kept])
    return Reduction(
        p=small.p,
        preparation=small.preparation,
        kept=kept,
        mass=mass,
        offset=old.offsets,
        gap=torch.linalg.vector_norm(old.directions - new.directions[mine], dim=1),
        shift=(old.offsets - new.offsets[mine]).abs(),
        target=new.offsets[mine],
        residue=(summed - new.contributions).abs(),
        residue_offset=new.offsets,
        constant=(old.constant - new.constant).abs(),
    )
