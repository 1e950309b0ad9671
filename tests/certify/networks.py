"""Random networks of every kind, and points of theirs that are classified correctly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.models import Explicit, Grouped, PReLUNet, Preparation, margin


@dataclass(frozen=True)
class Kind:
    """What a network is made with; `normalize` "p" means (p-1)/p."""

    dim: int = 5
    width: int = 8
    p: float = 2.0
    outputs: int = 1
    bias: bool = False
    hidden_bias: bool = False
    scale: str = "one"  # or "large", "small"
    center: bool = False
    normalize: float | str = 0.0
    grouped: str = "no"  # "yes", "signed"

    def __str__(self) -> str:
        parts = [f"d{self.dim}-h{self.width}-p{self.p:g}-o{self.outputs}"]
        parts += [name for name in ("bias", "hidden_bias", "center") if getattr(self, name)]
        parts += [self.scale] if self.scale != "one" else []
        parts += [f"n{self.normalize}"] if self.normalize else []
        parts += [f"grouped-{self.grouped}"] if self.grouped != "no" else []
        return "-".join(parts)


def make(kind: Kind, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A network of Gaussian weights, with biases of about the size of its outputs."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    each = torch.linspace(0.6, 1.7, kind.dim, dtype=torch.float64)
    preparation = Preparation(
        scale={"one": 1.0, "large": 1.4, "small": 0.8}[kind.scale],
        center=0.4 * each - 0.5 if kind.center else None,
        normalize=(kind.p - 1) / kind.p if kind.normalize == "p" else float(kind.normalize),
    )
    net = PReLUNet(
        kind.dim,
        kind.width,
        kind.p,
        kind.outputs,
        bias=kind.bias,
        hidden_bias=kind.hidden_bias,
        preparation=preparation,
        init=Explicit(
            normal(kind.width, kind.dim) / kind.dim**0.5,
            normal(kind.outputs, kind.width),
            0.5 * normal(kind.width),
            0.5 * normal(kind.outputs),
        ),
        dtype=dtype,
        generator=generator,
    )
    if kind.grouped == "no":
        return net
    groups = torch.arange(kind.outputs) % (2 if kind.grouped == "signed" else 3)
    return Grouped(net, groups, signed=kind.grouped == "signed")


def labels(net: nn.Module, x: Tensor) -> Tensor:
    """The classes that the network gives, as its labels."""
    with torch.no_grad():
        out = net(x)
    return torch.where(out > 0, 1, -1) if out.ndim == 1 else out.argmax(1)


def right_points(
    net: nn.Module, kind: Kind, count: int, generator: torch.Generator, box: bool = False
) -> tuple[Tensor, Tensor]:
    """Up to `count` points with a clearly positive margin, and their labels."""
    drawn = torch.randn(8 * count, kind.dim, generator=generator, dtype=torch.float64)
    x = drawn.clamp(-1.0, 1.0) if box else drawn
    x = x.to(next(net.parameters()).dtype)
    y = labels(net, x)
    with torch.no_grad():
        value = margin(net, x, y)
    good = torch.nonzero(value > 0.02 * value.abs().median().clamp(min=1e-12)).squeeze(1)[:count]
    return x[good], y[good]


def two_sided(dim: int, p: float, generator: torch.Generator, **others) -> PReLUNet:
    """One neuron for each class, no biases."""
    neurons = torch.randn(2, dim, generator=generator, dtype=torch.float64)
    votes = torch.tensor([[1.3, -0.8]], dtype=torch.float64)
    return PReLUNet(
        dim,
        2,
        p,
        init=Explicit(neurons, votes),
        dtype=torch.float64,
        generator=generator,
        **others,
    )
