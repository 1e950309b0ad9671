"""The margin: one idea that carries attacks, certificates and accuracies for every network."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.convolutional import PatchCNN
from extremal.models.prelu_net import PReLUNet

Network = TypeVar("Network", bound=nn.Module)

HasInputGradient = PReLUNet | PatchCNN
"""Networks with an `input_gradient` by hand."""


def margin(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """How far each point is on its own side, (n,): correct where it is positive.

    y f(x) for one output and labels -1 / +1; f_y(x) - max over t != y of f_t(x) for several outputs
    and labels 0..C-1.

    Arguments:

    - `net`: any module from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    """
    _check_pair(net, x)
    return output_margins(net(x), y)


def output_margins(out: Tensor, y: Tensor) -> Tensor:
    """The margins (n,) of a network's outputs, (n,) or (n, C) with C >= 2.

    Arguments:

    - `out`: outputs of one of these shapes; others are refused.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    """
    check_outputs(out)
    y = _labels_for(out, y)
    if out.ndim == 1:
        return y * out
    own = out.gather(1, y.unsqueeze(1)).squeeze(1)
    return own - _without_own(out, y).amax(1)


def check_outputs(out: Tensor) -> None:
    """Require outputs of shape (n,), or (n, C) with C >= 2: one column could mean either kind.

    Arguments:

    - `out`: the tensor to look at; a wrong shape is a ValueError.
    """
    good = out.ndim == 1 or (out.ndim == 2 and out.shape[1] >= 2)
    rule = "have shape (n,) for one output (squeeze it), or (n, C) for C >= 2"
    _check.require(good, "net(x)", rule, f"shape {tuple(out.shape)}")


def margin_gradient(net: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The margin (n,) and its gradient (n, dim) in x.

    By hand for a `PReLUNet` or a `PatchCNN`, by autograd for any other module. Where two foreign
    outputs tie, one of them is taken.

    Arguments:

    - `net`: any module from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    """
    _check_pair(net, x)
    if isinstance(net, HasInputGradient):
        return _gradient_by_hand(net, x, y)
    with torch.enable_grad():
        point = x.detach().requires_grad_(True)
        value = margin(net, point, y)
        (gradient,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), gradient


def float64_copy(net: Network) -> Network:
    """A float64 copy of a network in evaluation mode; the original is left as it is.

    Arguments:

    - `net`: any module. The parameters of its copy are frozen (they ask for no gradient).
    """
    _check.module("net", net)
    twin = copy.deepcopy(net).double().eval()
    for parameter in twin.parameters():
        parameter.requires_grad_(False)
    return twin


def run_dtype(net: nn.Module, x: Tensor) -> torch.dtype:
    """The dtype that a network runs in: that of its weights, or of the points without any.

    Arguments:

    - `net`: any module; its first floating-point parameter tells.
    - `x`: points (n, dim).
    """
    weights = (part.dtype for part in net.parameters() if part.is_floating_point())
    return next(weights, x.dtype)


@contextmanager
def evaluation_mode(net: nn.Module) -> Iterator[None]:
    """Run what is inside with all parts of a network in evaluation mode; then as they were.

    Arguments:

    - `net`: any module.
    """
    modes = [(part, part.training) for part in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _check_pair(net: object, x: object) -> None:
    _check.module("net", net)
    _check.instance("x", x, Tensor, "be a tensor of points")


def _gradient_by_hand(net: HasInputGradient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if net.outputs == 1:
        sign = _labels_for(x[:, 0], y).to(x.dtype)
        out, gradient = net.input_gradient(x, sign)
        return sign * out.squeeze(1), gradient

    def own_minus_rival(out: Tensor) -> Tensor:
        own = _labels_for(out, y).unsqueeze(1)
        rival = _without_own(out, own.squeeze(1)).argmax(1, keepdim=True)
        return torch.zeros_like(out).scatter_(1, own, 1.0).scatter_(1, rival, -1.0)

    out, gradient = net.input_gradient(x, own_minus_rival)
    return output_margins(out, y), gradient


def _without_own(out: Tensor, y: Tensor) -> Tensor:
    """The outputs with each point's own one set to minus infinity."""
    own = nn.functional.one_hot(y, out.shape[1]).bool()
    return out.masked_fill(own, -torch.inf)


def _labels_for(out: Tensor, y: Tensor) -> Tensor:
    outputs = 1 if out.ndim == 1 else out.shape[1]
    return _check.labels("y", y, count=len(out), outputs=outputs).to(out.device)
