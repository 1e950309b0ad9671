"""Neurons that have gathered in one direction, as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Gathered neurons keep their weighted mean direction, so that the change of f is of second order in
# their distances where f is smooth; this many tolerances apart, it is below the tolerance.
_REACH = 10.0


@dataclass(frozen=True, eq=False)
class Groups:
    """Which neurons go on together: `owner` (h,) is a group, or -1 for a neuron that is left out.

    `leaders` are the heaviest neurons of the groups, `theta` (h,) the angles when they gathered,
    `contribution` (h,) the signed contributions then. `change` bounds, as a share of all
    contributions and for p = 1, how much gathering and leaving out changed f on the unit ball when
    it was done.
    """

    owner: Tensor
    leaders: list[int]
    theta: Tensor
    contribution: Tensor
    change: float


def gather(
    place: Tensor, contribution: Tensor, theta: Tensor, weight: Tensor, tolerance: float
) -> Groups:
    """Group neurons of one sign whose directions are within ten tolerances, heaviest first.

    `weight` (h,) is what a neuron will ever matter, not what it contributes now: for p >= 3 later
    winners are still small when the first ones are large. Directions are compared in the span of
    the means; the part off it counts in full, since no two neurons share it. Groups are made until
    what is left out weighs less than a tenth of the tolerance.
    """
    off = torch.sqrt((1.0 - place.square().sum(1)).clamp(min=0.0))
    owner = torch.full_like(weight, -1, dtype=torch.int64)
    total = float(weight.sum())
    left = weight.clone()
    leaders: list[int] = []
    change = 0.0
    while float(left.sum()) > 0.1 * tolerance * total:
        leader = int(left.argmax())
        gap = ((place - place[leader]).square().sum(1) + (off + off[leader]).square()).sqrt()
        gap[leader] = 0.0
        alike = torch.sign(contribution) == torch.sign(contribution[leader])
        chosen = (gap <= _REACH * tolerance) & alike & (left > 0)
        owner[chosen] = len(leaders)
        change += float((left[chosen] * gap[chosen]).sum())
        left[chosen] = 0.0
        leaders.append(leader)
    return Groups(owner, leaders, theta.clone(), contribution, (change + float(left.sum())) / total)
