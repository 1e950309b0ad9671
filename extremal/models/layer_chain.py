"""Chains of linear layers and known activations: their Lipschitz constants, and their rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import rounding_share

# The largest slope of each activation; GELU's is at sqrt(2).
ACTIVATION_SLOPES: dict[type[nn.Module], float] = {
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
# Layers that move numbers or set them to zero, and round nothing.
_EXACT_LAYERS = (nn.ReLU, nn.Identity, nn.Flatten, nn.Dropout)
# An activation is computed to so many roundings of 1 + |its value|.
_ACTIVATION_ROUNDINGS = 16.0


def chain_layers(net: nn.Module) -> list[nn.Module]:
    """The layers in their order, without the nn.Sequentials around them.

    Arguments:

    - `net`: any module; one that is no plain nn.Sequential is a layer itself.
    """
    if isinstance(net, nn.Sequential) and type(net).forward is nn.Sequential.forward:
        return [layer for part in net for layer in chain_layers(part)]
    return [net]


def is_chain(net: nn.Module) -> bool:
    """Whether a network is of linear layers, at least one, and known activations.

    They may stand in an nn.Sequential, or in several within each other.

    Arguments:

    - `net`: any module.
    """
    layers = chain_layers(net)
    return all(map(_is_known, layers)) and any(type(layer) is nn.Linear for layer in layers)


def check_chain(net: nn.Module) -> None:
    """Require a network for which `is_chain` holds; the error names the first other layer.

    Arguments:

    - `net`: any module.
    """
    strange = next((layer for layer in chain_layers(net) if not _is_known(layer)), net)
    names = ", ".join(kind.__name__ for kind in ACTIVATION_SLOPES)
    rule = f"be a PReLUNet, a Grouped one, or an nn.Sequential of Linear, {names}"
    _check.require(is_chain(net), "net", rule, type(strange).__name__)


def chain_lipschitz(net: nn.Module) -> float:
    """A bound on how fast the margin of a chain changes, in l2.

    The product of the layers' norms and slopes, times sqrt(2) where there are several outputs, two
    of which a margin takes.

    Arguments:

    - `net`: a network for which `is_chain` holds.
    """
    return _outputs_taken(net) * math.prod(_layer_lipschitz(layer) for layer in chain_layers(net))


def chain_rounding(net: nn.Module, reach: Tensor, dtype: torch.dtype) -> Tensor:
    """How far rounding may put a chain's margin from the exact one at inputs of norm <= reach (n,).

    Layer by layer, of what is known of the l2 norms of values and of their errors: a linear layer
    of k inputs adds k + 1 roundings of |W| |x| + |b|, whose norm is at most ||W||_F ||x|| + ||b||,
    and stretches the error that it is given by ||W||_2; sums may be taken in any order.

    Arguments:

    - `net`: a network for which `is_chain` holds.
    - `reach`: bounds on the l2 norms of inputs, (n,) float64.
    - `dtype`: the floating-point type that the network runs in.
    """
    limits = torch.finfo(dtype)
    layers, size, error = chain_layers(net), reach, torch.zeros_like(reach)
    width = next(layer.in_features for layer in layers if isinstance(layer, nn.Linear))
    for layer in layers:
        slope = _layer_lipschitz(layer)
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach().double()
            bias = 0.0 if layer.bias is None else float(layer.bias.detach().double().norm())
            share = rounding_share(layer.in_features + 2, dtype)
            lost = limits.tiny * (layer.in_features + 1) * math.sqrt(layer.out_features)
            error = slope * error + share * (float(weight.norm()) * (size + error) + bias) + lost
            size, width = slope * size + bias, layer.out_features
            error = torch.where(size + error < limits.max, error, torch.inf)
        elif not isinstance(layer, _EXACT_LAYERS):
            at_zero = float(layer(torch.zeros((), dtype=torch.float64)).abs())
            size = slope * size + at_zero * math.sqrt(width)
            each = rounding_share(_ACTIVATION_ROUNDINGS, dtype)
            error = slope * error + each * (size + math.sqrt(width))
            if isinstance(layer, nn.Softplus):  # which is linear from its threshold on
                jump = math.log1p(math.exp(-layer.threshold)) / layer.beta
                error = error + jump * math.sqrt(width)
    return _outputs_taken(net) * error


def _outputs_taken(net: nn.Module) -> float:
    """The norm of what a margin takes of the outputs: one of them, or the difference of two."""
    last = [layer for layer in chain_layers(net) if isinstance(layer, nn.Linear)][-1]
    return 1.0 if last.out_features == 1 else math.sqrt(2.0)


def _is_known(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear or type(layer) in ACTIVATION_SLOPES


def _layer_lipschitz(layer: nn.Module) -> float:
    if isinstance(layer, nn.Linear):
        return float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2))
    if isinstance(layer, nn.LeakyReLU):
        return max(1.0, abs(layer.negative_slope))
    if isinstance(layer, nn.ELU):
        return max(1.0, abs(layer.alpha))
    return ACTIVATION_SLOPES[type(layer)]
