"""A floor for networks that nothing else is known of: margin over Lipschitz constant."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.certify.l2_problem import Perturbation, TargetPairs, span_of_squares
from extremal.models import relu_power, relu_power_with_slope

# The largest slope of each activation; GELU's is at sqrt(2).
SLOPES: dict[type[nn.Module], float] = {
    nn.ReLU: 1.0,
    nn.LeakyReLU: 1.0,
    nn.Tanh: 1.0,
    nn.Sigmoid: 0.25,
    nn.ELU: 1.0,
    nn.Softplus: 1.0,
    nn.GELU: 1.1290,
    nn.SiLU: 1.0999,
    nn.Identity: 1.0,
    nn.Flatten: 1.0,
    nn.Dropout: 1.0,
}


def is_chain(net: nn.Module) -> bool:
    """Whether `lipschitz_radii` knows the network: linear layers, at least one, and activations.

    They may stand in an nn.Sequential, or in several within each other.
    """
    layers = _layers(net)
    return all(map(_known, layers)) and any(type(layer) is nn.Linear for layer in layers)


def lipschitz_radii(net: nn.Module, margins: Tensor, norm: str, dim: int) -> Tensor:
    """Radii (n,) for margins (n,): margin / (sqrt(2) L), L the product of the layers' norms.

    Zero where a margin is not positive.

    L is the l2 Lipschitz constant of an nn.Sequential of linear layers and known activations; two
    outputs differ by at most sqrt(2) L, one output by L. A ball in linf of radius e lies in one of
    e sqrt(dim) in l2, a ball in l1 in one of e.
    """
    layers = _layers(net)
    strange = next((layer for layer in layers if not _known(layer)), net)
    _check.require(is_chain(net), "net", _rule(), type(strange).__name__)
    outputs = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    constant = 1.0 if outputs[-1] == 1 else math.sqrt(2.0)
    for layer in layers:
        constant *= _slope(layer)
    radii = margins.clamp(min=0.0) / max(constant, 1e-300) * (1.0 - 1e-9)
    return radii / math.sqrt(dim) if norm == "linf" else radii


def lipschitz_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """M(0) - rho L for pairs of a shallow network, (m,), L a bound on ||grad M|| in the ball.

    L = lambda_1(U U')^(1/2) || (|a_j| p relu(s_j + rho)^(p-1))_j ||; the term of normalised inputs
    at its least. The move is of no use to it.
    """
    rho = pairs.radius.unsqueeze(1)
    slope = relu_power_with_slope(pairs.s + rho, pairs.p)[1]
    largest = torch.linalg.eigvalsh(pairs.gram)[-1]
    steep = largest.sqrt() * torch.linalg.vector_norm(pairs.a * slope, dim=1)
    low, high = (end**pairs.power for end in span_of_squares(pairs.square, pairs.radius))
    level = (pairs.a * relu_power(pairs.s, pairs.p)).sum(1)
    return level + torch.minimum(pairs.beta * low, pairs.beta * high) - pairs.radius * steep


def _layers(net: nn.Module) -> list[nn.Module]:
    """The layers in their order, without the nn.Sequentials around them."""
    if isinstance(net, nn.Sequential) and type(net).forward is nn.Sequential.forward:
        return [layer for part in net for layer in _layers(part)]
    return [net]


def _known(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear or type(layer) in SLOPES


def _slope(layer: nn.Module) -> float:
    if isinstance(layer, nn.Linear):
        return float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    if isinstance(layer, nn.LeakyReLU):
        return max(1.0, abs(layer.negative_slope))
    if isinstance(layer, nn.ELU):
        return max(1.0, abs(layer.alpha))
    return SLOPES[type(layer)]


def _rule() -> str:
    names = ", ".join(kind.__name__ for kind in SLOPES)
    return f"be a PReLUNet, a Grouped one, or an nn.Sequential of Linear, {names}"
