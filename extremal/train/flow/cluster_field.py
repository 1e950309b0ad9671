"""Known Gaussian clusters instead of samples: the pull on a neuron from K means and one variance.

With sample means xbar_k, shares n_k/n, pooled variance s^2 of a coordinate and m_k = <xbar_k, u>,
Stein's lemma gives, up to a multiple of u, G = p sum_k q_k I_{p-1}(m_k) xbar_k, and
g = sum_k q_k I_p(m_k), where I_r(m) = E relu(m + s xi)^r. So u stays in the span of the means and
of its start: K coordinates a neuron, whatever the number of samples and dimensions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.train.flow.neuron_dynamics import SubspaceFrame
from extremal.train.losses import Loss, negative_slopes

# Where p is not whole, moments are Gauss-Legendre sums over so many nodes.
_QUADRATURE_NODES = 64
# A Gaussian is taken for 0 so many standard deviations away from its mean.
_TAIL_DEVIATIONS = 9.0


@dataclass(frozen=True, eq=False)
class ClusterField:
    """Means in the coordinates of their own span, shares, labels and the noise of a coordinate.

    Neurons have places in a frame whose basis is that span; no pull is along their rest.
    """

    frame: SubspaceFrame
    means: Tensor  # (K, K): row k holds the coordinates of cluster k's mean
    share: Tensor  # (K,) n_k/n
    label: Tensor  # (K,) -1 / +1
    noise: float
    p: float
    group: Tensor  # (n,) the cluster of each sample

    @classmethod
    def of(
        cls, data: Dataset, p: float, directions: Tensor, tolerance: float
    ) -> tuple[ClusterField, Tensor]:
        """The clusters of a data set with known groups, and the place of neurons (h, dim) there.

        For p = 1 the noise is at least `tolerance` times the longest mean: with less, neurons that
        rest where a cluster is just inactive would jump to and fro about the kink.
        """
        rule = "be known for method='mixture'"
        known = _check.instance("train.group", data.group, Tensor, rule)
        used, group = torch.unique(known, return_inverse=True)
        count = torch.bincount(group, minlength=len(used)).double()
        sums = torch.zeros(len(used), data.dim, dtype=data.x.dtype).index_add_(0, group, data.x)
        means = sums.double() / count[:, None]
        label = torch.zeros(len(used), dtype=torch.float64)
        label.index_add_(0, group, data.y.double())
        pure = bool((label.abs() == count).all())
        _check.require(pure, "train.group", "have one label in each group", "mixed labels")
        squares = float((data.x * data.x).sum(1).double().sum())
        within = squares - float((count[:, None] * means**2).sum())
        noise = math.sqrt(max(within, 0.0) / max(1, (len(data) - len(used)) * data.dim))
        if p == 1.0:
            noise = max(noise, tolerance * float(torch.linalg.vector_norm(means, dim=1).max()))
        basis = torch.linalg.qr(means.T).Q.T.contiguous()
        frame, place = SubspaceFrame.of(directions, basis)
        share = count / len(data)
        return cls(frame, means @ basis.T, share, label.sign(), noise, p, group), place

    @property
    def growth_rate_bound(self) -> float:
        """The growth of the fastest direction, among the means and the class averages."""
        sums = [self.means[self.label * sign > 0].sum(0, keepdim=True) for sign in (1.0, -1.0)]
        candidates = torch.cat([self.means, *sums])
        candidates = candidates[candidates.any(1)]
        if len(candidates) == 0:
            return 1e-300
        rest = torch.zeros(len(candidates), 1, dtype=candidates.dtype)
        return float(self.pull(torch.cat([unit_rows(candidates), rest], 1), self.share)[1].max())

    def moments(self, inner: Tensor) -> tuple[Tensor, Tensor]:
        """I_{p-1} and I_p at m = `inner`, elementwise."""
        if self.noise == 0.0:
            r = torch.relu(inner)
            low = (inner > 0).double() if self.p == 1.0 else r ** (self.p - 1.0)
            return low, low * r
        if self.p == round(self.p):
            return self._recursion(inner)
        return self._quadrature(inner)

    def _recursion(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """I_0 = Phi(m/s), I_1 = m Phi + s phi, I_r = m I_{r-1} + (r-1) s^2 I_{r-2}."""
        scaled = m / self.noise
        below = torch.special.ndtr(scaled)
        density = torch.exp(-0.5 * scaled * scaled) / math.sqrt(2.0 * math.pi)
        last, now = below, m * below + self.noise * density
        for r in range(2, round(self.p) + 1):
            last, now = now, m * now + (r - 1) * self.noise**2 * last
        return last, now

    def _quadrature(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """I_r = s^r integral of t^r phi(t - m/s) over t > 0, by Gauss-Legendre where phi is not 0.

        The substitution t = low + width v^2 takes the edge off t^r at t = 0.
        """
        nodes, weights = _legendre_nodes()
        v, dv = (nodes + 1.0) / 2.0, weights / 2.0
        center = (m / self.noise)[..., None]
        low = (center - _TAIL_DEVIATIONS).clamp(min=0.0)
        width = center.clamp(min=0.0) + _TAIL_DEVIATIONS - low
        t = low + width * v * v
        density = torch.exp(-0.5 * (t - center) ** 2) / math.sqrt(2.0 * math.pi)
        element = density * 2.0 * v * dv * width
        lower = t ** (self.p - 1.0) * element
        scale = self.noise ** (self.p - 1.0)
        return scale * lower.sum(-1), scale * self.noise * (lower * t).sum(-1)

    def outputs(self, place: Tensor, contribution: Tensor) -> Tensor:
        """f at the clusters, (K,): the mean of f over each one's noise."""
        return contribution @ self.moments(place[:, :-1] @ self.means.T)[1]

    def of_groups(self, share: Tensor, place: Tensor) -> tuple[ClusterField, Tensor]:
        """The field for groups of the neurons, of which `share` (k, h) has the weights, and where.

        A group is at the mean of its neurons' directions; the second result are those places.
        """
        frame, found, _ = self.frame.of_groups(share, place)
        return replace(self, frame=frame), found

    def distances(self, place: Tensor) -> Callable[[int], Tensor]:
        """How far neurons are from one of them, (h,).

        Two rests may have any directions, so that they count as if they were opposite.
        """
        inside, off = place[:, :-1], place[:, -1].abs()

        def distance(leader: int) -> Tensor:
            gap = (inside - inside[leader]).square().sum(1) + (off + off[leader]).square()
            return gap.sqrt()

        return distance

    def at_samples(self, outputs: Tensor) -> Tensor:
        """f on the training data, (n,), as far as the clusters tell it."""
        return outputs[self.group]

    def pull(self, place: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
        """G up to a multiple of u, (h, K + 1), and g, (h,), for q_k = `push` (K,)."""
        return self._pull_of(self.moments(place[:, :-1] @ self.means.T), push)

    def pull_with_outputs(
        self, place: Tensor, contribution: Tensor, push_of: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """G and g of all neurons for the push that their own outputs (K,) leave."""
        moments = self.moments(place[:, :-1] @ self.means.T)
        return self._pull_of(moments, push_of(contribution @ moments[1]))

    def _pull_of(self, moments: tuple[Tensor, Tensor], push: Tensor) -> tuple[Tensor, Tensor]:
        low, high = moments
        pull = self.p * ((low * push) @ self.means)
        return torch.nn.functional.pad(pull, (0, 1)), high @ push

    def constant_pull(self, push: Tensor, tolerance: float) -> ConstantClusterPull:
        """The pull of a push (K,) that stays as it is, which is exact at any tolerance."""
        del tolerance
        return ConstantClusterPull(self, push)

    def push(self, loss: Loss, outputs: Tensor, rate: float) -> Tensor:
        """q_k = -l'(y f) y n_k/n, times `rate`."""
        return rate * self.share * negative_slopes(loss, outputs, self.label)

    def loss(self, loss: Loss, outputs: Tensor) -> float:
        """The mean loss, with f at each cluster's mean output."""
        margin = self.label * outputs
        if loss.name == "exp":
            return float((self.share * torch.exp(-margin)).sum())
        return float((-self.share * torch.nn.functional.logsigmoid(margin)).sum())


@dataclass(frozen=True, eq=False)
class ConstantClusterPull:
    """The pull of clusters with a constant push, which needs no correction."""

    clusters: ClusterField
    push: Tensor

    @property
    def p(self) -> float:
        """The network's power."""
        return self.clusters.p

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor) -> None:
        """Do nothing: all clusters are used for every pull."""

    def correct(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Do nothing."""

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G up to a multiple of u, (k, K + 1), and g, (k,)."""
        del rows
        return self.clusters.pull(place, self.push)


@functools.cache
def _legendre_nodes() -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre: an eigenvalue problem, solved once."""
    nodes, weights = np.polynomial.legendre.leggauss(_QUADRATURE_NODES)
    return torch.from_numpy(nodes), torch.from_numpy(weights)
