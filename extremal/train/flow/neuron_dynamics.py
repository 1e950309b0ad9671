"""Neurons in coordinates in which no small number occurs: a direction and a hyperbolic angle.

Gradient flow conserves ||w||^2 - v^2 for each neuron. With u = w/||w|| and the data's pull
g = sum_i q_i relu(<x_i, u>)^p, G = p sum_i q_i relu(<x_i, u>)^(p-1) x_i, it is

    theta' = g,    u' = ratio(theta) (G - <G, u> u),

where ratio = v/||w|| is tanh(theta) for |v| < ||w||, coth(theta) for |v| > ||w|| and sign(v) for
balanced neurons. The contribution is v ||w|| = exp(log_scale) sinh(2 theta) in the first two cases,
with exp(log_scale) = | ||w||^2 - v^2 | / 2, and sign(v) exp(log_scale + 2 |theta|) in the third. An
initialisation of 1e-60 differs from one of 1e-7 in log_scale alone.

Directions are held in a subspace that neurons share, with one coordinate more for the rest of each
one's first direction (`SubspaceFrame`). `NeuronSystem` has the equations of motion of all neurons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from extremal._tensors import RowRecord, unit_rows
from extremal.models import PReLUNet, relu_power
from extremal.train.flow.neuron_groups import Groups
from extremal.train.flow.runge_kutta import State
from extremal.train.losses import Loss

if TYPE_CHECKING:  # Both fields import the coordinates of this file.
    from extremal.train.flow.cluster_field import ClusterField
    from extremal.train.flow.sample_field import SampleField

# A rest shorter than this is taken for rounding, and dropped.
_LEAST_REST_LENGTH = 1e-9
# Outputs are computed for so many points at a time, which bounds the memory.
_POINTS_PER_BLOCK = 4096
# A neuron counts as balanced where |v| and ||w|| differ by less than this share.
_BALANCED_RELATIVE_GAP = 1e-12
# Logarithms of sinh and cosh are formed as size - log 2 + ..., so that large sizes do not overflow.
_LOG_2 = math.log(2.0)


@dataclass(frozen=True, eq=False)
class SubspaceFrame:
    """u_j = z_j basis + beta_j rest_j, held as the row (z_j, beta_j) of a `place` (h, r + 1).

    `basis` (r, dim) has orthonormal rows; `rest` (h, dim) holds unit rows orthogonal to them, or
    zeros where a neuron starts within their span. Gradients on Gaussian clusters keep u in there
    (Stein's lemma); on other data a share of the gradient lies off it, which is to be watched.
    """

    basis: Tensor
    rest: Tensor

    @classmethod
    def of(cls, directions: Tensor, basis: Tensor) -> tuple[SubspaceFrame, Tensor]:
        """The frame of neurons that start at `directions` (h, dim), and their first place."""
        inside = directions @ basis.T
        rest = directions - inside @ basis
        beta = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
        beta = torch.where(beta > _LEAST_REST_LENGTH, beta, 0.0)
        unit = torch.where(beta > 0, rest / torch.where(beta > 0, beta, 1.0), 0.0)
        return cls(basis, unit), torch.cat([inside, beta], 1)

    def lift(self, place: Tensor) -> Tensor:
        """Unit vectors (h, dim)."""
        return place[:, :-1] @ self.basis + place[:, -1:] * self.rest

    def of_groups(self, share: Tensor, place: Tensor) -> tuple[SubspaceFrame, Tensor, Tensor]:
        """The frame of mean directions, their places (k, r + 1), and the weights of the rests.

        `share` (k, h) says how much a neuron counts in a mean. A mean's rest is the sum of the
        neurons' rests with the weights (k, h) that are returned last.
        """
        inside, weight = share @ place[:, :-1], share * place[:, -1]
        rest = weight @ self.rest
        beta = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
        scale = 1.0 / torch.where(beta > 0, beta, 1.0)
        found = unit_rows(torch.cat([inside, beta], 1))
        return SubspaceFrame(self.basis, scale * rest), found, scale * weight


def polar_velocity(
    pull: Tensor, growth: Tensor, state: State, invariants: NeuronInvariants
) -> State:
    """The right-hand side for (place, theta): the pull across u, and the growth g."""
    place, theta = state
    return invariants.ratio(theta)[:, None] * tangential(pull, place), growth


def tangential(pull: Tensor, place: Tensor) -> Tensor:
    """The part of the pull that turns a neuron, (h, r + 1)."""
    radial = (pull * place).sum(1, keepdim=True) / place.square().sum(1, keepdim=True)
    return pull - radial * place


class ConstantPull(Protocol):
    """The pull of a constant push on neurons, as it is while the network's output is negligible."""

    @property
    def p(self) -> float: ...

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor) -> None:
        """Correct the pull on those of the neurons `rows` whose correction is too old."""
        ...

    def correct(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Correct the pull on the chosen ones of the neurons `rows`."""
        ...

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G up to a multiple of u, (k, r + 1), and g, (k,), of the neurons `rows`."""
        ...


@dataclass(frozen=True, eq=False)
class NeuronSystem:
    """What the flow of all neurons is made of; their states are (place (h, r + 1), theta (h,)).

    `rate` is how much faster time runs than with the mean loss.
    """

    field: ClusterField | SampleField
    invariants: NeuronInvariants
    loss: Loss
    rate: float

    def outputs(self, state: State) -> Tensor:
        """f at the field's clusters (K,) or samples (n,)."""
        return self.field.outputs(state[0], self.invariants.contribution(state[1]))

    def velocity(self, state: State) -> State:
        """The right-hand side of the flow, with the push that the neurons' outputs leave."""
        pull, growth = self.field.pull_with_outputs(
            state[0],
            self.invariants.contribution(state[1]),
            lambda outputs: self.field.push(self.loss, outputs, self.rate),
        )
        return polar_velocity(pull, growth, state, self.invariants)

    def of_groups(self, groups: Groups, state: State) -> tuple[NeuronSystem, State]:
        """Groups of the neurons as neurons of their own, and the state that they are in."""
        member = torch.nonzero(groups.owner >= 0).squeeze(1)
        owner, count = groups.owner[member], len(groups.leaders)
        invariants, theta = self.invariants.take(member).summed(state[1][member], owner, count)
        field, place = self.field.of_groups(groups.shares(), state[0])
        return replace(self, field=field, invariants=invariants), (place, theta)

    def outputs_at(self, x: Tensor, state: State) -> Tensor:
        """f at points (n, dim), whatever the field is, (n,)."""
        directions = self.field.frame.lift(state[0]).T.to(x.dtype)
        weight = self.invariants.contribution(state[1]).to(x.dtype)
        blocks = x.split(_POINTS_PER_BLOCK)
        outputs = [relu_power(block @ directions, self.field.p) @ weight for block in blocks]
        return torch.cat(outputs).double()


@dataclass(frozen=True, eq=False)
class NeuronInvariants(RowRecord):
    """What stays fixed of each neuron along the flow: its kind, scale and the sign of v (width,).

    `kind` is 0 for |v| < ||w||, 1 for |v| > ||w|| and 2 for balanced neurons, whose theta starts
    at zero and has the sign of v in front.
    """

    kind: Tensor
    log_scale: Tensor
    sign: Tensor

    def ratio(self, theta: Tensor) -> Tensor:
        """v/||w||."""
        flat = torch.tanh(theta)
        steep = 1.0 / torch.where(flat != 0, flat, 1e-300)
        return torch.where(self.kind == 0, flat, torch.where(self.kind == 1, steep, self.sign))

    def log_contribution(self, theta: Tensor) -> Tensor:
        """log |v| ||w||, minus infinity where v = 0."""
        size = theta.abs()
        hyperbolic = 2.0 * size + torch.log(-torch.expm1(-4.0 * size)) - _LOG_2
        return self.log_scale + torch.where(self.kind == 2, 2.0 * self.sign * theta, hyperbolic)

    def log_ceiling(self, theta: Tensor) -> Tensor:
        """A bound on log |v| ||w|| that grows by 2 |theta'| at most: sinh(2 t) < exp(2 t)/2."""
        free = self.log_scale + 2.0 * theta.abs() - _LOG_2
        return torch.where(self.kind == 2, self.log_scale + 2.0 * self.sign * theta, free)

    def contribution(self, theta: Tensor) -> Tensor:
        """v ||w||, signed."""
        sign = torch.where(self.kind == 2, self.sign, torch.sign(theta))
        return sign * torch.exp(self.log_contribution(theta))

    def summed(self, theta: Tensor, owner: Tensor, count: int) -> tuple[NeuronInvariants, Tensor]:
        """Neurons of one direction and sign as one: the invariants and theta of each group.

        With C = sum of v ||w|| and E = sum of (||w||^2 + v^2)/2, C' = 2 E g and E' = 2 C g: the
        group is one neuron of E = exp(log_scale) cosh(2 theta), exactly. E + |C| and E - |C| are
        sums of exp(log_scale + 2 |theta|) and exp(log_scale - 2 |theta|), without cancellation.
        """
        size = 2.0 * theta.abs()
        balanced = self.kind == 2
        grown = torch.where(balanced, 2.0 * self.sign * theta + _LOG_2, size)
        plus = _log_sums(self.log_scale + grown, owner, count)
        less = torch.where(balanced, -torch.inf, self.log_scale - size)
        minus = _log_sums(less, owner, count)
        sign = torch.zeros(count, dtype=theta.dtype)
        sign[owner] = torch.where(balanced, self.sign, torch.sign(theta))
        whole = plus - minus > -2.0 * math.log(_BALANCED_RELATIVE_GAP)
        # Of |v| and ||w||, the one that is larger in sum is larger for the group.
        flat, steep = (
            _log_sums(torch.where(self.kind == kind, self.log_scale, -torch.inf), owner, count)
            for kind in (0, 1)
        )
        kind = torch.where(whole, 2, torch.where(steep > flat, 1, 0))
        scale = torch.where(whole, plus - _LOG_2, 0.5 * (plus + minus))
        start = torch.where(whole, 0.0, 0.25 * sign * (plus - minus))
        return NeuronInvariants(kind, scale, sign), start

    def log_norm(self, theta: Tensor) -> Tensor:
        """log ||w||: half the log of the contribution over the ratio, or of b cosh(theta)."""
        size = theta.abs()
        half = 0.5 * (self.log_scale + _LOG_2)
        cosh = half + size + torch.log1p(torch.exp(-2.0 * size)) - _LOG_2
        sinh = half + size + torch.log(-torch.expm1(-2.0 * size)) - _LOG_2
        balanced = 0.5 * self.log_scale + self.sign * theta
        return torch.where(self.kind == 0, cosh, torch.where(self.kind == 1, sinh, balanced))


def _log_sums(logs: Tensor, owner: Tensor, count: int) -> Tensor:
    """log of the sum of exp(logs) over each group, (count,)."""
    top = torch.full((count,), -torch.inf, dtype=logs.dtype)
    top.scatter_reduce_(0, owner, logs, "amax")
    safe = torch.where(torch.isfinite(top), top, 0.0)
    total = torch.zeros(count, dtype=logs.dtype)
    total.index_add_(0, owner, torch.exp(logs - safe[owner]))
    return safe + torch.log(total)


def to_polar(net: PReLUNet) -> tuple[Tensor, NeuronInvariants, Tensor]:
    """Directions (width, dim), invariants and theta (width,) of a one-output net, in float64."""
    with torch.no_grad():
        w, v = net.neurons.double(), net.votes[0].double()
        largest = torch.maximum(w.abs().amax(1), v.abs())
        w, v = w / largest[:, None], v / largest
        norm = torch.linalg.vector_norm(w, dim=1)
        gap = (norm - v.abs()) / torch.maximum(norm, v.abs())
        kind = torch.where(gap.abs() <= _BALANCED_RELATIVE_GAP, 2, torch.where(gap > 0, 0, 1))
        ratio = v / norm
        inner = torch.where(kind == 0, ratio, torch.where(kind == 1, 1.0 / ratio, 0.0))
        scale = torch.where(kind == 2, norm * v.abs(), (norm**2 - v**2).abs() / 2.0)
        log_scale = torch.log(scale) + 2.0 * torch.log(largest)
        return (
            w / norm[:, None],
            NeuronInvariants(kind, log_scale, torch.sign(v)),
            torch.atanh(inner),
        )


def from_polar(
    net: PReLUNet, directions: Tensor, invariants: NeuronInvariants, theta: Tensor
) -> None:
    """Write neurons back into a network, in place."""
    norm = torch.exp(invariants.log_norm(theta))
    with torch.no_grad():
        net.neurons.copy_(norm[:, None] * directions)
        net.votes.copy_((invariants.ratio(theta) * norm)[None])
