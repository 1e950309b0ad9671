"""Networks of every configuration, and points that several tests share."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import Parameter

from extremal.models import Kaiming, PReLUNet, Preparation, polar_form

POWERS = (1.0, 1.5, 2.0, 3.0, 4.5)
DIM, WIDTH = 3, 5


@dataclass(frozen=True)
class Config:
    """What a network is made with; `normalize` "p" means (p-1)/p."""

    bias: bool = False
    hidden_bias: bool = False
    center: bool = False
    scale: str = "none"
    normalize: float | str = 0.0
    outputs: int = 1
    dtype: torch.dtype = torch.float64

    def preparation(self, p: float, dim: int) -> Preparation:
        each = torch.linspace(-0.5, 1.0, dim, dtype=torch.float64)
        return Preparation(
            scale={"none": 1.0, "large": 1.7, "small": 0.6}[self.scale],
            center=each if self.center else None,
            normalize=(p - 1) / p if self.normalize == "p" else float(self.normalize),
        )


EVERY = [
    Config(*values)
    for values in product(*[(False, True)] * 3, ("none", "large", "small"), (0.0, "p", 1.0), (1, 3))
]
TRIPLES = EVERY[::5]  # any three settings have all their values together in one of these,
PAIRS = EVERY[::11]  # and any two in one of these


def make_net(
    config: Config, p: float, generator: torch.Generator, dim: int = DIM, width: int = WIDTH
) -> PReLUNet:
    """A network of weights, and biases where it has them, of about size 1."""
    return PReLUNet(
        dim,
        width,
        p,
        config.outputs,
        bias=config.bias,
        hidden_bias=config.hidden_bias,
        preparation=config.preparation(p, dim),
        init=Kaiming(),
        dtype=config.dtype,
        generator=generator,
    )


def with_weights(net: PReLUNet, **parts: Tensor) -> PReLUNet:
    """A network like `net`, of the given weights where they are given."""
    twin = deepcopy(net)
    for name, value in parts.items():
        setattr(twin, name, Parameter(value.detach().to(net.neurons.dtype, copy=True)))
    twin.width = len(twin.neurons)
    return twin


def make_points(count: int, generator: torch.Generator, dim: int = DIM) -> Tensor:
    return torch.randn(count, dim, generator=generator, dtype=torch.float64)


def points_off_kinks(net: PReLUNet, count: int, generator: torch.Generator) -> Tensor:
    """Points at which no neuron is within 0.02 of its threshold."""
    x = make_points(400, generator, net.dim)
    form = polar_form(net)
    inner = net.preparation(x) @ form.directions.T + form.all_offsets
    good = x[(inner.abs() > 0.02).all(1)]
    assert len(good) >= count
    return good[:count]
