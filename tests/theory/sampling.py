"""Samples of the mixture in the coordinates of its centres, and an attack on F^(p) there.

Written apart from the package: the oracle's tests use none of it but `theory`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def coordinates(own: int, opposing: int, s: float, n: int, g: torch.Generator) -> Tensor:
    """(n, own + opposing) coordinates of samples of centre 0, whose class has the first `own`."""
    noise = s * torch.randn(n, own + opposing, generator=g, dtype=torch.float64)
    noise[:, 0] += 1.0
    return noise


def subclass_output(c: Tensor, own: int, p: float) -> Tensor:
    """y F^(p) at points with coordinates c (n, K)."""
    powers = c.clamp_min(0.0) ** p
    return powers[:, :own].sum(dim=1) - powers[:, own:].sum(dim=1)


def average_output(c: Tensor, own: int) -> Tensor:
    """y F at points with coordinates c: sqrt(K1) <mu_+, x> is the sum over the class's centres."""
    return c[:, :own].sum(dim=1).clamp_min(0.0) - c[:, own:].sum(dim=1).clamp_min(0.0)


def broken(c: Tensor, own: int, p: float, radius: float, steps: int = 20) -> Tensor:
    """Whether an attack of size `radius` on F^(p) was found: (n,), by full linear steps.

    Starts: from the sample's centre toward each opposing one, and toward all of them.
    """
    n, total = c.shape
    starts = torch.zeros(total - own + 1, total, dtype=c.dtype)
    starts[:, 0] = -1.0
    starts[:-1, own:] = torch.eye(total - own, dtype=c.dtype)
    starts[-1, own:] = 1.0
    found = torch.zeros(n, dtype=torch.bool)
    sign = torch.ones(total, dtype=c.dtype)
    sign[own:] = -1.0
    for start in starts:
        d = (radius * start / start.norm()).expand(n, total).clone()
        for _ in range(steps):
            found |= subclass_output(c + d, own, p) <= 0
            slope = sign * p * (c + d).clamp_min(0.0) ** (p - 1.0) * (c + d > 0)
            size = slope.norm(dim=1, keepdim=True).clamp_min(1e-300)
            d = torch.where(size > 1e-200, -radius * slope / size, d)
        found |= subclass_output(c + d, own, p) <= 0
    return found


def slack(rate: float, n: int) -> float:
    """Five standard errors of a Monte Carlo rate over n samples: fails by chance once in 3e6."""
    return 5.0 * math.sqrt(rate * (1.0 - rate) / n) + 5.0 / n
