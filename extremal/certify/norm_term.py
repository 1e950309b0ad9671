"""The term beta ||z + d||^(2k) of normalised inputs, bounded by a line in w = ||z + d||^2."""

from __future__ import annotations

import torch
from torch import Tensor


def span_of_squares(square: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest ||z + d||^2 on the l2 ball, for ||z||^2 = square."""
    length = square.sqrt()
    return (length - radius).clamp(min=0.0) ** 2, (length + radius) ** 2


def line_below(
    beta: Tensor, low: Tensor, high: Tensor, anchor: Tensor, power: float
) -> tuple[Tensor, Tensor]:
    """(constant, slope), each (m,): beta w^k >= constant + slope w for all low <= w <= high.

    beta w^k is convex in w where k >= 1 and beta > 0, or k <= 1 and beta < 0: then its tangent at
    the anchor is below it; else its chord.
    """
    if power == 0.0:
        return beta, torch.zeros_like(beta)
    at = torch.minimum(torch.maximum(anchor, 1e-6 * high), high)
    value, slope = at**power, power * at ** (power - 1.0)
    rise = (high**power - low**power) / (high - low).clamp(min=1e-300)
    convex = (beta > 0) == (power >= 1.0)
    slope = torch.where(convex, slope, rise)
    constant = torch.where(convex, value - slope * at, low**power - rise * low)
    return beta * constant, beta * slope
