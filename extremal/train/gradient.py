"""The loss and its gradient in the trainable parameters, by hand where we know how."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.losses import Loss

_BATCH = 4096


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes; at least one."""
    _check.module("net", net)
    parts = {name: part for name, part in net.named_parameters() if part.requires_grad}
    _check.require(bool(parts), "net", "have a parameter that is not frozen", "none")
    return parts


def loss_and_gradient(
    net: nn.Module, x: Tensor, y: Tensor, loss: Loss
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss on (x, y) and its gradient, one tensor for each trainable parameter."""
    parts = trainable(net)
    if isinstance(net, PReLUNet):
        found = net.parameter_gradient(x, lambda out: loss.slope(out, y))
        return loss.value(found.out, y), {name: getattr(found, name) for name in parts}
    with torch.enable_grad():
        value = loss.value(net(x), y)
        gradients = torch.autograd.grad(value, list(parts.values()))
    return value.detach(), dict(zip(parts, gradients, strict=True))


def all_outputs(net: nn.Module, data: Dataset) -> Tensor:
    """f on a whole data set, (n,) or (n, C) in float64, in batches so that memory stays bounded."""
    with torch.no_grad():
        return torch.cat([net(x).double() for x in data.x.split(_BATCH)])


def total_loss(net: nn.Module, data: Dataset, loss: Loss) -> float:
    """The loss on a whole data set."""
    return float(loss.value(all_outputs(net, data), data.y))
