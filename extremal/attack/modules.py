"""Networks in the shapes that others expect: vectors for ours, images and two logits for theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from extremal import _check


class Flat(nn.Module):
    """A network of inputs (n, *shape), such as images, as one of vectors (n, dim)."""

    def __init__(self, net: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.net = _check.module("net", net)
        rule = "be a sequence of sizes, such as (1, 28, 28)"
        good = isinstance(shape, Sequence) and len(shape) >= 1 and not isinstance(shape, str)
        _check.require(good, "shape", rule, shape)
        self.shape = tuple(_check.integer("shape", size, minimum=1) for size in shape)

    def forward(self, x: Tensor) -> Tensor:
        """net(x reshaped), of whatever shape it gives."""
        rule = f"be a tensor of shape (n, {math.prod(self.shape)})"
        _check.instance("x", x, Tensor, rule)
        fits = x.ndim == 2 and x.shape[1] == math.prod(self.shape)
        _check.require(fits, "x", rule, f"shape {tuple(x.shape)}")
        return self.net(x.reshape(len(x), *self.shape))


class _Logits(nn.Module):
    """A network of vectors as one of inputs of any shape with two or more logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x.flatten(1))
        return torch.stack([-0.5 * out, 0.5 * out], dim=1) if out.ndim == 1 else out


def as_module(net: nn.Module) -> nn.Module:
    """The network as other tools want it: inputs (n, ...), of any shape, and logits (n, C), C >= 2.

    Inputs are flattened to (n, dim). One output f becomes (-f/2, f/2), whose softmax is the
    logistic sigmoid of f; its labels -1 / +1 become 0 / 1 (`as_classes`). Parameters are shared
    with `net`.
    """
    return _Logits(_check.module("net", net))


def as_classes(y: Tensor) -> Tensor:
    """Labels for `as_module`, (n,) int64: -1 / +1 as 0 / 1, classes 0..C-1 as they are.

    Labels that are all 1 may be of either kind, and stay 1 in both.
    """
    _check.instance("y", y, Tensor, "be a tensor of labels")
    y = _check.labels("y", y, count=len(y))
    return torch.where(y < 0, 0, y)
