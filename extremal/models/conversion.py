"""Networks that were trained elsewhere, or in other units, as `PReLUNet`s of the inputs here."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._files import as_path
from extremal.models.classification_margin import float64_copy
from extremal.models.initialisation import Explicit
from extremal.models.layer_chain import chain_layers
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import Preparation
from extremal.models.provable_constructions import KnowsRadii
from extremal.models.readouts import Grouped

# The tensors of a checkpoint of Min & Vidal 2024's code, with their shapes.
_CHECKPOINT_TENSORS = {
    "center": "(1, D)",
    "prelulayer.W": "(D, h)",
    "output_net.weight": "(C, h)",
    "output_net.bias": "(C,)",
}

# What such a checkpoint must do, as errors say it.
_CHECKPOINT_RULE = "hold a state dict of " + ", ".join(
    f"{name} {shape}" for name, shape in _CHECKPOINT_TENSORS.items()
)


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
    state = _checkpoint(as_path(path))
    center, neurons = state["center"], state["prelulayer.W"]
    votes, bias = state["output_net.weight"], state["output_net.bias"]
    sizes = ", ".join(str(tuple(part.shape)) for part in state.values())
    flat = center.ndim == 2 and len(center) == 1 and neurons.ndim == votes.ndim == 2
    _check.require(flat and bias.ndim == 1, "path", _CHECKPOINT_RULE, sizes)
    fits = center.shape[1] == len(neurons) and neurons.shape[1] == votes.shape[1]
    _check.require(fits and len(votes) == len(bias), "path", _CHECKPOINT_RULE, sizes)
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
    beginning and Dropouts, which do nothing once trained, are passed over, and so is a Flatten(0)
    after one output. The weights are copied. One output means labels -1 / +1, several mean 0..C-1.
    """
    layers = _active_layers(module)
    kinds = [type(layer) for layer in layers]
    rule = "be nn.Sequential of Linear, ReLU, Linear (Flatten first, Dropout anywhere)"
    good = kinds == [nn.Linear, nn.ReLU, nn.Linear]
    seen = ", ".join(kind.__name__ for kind in kinds) or type(module).__name__
    _check.require(good, "module", rule, seen)
    first = _check.instance("module[0]", layers[0], nn.Linear, rule)
    last = _check.instance("module[-1]", layers[-1], nn.Linear, rule)
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


def recognised(net: nn.Module) -> nn.Module:
    """The network itself, or the `PReLUNet` that a two-layer ReLU network of PyTorch is.

    What `from_torch` takes becomes what it returns, also within a `Grouped` one: the same function,
    of which attacks and certificates know the neurons. Any other network is returned as it is, and
    so is one that knows its own radii.

    Arguments:

    - `net`: any module.
    """
    if isinstance(net, Grouped):
        inner = recognised(net.net)
        return net if inner is net.net else Grouped(inner, net.groups, signed=net.signed)
    layers = [] if isinstance(net, KnowsRadii) else _active_layers(net)
    if [type(layer) for layer in layers] != [nn.Linear, nn.ReLU, nn.Linear]:
        return net
    first, last = layers[0], layers[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    same = first.out_features == last.in_features and first.weight.dtype == last.weight.dtype
    return from_torch(net) if same else net


def network_name(net: nn.Module) -> str:
    """The kind of a network, and what it is `recognised` as, in words.

    Arguments:

    - `net`: any module.
    """
    read, name = recognised(net), type(net).__name__
    return name if read is net else f"{name}, read as a {type(read).__name__}"


def rescaled(net: PReLUNet, center: Tensor | None, scale: Tensor) -> PReLUNet:
    """The network of z = scale * (x - center) as one of x, in float64: the same function.

    Without normalising, <w, z> = <scale w, x - center>, and ||w||^(p-1) becomes
    ||scale w||^(p-1), for which votes make up: the scale of each coordinate is part of the weights,
    so that attacks and certificates are exact in the units of x. A neuron with weights on
    coordinates of scale 0 only is a constant, v relu(b)^p / ||w||^(p-1), which for p > 1 becomes
    part of the output bias.

    With normalising, the scale is one number. Coordinates of scale 0 lose their weights but still
    count in ||z||: the function is the same at points that agree with the centre there.

    Arguments:

    - `net`: a `PReLUNet` whose preparation does nothing but normalise; it is left as it is.
    - `center`: (dim,), in the units of x, or None for zero.
    - `scale`: (dim,), numbers of at least 0. Where the network normalises, all that are not 0 must
      be equal.
    """
    _check.instance("net", net, PReLUNet, "be a PReLUNet")
    normalize = net.preparation.normalize
    plain = net.preparation.scale == 1.0 and net.preparation.center is None
    _check.require(plain, "net", "have a preparation without scale and center", net.preparation)
    if center is not None:
        _check.tensor("center", center, (net.dim,))
    scale = _check.tensor("scale", scale, (net.dim,))
    _check.require(bool((scale >= 0).all()), "scale", "be >= 0", f"entry {float(scale.min()):g}")
    used = scale > 0
    one = normalize == 0 or len(scale[used].unique()) <= 1
    _check.require(one, "scale", "be one number where the network normalises", "several")
    with torch.no_grad():
        neurons, votes = net.neurons.double(), net.votes.double()
        moved = neurons * (used if normalize > 0 else scale)
        lengths = (moved.norm(dim=1), neurons.norm(dim=1))
        ratio = lengths[0] / torch.where(lengths[1] > 0, lengths[1], 1.0)
        bias = _bias_with_constants(net, lengths[0] == 0)
        init = Explicit(moved, votes * ratio ** (net.p - 1.0), net.hidden_bias, bias)
    unit = float(scale.max()) if normalize > 0 and bool(used.any()) else 1.0
    return PReLUNet(
        net.dim,
        net.width,
        net.p,
        net.outputs,
        bias=bias is not None,
        hidden_bias=net.hidden_bias is not None,
        preparation=Preparation(unit, center, normalize),
        init=init,
        dtype=torch.float64,
        generator=torch.Generator(),
    )


def _bias_with_constants(net: PReLUNet, constant: Tensor) -> Tensor | None:
    """The output bias plus what the neurons marked in `constant` (width,) give at z = 0.

    For p = 1 a neuron without weights keeps its constant, and nothing is added.
    """
    if net.p == 1.0 or net.hidden_bias is None or not bool(constant.any()):
        return net.bias
    exact = float64_copy(net)
    hidden = exact.hidden(torch.zeros(1, net.dim, dtype=torch.float64, device=constant.device))[0]
    added = exact.votes @ torch.where(constant, hidden, 0.0)
    return added if exact.bias is None else exact.bias + added


def _checkpoint(path: os.PathLike[str]) -> dict[str, Tensor]:
    """The four tensors of a checkpoint."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a spoilt pickle may raise any, such as KeyError or struct.error
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"path must be a checkpoint of tensors, got {path} ({why})") from None
    _check.instance("path", state, Mapping, _CHECKPOINT_RULE)
    for name in _CHECKPOINT_TENSORS:
        _check.require(isinstance(state.get(name), Tensor), "path", _CHECKPOINT_RULE, f"no {name}")
        _check.finite(name, state[name])
    return {name: state[name] for name in _CHECKPOINT_TENSORS}


def _active_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a chain that do anything to a vector, or to the one output in the end."""
    if not isinstance(module, nn.Sequential):
        return []
    idle = nn.Dropout | nn.Identity
    layers = [layer for layer in chain_layers(module) if not isinstance(layer, idle)]
    if layers and isinstance(layers[0], nn.Flatten):
        layers = layers[1:]
    before, last = layers[-2:-1], layers[-1:]
    if before and isinstance(before[0], nn.Linear) and before[0].out_features == 1:
        squeezing = isinstance(last[0], nn.Flatten) and last[0].start_dim == 0
        layers = layers[:-1] if squeezing else layers
    return layers
