"""Small networks with known robustness."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """f(x) = <w, x> + b, (n,)."""

    def __init__(self, w: Tensor, b: float) -> None:
        super().__init__()
        self.w = nn.Parameter(w.double())
        self.b = nn.Parameter(torch.tensor(b, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w + self.b


def linear(w: list[float] | Tensor, b: float) -> Linear:
    return Linear(torch.as_tensor(w), b)


class Several(nn.Module):
    """f(x) = W x + b, (n, C)."""

    def __init__(self, w: Tensor, b: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)
        self.b = nn.Parameter(b)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w.T + self.b
