"""How other libraries see our networks and points: points of the unit box, two or more logits."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack.ball import Ball
from extremal.attack.surrogate import surrogate_network


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
    logistic sigmoid of f; its labels -1 / +1 become 0 / 1 (`class_labels`). Parameters are shared
    with `net`.

    Arguments:

    - `net`: a `torch.nn.Module` from points (n, dim) to outputs (n,) or (n, C), C >= 2.
    """
    return _Logits(_check.module("net", net))


def class_labels(y: Tensor) -> Tensor:
    """Labels for `as_module`, (n,) int64: -1 / +1 as 0 / 1, classes 0..C-1 as they are.

    Labels that are all 1 may be of either kind, and stay 1 in both.

    Arguments:

    - `y`: labels (n,), whole numbers of any dtype: -1 / +1 or 0..C-1.
    """
    _check.instance("y", y, Tensor, "be a tensor of labels")
    y = _check.labels("y", y, count=len(y))
    return torch.where(y < 0, 0, y)


@dataclass(frozen=True, eq=False)
class UnitBox:
    """The map u = (x - low) / width, of one width for all coordinates, so that norms only scale.

    With a box, `low` is its lower end and `width` its largest side; a coordinate whose side is
    shorter is clamped before the network sees it, and when it comes back: that changes neither
    what the network says nor makes the norm larger. Without one, the frame is so wide that it
    never binds.
    """

    low: Tensor  # () or (dim,), float64
    high: Tensor | None  # the box's upper end, None without a box
    width: float

    @classmethod
    def around(cls, x: Tensor, ball: Ball, reach: float) -> UnitBox:
        """The frame of points x that may move by `reach` in each coordinate."""
        limits = ball.limits(x)
        if limits is not None:
            low, high = (end.double() for end in limits)
            return cls(low, high, float((high - low).max()))
        least, most = float(x.min()), float(x.max())
        width = most - least + 2.0 * reach
        return cls(torch.tensor(least - reach, dtype=torch.float64), None, width or 1.0)

    def inward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Points x as points of [0, 1]^dim."""
        unit = (x.double() - self.low.to(x.device)) / self.width
        return unit.to(dtype).clamp(0.0, 1.0)

    def network(self, net: nn.Module, dtype: torch.dtype) -> nn.Module:
        """The network as a function of framed points of any shape, with two or more logits."""
        twin = surrogate_network(net, torch.zeros((), dtype=dtype))
        return _Framed(as_module(twin), self.low.to(dtype), self.high, self.width).eval()

    def outward(self, found: Tensor, begun: Tensor, x: Tensor, ball: Ball) -> Tensor:
        """The perturbations (n, dim) of x that the moves from `begun` to `found` stand for.

        They are projected on ball and box: searches in float32 may have left them by a rounding.
        """
        delta = (self.width * (found.double() - begun.double())).to(x.dtype)
        return ball.project(delta, x)


class _Framed(nn.Module):
    low: Tensor
    high: Tensor | None

    def __init__(self, net: nn.Module, low: Tensor, high: Tensor | None, width: float) -> None:
        super().__init__()
        self.net, self.width = net, width
        self.register_buffer("low", low)
        self.register_buffer("high", None if high is None else high.to(low.dtype))

    def forward(self, u: Tensor) -> Tensor:
        x = self.low + self.width * u.flatten(1)
        if self.high is not None:
            x = torch.minimum(x, self.high)
        return self.net(x)


@contextmanager
def global_seed(generator: torch.Generator) -> Iterator[int]:
    """A seed drawn from the generator, set for the global ones of torch and NumPy for a while."""
    _check.generator("generator", generator)
    drawn = torch.randint(2**31 - 1, (), generator=generator, device=generator.device)
    seed, before = int(drawn), np.random.get_state()  # noqa: NPY002 - theirs is the global state
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield seed
        finally:
            np.random.set_state(before)  # noqa: NPY002


def optional_library(name: str, attack: str, extra: str) -> Any:
    """The package `name`, which `attack` needs; without it an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{attack} needs {name}: pip install extremal[{extra}]"
        raise ImportError(message) from error
