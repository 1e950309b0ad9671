"""Pairs of networks, covers of spheres, and the distance by brute force."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from extremal.models import Explicit, PReLUNet


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(neurons: Tensor, weights: Tensor, p: float) -> PReLUNet:
    """sum_j weights_j relu(<x, w_j>)^p / ||w_j||^(p-1)."""
    init = Explicit(neurons, weights.unsqueeze(0))
    width, dim = neurons.shape
    return PReLUNet(dim, width, p, init=init, dtype=torch.float64, generator=seeded())


def axes(weights: list[float], dim: int, p: float) -> PReLUNet:
    """sum_k weights_k relu(x_k)^p."""
    return make(torch.eye(len(weights), dim), torch.tensor(weights), p)


def random_net(width: int, dim: int, p: float, generator: torch.Generator) -> PReLUNet:
    neurons = torch.randn(width, dim, generator=generator, dtype=torch.float64)
    return make(neurons, torch.randn(width, generator=generator, dtype=torch.float64), p)


def random_pair(dim: int, powers: tuple[float, float], seed: int) -> list[PReLUNet]:
    """Two networks that resemble each other, so that the best scale is neither zero nor one."""
    generator = seeded(seed)
    first = random_net(4, dim, powers[0], generator)
    noise = random_net(4, dim, powers[1], generator)
    neurons, votes = first.neurons + 0.4 * noise.neurons, first.votes + 0.4 * noise.votes
    return [first, make(neurons, 3.0 * votes[0], powers[1])]


def circle(count: int) -> Tensor:
    angle = torch.linspace(0.0, 2.0 * math.pi, count + 1, dtype=torch.float64)[:-1]
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def sphere(count: int) -> Tensor:
    """A spiral that covers the sphere evenly."""
    step = torch.arange(count, dtype=torch.float64) + 0.5
    z, angle = 1.0 - 2.0 * step / count, step * math.pi * (1.0 + 5.0**0.5)
    r = (1.0 - z * z).sqrt()
    return torch.stack([r * angle.cos(), r * angle.sin(), z], dim=1)


def disc(dim: int) -> Tensor:
    """Unit vectors of R^dim over a polar grid of the unit disc in the first two coordinates."""
    radii = torch.linspace(0.0, 1.0, 101, dtype=torch.float64)
    inner = (radii[:, None, None] * circle(400)).reshape(-1, 2)
    points = torch.zeros(len(inner), dim, dtype=torch.float64)
    points[:, :2] = inner
    points[:, 2] = (1.0 - (inner * inner).sum(1)).clamp(min=0.0).sqrt()
    return points


def brute(net: PReLUNet, reference: PReLUNet, cover: Tensor) -> float:
    """The least over a refined grid of c of the largest difference on the cover."""
    with torch.no_grad():
        a, b = net(cover), reference(cover)
    low, high = 0.0, 2.0 * float(b.abs().max() / a.abs().max())
    for _ in range(4):
        grid = torch.linspace(low, high, 41, dtype=torch.float64)
        worst = torch.stack([(c * a - b).abs().max() for c in grid])
        best, width = float(grid[worst.argmin()]), (high - low) / 40.0
        low, high = max(0.0, best - width), best + width
    return float(worst.min())


TURN = torch.linalg.qr(torch.randn(4, 4, generator=seeded(), dtype=torch.float64)).Q
COVERS = {"circle": circle(4000), "sphere": sphere(20_000), "disc": disc(4) @ TURN}
