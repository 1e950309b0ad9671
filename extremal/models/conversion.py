"""Networks that were trained elsewhere, as `PReLUNet`s that can be attacked and certified."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._files import as_path
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import Preparation

_PARTS = {
    "center": "(1, D)",
    "prelulayer.W": "(D, h)",
    "output_net.weight": "(C, h)",
    "output_net.bias": "(C,)",
}
_AUTHORS = "hold a state dict of " + ", ".join(f"{name} {form}" for name, form in _PARTS.items())
_SHAPE = "be nn.Sequential of Linear, ReLU, Linear (Flatten first, Dropout anywhere)"


def from_authors(path: str | os.PathLike[str], p: float) -> PReLUNet:
    """A network from a checkpoint of Min & Vidal 2024's own code; p is not in the file.

    A state dict of `center` (1, D), `prelulayer.W` (D, h), `output_net.weight` (C, h) and
    `output_net.bias` (C,): hidden values relu(<w_j, x - c>)^p / (||w_j|| ||x - c||)^(p-1). Only
    tensors are read from the file: PyTorch's weights-only reader runs no code in it.

    Arguments:

    - `path`: of the checkpoint; a ValueError if it can't be read or has other parts.
    - `p`: the power that the network was trained with, at least 1.
    """
    p = _check.number("p", p, minimum=1.0)
    state = _state(as_path(path))
    center, neurons = state["center"], state["prelulayer.W"]
    votes, bias = state["output_net.weight"], state["output_net.bias"]
    sizes = ", ".join(str(tuple(part.shape)) for part in state.values())
    flat = center.ndim == 2 and len(center) == 1 and neurons.ndim == votes.ndim == 2
    _check.require(flat and bias.ndim == 1, "path", _AUTHORS, sizes)
    fits = center.shape[1] == len(neurons) and neurons.shape[1] == votes.shape[1]
    _check.require(fits and len(votes) == len(bias), "path", _AUTHORS, sizes)
    return PReLUNet(
        len(neurons),
        neurons.shape[1],
        p,
        len(votes),
        bias=True,
        preparation=Preparation.for_power(p, center=center[0]),
        init=Explicit(neurons.T, votes, None, bias),
        dtype=neurons.dtype,
        generator=torch.Generator(),
    )


def from_torch(module: nn.Module) -> PReLUNet:
    """A two-layer ReLU network of PyTorch as a `PReLUNet` with p = 1, which computes the same.

    `module` is an nn.Sequential of Linear, ReLU, Linear, with or without biases; a Flatten at the
    beginning and Dropouts, which do nothing once trained, are passed over. The weights are copied.
    One output means labels -1 / +1, several mean 0..C-1.
    """
    layers = _layers(module)
    kinds = [type(layer) for layer in layers]
    good = kinds == [nn.Linear, nn.ReLU, nn.Linear]
    seen = ", ".join(kind.__name__ for kind in kinds) or type(module).__name__
    _check.require(good, "module", _SHAPE, seen)
    first, _, last = layers
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    fits = first.out_features == last.in_features
    sizes = f"{first.out_features} and {last.in_features}"
    _check.require(fits, "module", "have as many values between its layers on both sides", sizes)
    return PReLUNet(
        first.in_features,
        first.out_features,
        1.0,
        last.out_features,
        bias=bool(last.bias is not None),
        hidden_bias=bool(first.bias is not None),
        init=Explicit(first.weight, last.weight, first.bias, last.bias),
        dtype=first.weight.dtype,
        generator=torch.Generator(),
    )


def _state(path: os.PathLike[str]) -> dict[str, Tensor]:
    """The four tensors of a checkpoint."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a spoilt pickle may raise any, such as KeyError or struct.error
        told = " ".join(str(error).split())[:200]
        raise ValueError(f"path must be a checkpoint of tensors, got {path} ({told})") from None
    found = isinstance(state, Mapping)
    _check.require(found, "path", _AUTHORS, type(state).__name__)
    for name in _PARTS:
        _check.require(isinstance(state.get(name), Tensor), "path", _AUTHORS, f"no {name}")
        _check.finite(name, state[name])
    return {name: state[name] for name in _PARTS}


def _layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain that do anything to a vector."""
    if not isinstance(module, nn.Sequential):
        return []
    layers = [layer for layer in module if not isinstance(layer, nn.Dropout | nn.Identity)]
    return layers[1:] if layers and isinstance(layers[0], nn.Flatten) else layers
