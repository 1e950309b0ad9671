"""The difference c f - F as a sum of weighted powers, in coordinates of the neurons' span.

And neurons of one network gathered around those of another, with what that leaves out bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.models import PReLUNet, polar_form, relu_power, relu_power_with_slope

# Below this cosine with a head, a neuron's remainder would cost more than the neuron.
_LEAST_COSINE = 0.5
# How many ridges are followed exactly, at most.
_MOST_RIDGES = 12
# A ridge is followed exactly from this share of all weights on.
_RIDGE_WEIGHT_SHARE = 0.003


@dataclass(frozen=True, eq=False)
class Gathered:
    """sum_j a_j relu(<x, u_j>)^p as one neuron for each head, the far neurons, and remainders.

    The neurons near a head and of its sign, with |weights| a_j, become the neuron
    v = sum_j a_j u_j / sum_j a_j (not a unit vector) of weight sum_j a_j. What that leaves out has
    the neurons' sign by Jensen's inequality, and is at most sum_j heights_j |<x, e_j>|^q with
    q = min(p, 2), e_j the direction of u_j - v and heights_j = C a_j ||u_j - v||^q; C = 1/2 for
    p = 1, 1 for p <= 2, and p (p - 1) / 2 above: Taylor, with a Hölder-continuous slope below 2.
    """

    groups: NeuronSum  # one for each head, of weight zero where none is near; unit directions
    far: NeuronSum
    off: Tensor  # (m, dim), u_j - v
    heights: Tensor  # (m,), with the sign of the neuron

    @property
    def neurons(self) -> NeuronSum:
        """The gathered network without its remainders."""
        some = self.groups.weights != 0
        directions = torch.cat([self.groups.directions[some], self.far.directions])
        return NeuronSum(
            directions, torch.cat([self.groups.weights[some], self.far.weights]), self.far.p
        )


def gather_neurons(members: NeuronSum, heads: NeuronSum) -> Gathered:
    """The neurons of `members`, each joined to the nearest of `heads` of its sign."""
    u, a, p = members.directions, members.weights, members.p
    same = a.sign()[:, None] == heads.weights.sign()
    cosine, owner = torch.where(same, u @ heads.directions.T, -2.0).max(1)
    near = (cosine >= _LEAST_COSINE) & (a != 0)
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
        groups=NeuronSum(mean / length[:, None], weights, p),
        far=NeuronSum(u[~near], a[~near], p),
        off=off,
        heights=factor * a[near] * torch.linalg.vector_norm(off, dim=1) ** q,
    )


@dataclass(frozen=True, eq=False)
class NeuronSum:
    """sum_j weights_j relu(<x, directions_j>)^p in chosen coordinates."""

    directions: Tensor  # (m, r)
    weights: Tensor  # (m,)
    p: float

    def value(self, x: Tensor) -> Tensor:
        return relu_power(x @ self.directions.T, self.p) @ self.weights

    def value_and_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values (n,) and gradients (n, r)."""
        power, slope = relu_power_with_slope(x @ self.directions.T, self.p)
        return power @ self.weights, (slope * self.weights) @ self.directions

    def largest_neurons(self, count: int) -> Tensor:
        """The directions of the neurons that contribute most."""
        return self.directions[self.weights.abs().topk(min(count, len(self.weights))).indices]

    def scaled(self, factor: float) -> NeuronSum:
        return NeuronSum(self.directions, factor * self.weights, self.p)

    def without_lightest(self, share: float) -> NeuronSum:
        """All but the lightest neurons, whose weights sum to at most that share of all."""
        order = self.weights.abs().argsort()
        mass = self.weights.abs()[order].cumsum(0)
        dropped = mass <= share * mass[-1]
        dropped[-1] = False  # a sum has at least one neuron
        kept = order[~dropped].sort().values
        return NeuronSum(self.directions[kept], self.weights[kept], self.p)

    @property
    def mass(self) -> float:
        return float(self.weights.abs().sum())


@dataclass(frozen=True, eq=False)
class SignedDifference:
    """s (c f - F) for a sign s: smooth or nearly smooth sums, less a few ridges.

    `ridges` (k, r) are neurons of power 1 and negative weight, as vectors: x ↦ -relu(<x, ridge>).
    Maxima lie on their kinks, where a gradient says nothing about the other side.
    """

    sums: tuple[NeuronSum, ...]
    ridges: Tensor

    def value_and_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values (n,), and gradients (n, r) of all but the ridges."""
        value, slope = self.sums[0].value_and_slope(x)
        for part in self.sums[1:]:
            more = part.value_and_slope(x)
            value, slope = value + more[0], slope + more[1]
        if len(self.ridges) > 0:
            value = value - torch.relu(x @ self.ridges.T).sum(1)
        return value, slope


@dataclass(frozen=True, eq=False)
class NetworkPair:
    """Two networks in the coordinates of their neurons' span, or of the whole space.

    `basis` is (r, dim), or None for the whole space. Where both powers are equal, c f - F is
    homogeneous and its supremum lies on the span's sphere; otherwise in the span's ball, onto
    which the sphere of the whole space projects.
    """

    f: NeuronSum
    other: NeuronSum
    basis: Tensor | None
    ball: bool

    def difference(self, scale: float, sign: float) -> SignedDifference:
        """sign (scale f - F), with its heaviest ridges apart."""
        parts = [self.f.scaled(sign * scale), self.other.scaled(-sign)]
        if self.f.p == self.other.p:
            directions = torch.cat([part.directions for part in parts])
            parts = [NeuronSum(directions, torch.cat([part.weights for part in parts]), self.f.p)]
        ridges = self.f.directions[:0]
        if parts[0].p == 1.0:
            parts[0], ridges = _without_ridges(parts[0])
        elif parts[-1].p == 1.0:
            parts[-1], ridges = _without_ridges(parts[-1])
        return SignedDifference(tuple(parts), ridges)

    def values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f and F at the points x (n, r)."""
        return self.f.value(x), self.other.value(x)

    def in_all_coordinates(self, x: Tensor) -> Tensor:
        """Points of the span as unit vectors (n, dim): a step off the span fills them up."""
        if self.basis is None:
            return x
        inside = x @ self.basis
        if not self.ball:
            return inside
        axis = torch.zeros_like(inside[0])
        axis[int((self.basis**2).sum(0).argmin())] = 1.0
        off = axis - (self.basis @ axis) @ self.basis
        missing = (1.0 - (x * x).sum(1, keepdim=True)).clamp(min=0.0).sqrt()
        return inside + missing * off / off.norm()


def as_sum(net: PReLUNet) -> NeuronSum:
    """A network's neurons as unit directions and weights, in float64."""
    found = polar_form(net)
    return NeuronSum(found.directions, found.weights[0], net.p)


def in_span(f: NeuronSum, other: NeuronSum) -> NetworkPair:
    """Both sums in the coordinates of their neurons' span."""
    basis = _basis(torch.cat([f.directions, other.directions]))
    ball = f.p != other.p and basis.shape[0] < basis.shape[1]
    first, second = (NeuronSum(g.directions @ basis.T, g.weights, g.p) for g in (f, other))
    return NetworkPair(first, second, basis, ball)


def to_sphere_or_ball(x: Tensor, *, ball: bool) -> Tensor:
    """The nearest point of the unit sphere, or of the unit ball."""
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / (length.clamp(min=1.0) if ball else torch.where(length > 0, length, 1.0))


def _without_ridges(part: NeuronSum) -> tuple[NeuronSum, Tensor]:
    """The sum without its heaviest negative neurons, and those as vectors."""
    negative = torch.relu(-part.weights)
    found = negative.topk(min(_MOST_RIDGES, len(negative)))
    chosen = found.indices[found.values > _RIDGE_WEIGHT_SHARE * part.mass]
    weights = part.weights.clone()
    weights[chosen] = 0.0
    ridges = negative[chosen, None] * part.directions[chosen]
    return NeuronSum(part.directions, weights, part.p), ridges


def _basis(rows: Tensor) -> Tensor:
    """An orthonormal basis (r, dim) of the rows' span."""
    _, s, v = torch.linalg.svd(rows, full_matrices=False)
    return v[s > 1e-10 * s[0]]
