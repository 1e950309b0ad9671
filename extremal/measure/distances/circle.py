"""The largest difference of two neurons on the circle of their plane, from above."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_CELLS = 8192


def highest(a: Tensor, b: Tensor, angle: Tensor, p: float) -> Tensor:
    """An upper bound, (n,), on max over t of a cos_+(t)^p - b cos_+(t - angle)^p; a, b > 0.

    Exact for p = 1: the maximum lies where the second neuron is silent, at height a sin(angle) (a,
    if it is silent at the first one's peak), or on the vector a u - b v where both are active.
    Otherwise the largest value on a grid, and what the difference can rise between two points of
    it: by its slope or, for p >= 2, by its curvature.
    """
    if p == 1.0:
        return _highest_of_kinks(a, b, angle)
    cell = 2.0 * math.pi / _CELLS
    t = cell * torch.arange(_CELLS + 1, dtype=a.dtype)
    seen = a[:, None] * torch.relu(t.cos()) ** p
    seen -= b[:, None] * torch.relu((t - angle[:, None]).cos()) ** p
    change = angle ** (p - 1.0) + angle if p < 2.0 else (p - 1.0) * angle
    rise = cell / 2.0 * p * ((a - b).abs() + torch.minimum(a, b) * change)
    if p >= 2.0:
        rise = torch.minimum(rise, cell**2 / 8.0 * p * (p - 1.0) * (a + b))
    return torch.relu(seen.amax(1) + rise)


def _highest_of_kinks(a: Tensor, b: Tensor, angle: Tensor) -> Tensor:
    alone = a * torch.where(angle < math.pi / 2.0, angle.sin(), 1.0)
    on_first = a - b * angle.cos()  # of a u - b v along u, and along v
    on_second = a * angle.cos() - b
    both = (a * on_first - b * on_second).clamp(min=0.0).sqrt()
    return torch.where((on_first >= 0) & (on_second >= 0), torch.maximum(alone, both), alone)
