"""Averaged and decoupled features (Li et al. 2025) as networks, and readings of fine labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Clusters
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet


def decoupled_classifier(clusters: Clusters, *, threshold: float = 0.25) -> PReLUNet:
    """f_robust(x) = sum over j of y_j relu(<mu_j, x> + b_j), with b_j = -threshold ||mu_j||^2.

    One neuron for each cluster, whose bias filters the noise of its own and of the others (Li et
    al. 2025, "There exists the robust solution"). The talk gives no biases: thresholds from 0.2247
    to 0.2929 have the largest radius, see `theory.decoupled_radius`.
    """
    signs = _signs(clusters)
    share = _check.number("threshold", threshold, minimum=0.0, maximum=1.0)
    squares = clusters.centers.square().sum(1)
    return _network(clusters.centers, signs, -share * squares)


def averaged_classifier(
    clusters: Clusters, *, biases: tuple[float, float] = (0.0, 0.0)
) -> PReLUNet:
    """relu(<sum of mu_j over J_+, x> + b_+) - relu(<sum of mu_j over J_-, x> + b_-).

    The two neurons that feature averaging degenerates into (Li et al. 2025), with `biases`
    (b_+, b_-) in units of the features' mean squared length.
    """
    signs = _signs(clusters)
    rule = "be a pair of numbers"
    _check.require(isinstance(biases, tuple) and len(biases) == 2, "biases", rule, biases)
    unit = float(clusters.centers.square().sum(1).mean())
    offsets = torch.tensor([unit * _check.number("biases", b) for b in biases], dtype=torch.float64)
    sums = torch.stack([clusters.centers[signs == sign].sum(0) for sign in (1, -1)])
    return _network(sums, torch.tensor([1.0, -1.0], dtype=torch.float64), offsets)


def summed(net: PReLUNet, signs: Tensor) -> PReLUNet:
    """A fine-label network read as a binary one: the signed sum of its outputs, for -1 / +1.

    `signs` (outputs,) holds +1 or -1 for each. The result is a network of one output with the same
    neurons, so that all attacks and certificates apply; `Grouped` is the reading by argmax.
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    weight = _signs_of(signs, net.outputs).to(net.votes)
    bias = None if net.bias is None else (weight @ net.bias.detach()).unsqueeze(0)
    hidden = None if net.hidden_bias is None else net.hidden_bias.detach()
    votes = (weight @ net.votes.detach()).unsqueeze(0)
    return PReLUNet(
        net.dim,
        net.width,
        net.p,
        bias=bias is not None,
        hidden_bias=hidden is not None,
        preparation=net.preparation,
        init=Explicit(net.neurons.detach(), votes, hidden, bias),
        dtype=net.neurons.dtype,
        generator=torch.Generator(),
    )


class LogOdds(nn.Module):
    """log of the summed probabilities of the positive outputs, over that of the negative ones.

    A fine-label network's softmax read as a binary one: the objective of the attack that Li et al.
    2025 run on it, as -log of the true group's probability falls with y times this.
    """

    signs: Tensor

    def __init__(self, net: nn.Module, signs: Tensor) -> None:
        super().__init__()
        self.net = _check.module("net", net)
        count = getattr(net, "outputs", None)
        self.register_buffer("signs", _signs_of(signs, count))
        self.outputs = 1

    def forward(self, x: Tensor) -> Tensor:
        """(n,)."""
        out = self.net(x)
        return out[:, self.signs > 0].logsumexp(1) - out[:, self.signs < 0].logsumexp(1)


def _network(neurons: Tensor, signs: Tensor, offsets: Tensor) -> PReLUNet:
    return PReLUNet(
        neurons.shape[1],
        len(neurons),
        hidden_bias=True,
        init=Explicit(neurons, signs.double().unsqueeze(0), offsets),
        dtype=torch.float64,
        generator=torch.Generator(),
    )


def _signs(clusters: Clusters) -> Tensor:
    _check.instance("clusters", clusters, Clusters, "be Clusters")
    return _signs_of(clusters.labels, clusters.count, "labels of the clusters")


def _signs_of(signs: Tensor, count: int | None, name: str = "signs") -> Tensor:
    rule = "be a tensor of -1 and +1, both of them, one for each output"
    _check.instance(name, signs, Tensor, rule)
    both = signs.ndim == 1 and set(signs.tolist()) == {-1, 1}
    _check.require(both, name, rule, signs.tolist())
    right = count is None or len(signs) == count
    _check.require(right, name, f"have {count} entries", len(signs))
    return signs.to(torch.int64)
