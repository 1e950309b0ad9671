"""Points, networks and results that the tests of evaluations share."""

from __future__ import annotations

import torch
from torch import nn

from extremal.data import Dataset
from extremal.evaluate import Robustness
from extremal.models import Explicit, PReLUNet


def flat_net(w: torch.Tensor) -> PReLUNet:
    """f(x) = <w, x> as a ReLU network: relu(<w, x>) - relu(<-w, x>)."""
    init = Explicit(torch.stack([w, -w]), torch.tensor([[1.0, -1.0]], dtype=w.dtype))
    return PReLUNet(len(w), 2, init=init, dtype=w.dtype, generator=torch.Generator())


def points(generator, count=40, dim=6, wrong=0.1):
    """Points at both sides of a plane, some with the wrong label; the plane's normal."""
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    y = torch.where(x @ w > 0, 1, -1)
    y[: int(wrong * count)] *= -1
    return w, Dataset(x, y)


def made(lower, upper, **fields) -> Robustness:
    count = len(lower)
    given = {
        "norm": "l2",
        "box": None,
        "certified": True,
        "boxed": False,
        "attack": ("shortest",) * count,
        "certificate": ("parabolas",) * count,
        **fields,
    }
    kind = {"dtype": torch.float64}
    return Robustness(torch.tensor(lower, **kind), torch.tensor(upper, **kind), **given)


def names(result: Robustness) -> set[str]:
    return {warning.name for warning in result.warnings}


class Bump(nn.Module):
    """Flat with value 1 around the origin, below zero beyond |x_1| = 0.3 + 1/3."""

    def forward(self, x):
        return 1.0 - 3.0 * torch.relu(x[:, 0].abs() - 0.3)


class Masked(nn.Module):
    """A plane whose gradient points the wrong way."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x):
        f = x @ self.w
        return 2.0 * f.detach() - f


def classes(w: torch.Tensor, *after: nn.Module, bias: float = 0.0) -> nn.Sequential:
    """Two outputs +-<w, x> + bias, then other layers."""
    layer = nn.Linear(len(w), 2)
    layer.weight.data, layer.bias.data = torch.stack([-w, w]), torch.full_like(w[:2], bias)
    return nn.Sequential(layer, *after)


def two_classes(test: Dataset) -> Dataset:
    return Dataset(test.x, (test.y + 1) // 2)
