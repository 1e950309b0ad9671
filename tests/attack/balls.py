"""Balls, boxes and points that several tests share."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack import Ball

NORMS = ("l1", "l2", "linf")
BOXES = ("none", "numbers", "tensors")


def make_box(kind: str, dim: int) -> tuple[float, float] | tuple[Tensor, Tensor] | None:
    if kind == "none":
        return None
    if kind == "numbers":
        return (0.0, 1.0)
    low = torch.linspace(-0.5, 0.1, dim, dtype=torch.float64)
    return low, low + torch.linspace(0.3, 1.5, dim, dtype=torch.float64)


def make_points(kind: str, count: int, dim: int, generator: torch.Generator) -> Tensor:
    """Points in the box, some coordinates on its faces."""
    share = torch.rand(count, dim, generator=generator, dtype=torch.float64)
    share = torch.where(share < 0.2, 0.0, torch.where(share > 0.9, 1.0, share))
    box = make_box(kind, dim)
    low, high = (0.0, 1.0) if box is None else box
    # low + share (high - low) may round to just above high.
    return torch.minimum(low + share * (high - low), torch.as_tensor(high, dtype=torch.float64))


def make_ball(norm: str, kind: str, count: int, dim: int) -> Ball:
    """Per-sample radii of a size at which ball and box both matter."""
    scale = {"l1": 0.25 * dim, "l2": 0.4 * dim**0.5, "linf": 0.4}[norm]
    radii = scale * torch.linspace(0.3, 1.2, count, dtype=torch.float64)
    return Ball(norm, radii, make_box(kind, dim))


def feasible(ball: Ball, delta: Tensor, x: Tensor, slack: float = 0.0) -> bool:
    inside = bool((ball.norms(delta) <= ball.radii(x) * (1 + slack)).all())
    bounds = ball.bounds(x)
    if bounds is None:
        return inside
    return inside and bool(((delta >= bounds[0] - slack) & (delta <= bounds[1] + slack)).all())
