"""Neurons of one network gathered around those of another, with what that leaves out bounded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.measure.classifier_distance.network_difference import Sum

_NEAR = 0.5  # cosine below which a neuron's remainder would cost more than the neuron


@dataclass(frozen=True, eq=False)
class Gathered:
    """sum_j a_j relu(<x, u_j>)^p as one neuron for each head, the far neurons, and remainders.

    The neurons near a head and of its sign, with |weights| a_j, become the neuron
    v = sum_j a_j u_j / sum_j a_j (not a unit vector) of weight sum_j a_j. What that leaves out has
    the neurons' sign by Jensen's inequality, and is at most sum_j heights_j |<x, e_j>|^q with
    q = min(p, 2), e_j the direction of u_j - v and heights_j = C a_j ||u_j - v||^q; C = 1/2 for
    p = 1, 1 for p <= 2, and p (p - 1) / 2 above: Taylor, with a Hölder-continuous slope below 2.
    """

    groups: Sum  # one for each head, of weight zero where none is near; unit directions
    far: Sum
    off: Tensor  # (m, dim), u_j - v
    heights: Tensor  # (m,), with the sign of the neuron

    @property
    def neurons(self) -> Sum:
        """The gathered network without its remainders."""
        some = self.groups.weights != 0
        directions = torch.cat([self.groups.directions[some], self.far.directions])
        return Sum(directions, torch.cat([self.groups.weights[some], self.far.weights]), self.far.p)


def gather(members: Sum, heads: Sum) -> Gathered:
    """The neurons of `members`, each joined to the nearest of `heads` of its sign."""
    u, a, p = members.directions, members.weights, members.p
    same = a.sign()[:, None] == heads.weights.sign()
    cosine, owner = torch.where(same, u @ heads.directions.T, -2.0).max(1)
    near = (cosine >= _NEAR) & (a != 0)
    group, size = owner[near], a[near].abs()
    total = torch.zeros_like(heads.weights).index_add_(0, group, size)
    share = (size / total[group])[:, None]
    mean = torch.zeros_like(heads.directions).index_add_(0, group, share * u[near])
    off = u[near] - mean[group]
    length = torch.linalg.vector_norm(mean, dim=1)
    length = torch.where(length > 0, length, 1.0)
    weights = heads.weights.sign() * total * length**p
    q, factor = min(p, 2.0), 0.5 if p == 1.0 else max(1.0, p * (p - 1.0) / 2.0)
    return Gathered(
        groups=Sum(mean / length[:, None], weights, p),
        far=Sum(u[~near], a[~near], p),
        off=off,
        heights=factor * a[near] * torch.linalg.vector_norm(off, dim=1) ** q,
    )
