"""Losses: their value, their slope in a network's outputs, their gradient in its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet

# Whole data sets are passed through a network so many points at a time, to bound memory.
_POINTS_PER_BATCH = 4096


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes; at least one."""
    _check.module("net", net)
    parts = {name: part for name, part in net.named_parameters() if part.requires_grad}
    _check.require(bool(parts), "net", "have a parameter that is not frozen", "none")
    return parts


def loss_and_gradient(
    net: nn.Module, x: Tensor, y: Tensor, loss: LossName | Function | Loss
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss on (x, y) and its gradient, one tensor for each trainable parameter.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    - `loss`: "exp", "logistic" or "cross-entropy", a function of outputs and labels, or a `Loss`.
    """
    used, parts = as_loss(loss), trainable(net)
    if isinstance(net, PReLUNet):
        found = net.parameter_gradient(x, lambda out: used.slope(out, y))
        return used.value(found.out, y), {name: getattr(found, name) for name in parts}
    with torch.enable_grad():
        value = used.value(net(x), y)
        gradients = torch.autograd.grad(value, list(parts.values()))
    return value.detach(), dict(zip(parts, gradients, strict=True))


def outputs_on(net: nn.Module, data: Dataset) -> Tensor:
    """f on a whole data set, (n,) or (n, C) in float64, in batches so that memory stays bounded."""
    with torch.no_grad():
        return torch.cat([net(x).double() for x in data.x.split(_POINTS_PER_BATCH)])


def total_loss(net: nn.Module, data: Dataset, loss: Loss) -> float:
    """The loss on a whole data set.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `data`: a `Dataset`, with points in the network's own dtype.
    - `loss`: a `Loss`; a name alone is not taken.
    """
    return float(loss.value(outputs_on(net, data), data.y))


# The losses that can be asked for by name, as type checkers see them.
LossName = Literal["exp", "logistic", "cross-entropy"]
# A `Loss` without a function of its own must have one of these names.
LOSS_NAMES = ("exp", "logistic", "cross-entropy")
Function = Callable[[Tensor, Tensor], Tensor]  # of outputs and labels: the loss of each sample


@dataclass(frozen=True)
class Loss:
    """The mean or the sum of l over the samples.

    "exp": exp(-y f) and "logistic": log(1 + exp(-y f)), for one output and labels -1 / +1;
    "cross-entropy" for C outputs and labels 0..C-1. With a `function` l is that one, of outputs
    (n,) or (n, C) and labels, returning (n,), and the name is only a name; its slope is autograd's.
    Under gradient flow a sum instead of a mean only multiplies time by the number of samples.
    """

    name: str  # one of the three, or any name for a `function`
    reduction: Literal["mean", "sum"] = "mean"  # "mean" or "sum" over the samples
    function: Function | None = None

    def __post_init__(self) -> None:
        if self.function is None:
            _check.choice("loss", self.name, LOSS_NAMES)
        else:
            _check.require(callable(self.function), "function", "be callable", self.function)
        _check.choice("reduction", self.reduction, ("mean", "sum"))

    def check(self, outputs: int) -> None:
        """Require that the loss fits a network's number of `outputs`."""
        if self.function is not None:
            return
        single = outputs == 1
        fits = single != (self.name == "cross-entropy")
        rule = "be 'exp' or 'logistic' for one output and 'cross-entropy' for several"
        _check.require(fits, "loss", rule, f"{self.name!r} for {outputs} outputs")

    def value(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of outputs `out` with labels `y` (n,), a scalar that autograd can follow."""
        each = self.each(out, y)
        return each.mean() if self.reduction == "mean" else each.sum()

    def slope(self, out: Tensor, y: Tensor) -> Tensor:
        """The derivative of the loss in the outputs, of the shape of `out`, for labels `y` (n,)."""
        if self.function is not None:
            with torch.enable_grad():
                point = out.detach().requires_grad_(True)
                (slope,) = torch.autograd.grad(self.value(point, y), point)
            return slope
        share = 1.0 / len(out) if self.reduction == "mean" else 1.0
        # The share comes last: a number times whole labels would be rounded to float32.
        if self.name == "exp":
            return -share * (y * torch.exp(-y * out))
        if self.name == "logistic":
            return -share * (y * torch.sigmoid(-y * out))
        own = nn.functional.one_hot(y, out.shape[1])
        return share * (torch.softmax(out, 1) - own)

    def each(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, (n,), with outputs `out` and labels `y` (n,)."""
        if self.function is not None:
            found = self.function(out, y)
            good = isinstance(found, Tensor) and found.shape == out.shape[:1]
            seen = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
            _check.require(good, "loss", f"return the loss of each sample, ({len(out)},)", seen)
            return found
        if self.name == "exp":
            return torch.exp(-y * out)
        if self.name == "logistic":
            return -nn.functional.logsigmoid(y * out)
        return nn.functional.cross_entropy(out, y, reduction="none")


def as_loss(loss: LossName | Function | Loss) -> Loss:
    """A `Loss` from its name or function (then the mean), or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if callable(loss):
        return Loss(getattr(loss, "__name__", type(loss).__name__), function=loss)
    return Loss(loss)


def negative_slopes(loss: Loss, outputs: Tensor, label: Tensor) -> Tensor:
    """-l'(y f) y for each output: how hard a sample pulls the network to its side."""
    if loss.name == "exp":
        return label * torch.exp(-label * outputs)
    return label * torch.sigmoid(-label * outputs)
