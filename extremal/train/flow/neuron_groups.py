"""Groups of neurons that have gathered in one direction, each followed as one neuron."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal._tensors import unit_rows


@dataclass(frozen=True, eq=False)
class Groups:
    """Which neurons go on together: `owner` (h,) is a group, or -1 for a neuron that is left out.

    `leaders` are the heaviest neurons of the groups, `theta` (h,) and `contribution` (h,), signed,
    are those of all neurons when they gathered.
    """

    owner: Tensor
    leaders: list[int]
    theta: Tensor
    contribution: Tensor

    def mean(self, rows: Tensor) -> Tensor:
        """The groups' mean of something that neurons have, (k, ...), weighted by contribution.

        With the mean direction of a group in place of its neurons' own, f changes at second order
        in their distances.
        """
        member = self.owner >= 0
        mass = self.contribution[member].abs()
        return self.total(mass[:, None] * rows[member]) / self.total(mass)[:, None]

    def total(self, values: Tensor) -> Tensor:
        """The groups' sums of values of their members, (k, ...)."""
        shape = (len(self.leaders), *values.shape[1:])
        owner = self.owner[self.owner >= 0]
        return torch.zeros(shape, dtype=values.dtype).index_add_(0, owner, values)

    def change_bound(self, directions: Tensor, p: float) -> float:
        """A bound on the change of f on the unit ball, relative to the sum of |c_j|.

        p |c_j| ||u_j - mean|| for each neuron of a group at `directions` (h, dim), since relu(s)^p
        is p-Lipschitz for s <= 1, and |c_j| for one that is left out.
        """
        member = self.owner >= 0
        mass = self.contribution.abs()
        own = directions[member]
        gap = torch.linalg.vector_norm(
            own - unit_rows(self.mean(directions))[self.owner[member]], dim=1
        )
        moved, left_out = p * (mass[member] * gap).sum(), mass[~member].sum()
        return float((moved + left_out) / mass.sum().clamp(min=1e-300))

    def shares(self) -> Tensor:
        """The share of each neuron in its group's contributions, (k, h)."""
        member = self.owner >= 0
        mass = torch.where(member, self.contribution.abs(), 0.0)
        matrix = torch.zeros(len(self.leaders), len(mass), dtype=mass.dtype)
        matrix[self.owner[member], torch.nonzero(member).squeeze(1)] = mass[member]
        return matrix / matrix.sum(1, keepdim=True)


def heaviest_neurons(
    contribution: Tensor, theta: Tensor, weight: Tensor, left_out_share: float
) -> Groups:
    """Each neuron a group of its own, but for the lightest, which weigh `left_out_share` together.

    `weight` (h,) is the largest share that a neuron will ever have, not the one that it has now:
    for p >= 3 later winners are still small when the first ones are large.
    """
    order = torch.argsort(weight, descending=True)
    heavier = weight[order].cumsum(0) - weight[order]  # than each of them, together
    needed = weight.sum() - heavier > left_out_share * weight.sum()
    leaders = order[needed & (weight[order] > 0)]
    owner = torch.full_like(weight, -1, dtype=torch.int64)
    owner[leaders] = torch.arange(len(leaders))
    return Groups(owner, leaders.tolist(), theta.clone(), contribution)


def group_neurons(
    distance: Callable[[int], Tensor],
    contribution: Tensor,
    theta: Tensor,
    weight: Tensor,
    *,
    left_out_share: float,
    reach: float,
) -> Groups:
    """Group neurons of one sign that are within `reach` of the heaviest one that is left.

    `distance` gives how far all neurons (h,) are from the one that it is asked for. `weight` (h,)
    is as in `heaviest_neurons`. Groups are made until what is left out weighs no more than
    `left_out_share` of all.
    """
    owner = torch.full_like(weight, -1, dtype=torch.int64)
    total = float(weight.sum())
    left = weight.clone()
    leaders: list[int] = []
    while float(left.sum()) > left_out_share * total:
        leader = int(left.argmax())
        alike = torch.sign(contribution) == torch.sign(contribution[leader])
        chosen = (distance(leader) <= reach) & alike & (left > 0)
        chosen[leader] = True
        owner[chosen] = len(leaders)
        left[chosen] = 0.0
        leaders.append(leader)
    return Groups(owner, leaders, theta.clone(), contribution)
