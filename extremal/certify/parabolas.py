"""Parabolas above and below relu(t)^p on an interval, for any p >= 1, with the least opening.

With an anchor x: phi(t) = phi(x) + phi'(x) (t - x) + C(t) (t - x)^2, C(t) the second divided
difference phi[x, x, t]. The parabola with C = max C(t) over an interval lies above phi there, the
one with C = min C(t) below it. Where that maximum or minimum is:

- p >= 2: C grows with t (phi'' does), so at the ends.
- p < 2, x > 0: C rises up to t* = -x (2 - p) / p, where it is p^2 x^(p-2) / 4, and falls after it.
- p < 2, x < 0: C(t) = relu(t)^p / (t - x)^2 rises up to t* = p |x| / (2 - p), and falls after it.

In each case the maximum is at t* cut to the interval, the minimum at one of the ends. At x = 0 and
p < 2 there is no parabola above: anchors must stay away from the kink.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.models.activations import relu_power, relu_power_with_slope

# Where an end is this near to the anchor, as a share of the interval, the divided difference is
# mostly rounding, and the second derivative between the two bounds it instead.
_NEAR = 1e-3


def opening_above(x: Tensor, low: Tensor, high: Tensor, p: float) -> Tensor:
    """The least C with phi(x) + phi'(x) (t - x) + C (t - x)^2 >= phi(t) for low <= t <= high."""
    if p >= 2.0:
        return _at(x, high, high - low, p, above=True)
    right, left = -x * ((2.0 - p) / p), -x * (p / (2.0 - p))
    peak = torch.where(x > 0, right, left).clamp(low, high)
    return _at(x, peak, high - low, p, above=True)


def opening_below(x: Tensor, low: Tensor, high: Tensor, p: float) -> Tensor:
    """The largest C with phi(x) + phi'(x) (t - x) + C (t - x)^2 <= phi(t) for low <= t <= high."""
    first = _at(x, low, high - low, p, above=False)
    if p >= 2.0:
        return first
    return torch.minimum(first, _at(x, high, high - low, p, above=False))


def _at(x: Tensor, t: Tensor, size: Tensor, p: float, *, above: bool) -> Tensor:
    """phi[x, x, t], or a bound on it where x and t are close."""
    value, slope = relu_power_with_slope(x, p)
    gap = t - x
    # Across the kink no terms cancel, and the difference is exact however near the two are.
    close = (gap.abs() <= _NEAR * size) & ((x * t > 0) | (gap == 0))
    safe = torch.where(close, 1.0, gap)
    exact = (relu_power(t, p) - value - slope * gap) / (safe * safe)
    # phi''/2 at one of the two ends bounds C between them: phi'' is monotone on each side of 0.
    ends = [_half_curvature(x, p), _half_curvature(t, p)]
    bound = torch.maximum(*ends) if above else torch.minimum(*ends)
    if above and p < 2.0:
        bound = torch.where(x == 0, torch.inf, bound)
    return torch.where(close, bound, exact).clamp(min=0.0)


def _half_curvature(t: Tensor, p: float) -> Tensor:
    """phi''(t) / 2, which is 0 for t <= 0 (from the left at the kink)."""
    if p == 1.0:
        return torch.zeros_like(t)
    positive = torch.where(t > 0, t, 1.0)
    return torch.where(t > 0, 0.5 * p * (p - 1.0) * positive ** (p - 2.0), 0.0)
