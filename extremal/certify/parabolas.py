"""Parabolas above and below relu(t)^p on an interval, and the parabola below M that they make.

**One neuron**, for any p >= 1, with the least opening. With an anchor x: phi(t) = phi(x) +
phi'(x) (t - x) + C(t) (t - x)^2, C(t) the second divided difference phi[x, x, t]. The parabola with
C = max C(t) over an interval lies above phi there, the one with C = min C(t) below it. Where that
maximum or minimum is:

- p >= 2: C grows with t (phi'' does), so at the ends.
- p < 2, x > 0: C rises up to t* = -x (2 - p) / p, where it is p^2 x^(p-2) / 4, and falls after it.
- p < 2, x < 0: C(t) = relu(t)^p / (t - x)^2 rises up to t* = p |x| / (2 - p), and falls after it.

In each case the maximum is at t* cut to the interval, the minimum at one of the ends. At x = 0 and
p < 2 there is no parabola above: anchors must stay away from the kink.

**All neurons**: one parabola for each, below it for a_j > 0, above for a_j < 0, is a parabola below
M on an l2 ball. M(d) >= c + g.d + d'Hd/2 for ||d|| <= rho, with g = U' neuron_slope +
point_slope z and H = U' diag(neuron_curvature) U + isotropic_curvature I. Each neuron's parabola
touches it at an anchor, which is free to choose.

**One number for all curvature** gives a bound that costs a few matrix products. That parabola with
its upward curvatures left out has H >= -l I for every l that is at least the largest eigenvalue of
B G B, B = |neuron_curvature|^(1/2) and G the Gram matrix of the neurons that curve downward. That
is at most the one of B |G| B, a matrix without negative entries, and so (Collatz and Wielandt) at
most max_i (B |G| B v)_i / v_i for every v > 0: a few power steps make it small. Then

    M(d) >= c - rho ||g|| - l rho^2 / 2   for ||d|| <= rho.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal._tensors import RowRecord
from extremal.certify.l2_problem import (
    BallSlice,
    Perturbation,
    TargetPairs,
    line_below,
    rounding_loss,
    squared_norm_range,
)
from extremal.models import relu_power, relu_power_with_slope

# Anchors of neurons that may switch stay this share of rho from their kink (for p = 1).
KINK_DISTANCE_SHARE = 0.07
# Power steps that make the bound on the largest eigenvalue small.
EIGENVALUE_STEPS = 3
# A share of the largest entry that is added to v, so that all its entries are positive.
POSITIVE_ENTRY_SHARE = 1e-9
# Where an end is this near to the anchor, as a share of the interval, the divided difference is
# mostly rounding, and the second derivative between the two bounds it instead.
_NEAR_ANCHOR_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Anchor(RowRecord):
    """Where bounds touch: the neurons' pre-activations, and w = ||z + d||^2."""

    preactivations: Tensor  # (m, h)
    squared_norm: Tensor  # (m,)

    @classmethod
    def at(cls, pairs: TargetPairs, move: Perturbation) -> Anchor:
        """At a perturbation, cut to the ball where it is longer than rho."""
        length = move.squared_length.clamp(min=0.0).sqrt()
        inside = move.scaled((pairs.radius / length.clamp(min=1e-300)).clamp(max=1.0))
        s = pairs.preactivations
        return cls(s + inside.neuron_products[:, : s.shape[1]], inside.squared_norm(pairs))

    def toward(self, other: Anchor, share: Tensor) -> Anchor:
        """A share (m,) of the way to another anchor."""
        way = other.preactivations - self.preactivations
        return Anchor(
            self.preactivations + share.unsqueeze(1) * way,
            self.squared_norm + share * (other.squared_norm - self.squared_norm),
        )


@dataclass(frozen=True, eq=False)
class Parabola(RowRecord):
    """c + g.d + d'Hd/2 for each pair."""

    constant: Tensor  # (m,): c
    neuron_slope: Tensor  # (m, h)
    neuron_curvature: Tensor  # (m, h)
    point_slope: Tensor  # (m,)
    isotropic_curvature: Tensor  # (m,)

    def within(self, ball_slice: BallSlice, weight: Tensor) -> Parabola:
        """Less weight (m,) times (<v, d> - low) (high - <v, d>), which is >= 0 in the slice."""
        slope, curvature = -weight * (ball_slice.low + ball_slice.high), 2.0 * weight
        return Parabola(
            self.constant + weight * ball_slice.low * ball_slice.high,
            torch.cat([self.neuron_slope, slope.unsqueeze(1)], 1),
            torch.cat([self.neuron_curvature, curvature.unsqueeze(1)], 1),
            self.point_slope,
            self.isotropic_curvature,
        )


def parabola(pairs: TargetPairs, anchor: Anchor, *, tangents_below: bool = False) -> Parabola:
    """The parabola below M that touches it at the anchor, but where that is too near a kink.

    With `tangents_below` no neuron curves upward: those with a_j > 0 have tangents.
    """
    p, rho, a = pairs.p, pairs.radius.unsqueeze(1), pairs.weight_gap
    low, high = pairs.preactivation_range()
    above = a < 0
    x = anchor.preactivations.clamp(low, high)
    if p < 2.0:
        least = KINK_DISTANCE_SHARE * (2.0 - p) * rho
        near = above & (low <= 0) & (high > 0) & (x.abs() < least)
        x = torch.where(near, torch.where(x >= 0, least, -least), x)
    shift = x - pairs.preactivations
    value, slope = relu_power_with_slope(x, p)
    below = torch.zeros_like(x) if tangents_below else opening_below(x, low, high, p)
    c = torch.where(above, opening_above(x, low, high, p), below)
    norms = squared_norm_range(pairs.squared_norm, pairs.radius)
    constant, rate = line_below(pairs.constant_gap, *norms, anchor.squared_norm, pairs.power)
    level = value - slope * shift + c * shift * shift
    return Parabola(
        constant=(a * level).sum(1) + constant + rate * pairs.squared_norm,
        neuron_slope=a * (slope - 2.0 * c * shift),
        neuron_curvature=2.0 * a * c,
        point_slope=2.0 * rate,
        isotropic_curvature=2.0 * rate,
    )


def multiplier_at(pairs: TargetPairs, q: Parabola, move: Perturbation) -> Tensor:
    """||grad q|| / rho at a perturbation, (m,): the multiplier where it minimises q."""
    # grad q = U' weight + point_slope z + isotropic_curvature d
    weight = q.neuron_slope + q.neuron_curvature * move.neuron_products
    part = Perturbation.from_weights(pairs, weight, q.point_slope)
    cross = (weight * move.neuron_products).sum(1) + q.point_slope * move.point_product
    square = part.squared_length + 2.0 * q.isotropic_curvature * cross
    square = square + q.isotropic_curvature**2 * move.squared_length
    return square.clamp(min=0.0).sqrt() / pairs.radius


def uniform_curvature_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """The bound (m,) with one number for all curvature, and tangents at a perturbation."""
    q = parabola(pairs, Anchor.at(pairs, move), tangents_below=True)
    gradient = Perturbation.from_weights(pairs, q.neuron_slope, q.point_slope)
    length = gradient.squared_length.clamp(min=0.0).sqrt()
    fall = pairs.radius * (length + rounding_loss(pairs, q.neuron_slope, q.point_slope))
    curvature = curvature_bound(pairs.gram, -q.neuron_curvature)
    curvature = curvature - q.isotropic_curvature.clamp(max=0.0)
    return q.constant - fall - 0.5 * curvature * pairs.radius**2


def curvature_bound(gram: Tensor, curvature: Tensor) -> Tensor:
    """An upper bound (m,) on the largest eigenvalue of U' diag(c) U, c (m, h) >= 0."""
    root = curvature.clamp(min=0.0).sqrt()
    size = gram.abs()
    v = root + POSITIVE_ENTRY_SHARE * root.amax(1, keepdim=True)
    ratio = torch.zeros_like(root)
    for _ in range(EIGENVALUE_STEPS):
        image = root * ((root * v) @ size)
        ratio = image / v.clamp(min=1e-300)
        v = image + POSITIVE_ENTRY_SHARE * image.amax(1, keepdim=True)
    return torch.where(root > 0, ratio, 0.0).amax(1)


def opening_above(x: Tensor, low: Tensor, high: Tensor, p: float) -> Tensor:
    """The least C with phi(x) + phi'(x) (t - x) + C (t - x)^2 >= phi(t) for low <= t <= high."""
    if p >= 2.0:
        return _divided_difference(x, high, high - low, p, above=True)
    right, left = -x * ((2.0 - p) / p), -x * (p / (2.0 - p))
    peak = torch.where(x > 0, right, left).clamp(low, high)
    return _divided_difference(x, peak, high - low, p, above=True)


def opening_below(x: Tensor, low: Tensor, high: Tensor, p: float) -> Tensor:
    """The largest C with phi(x) + phi'(x) (t - x) + C (t - x)^2 <= phi(t) for low <= t <= high."""
    first = _divided_difference(x, low, high - low, p, above=False)
    if p >= 2.0:
        return first
    return torch.minimum(first, _divided_difference(x, high, high - low, p, above=False))


def _divided_difference(x: Tensor, t: Tensor, size: Tensor, p: float, *, above: bool) -> Tensor:
    """phi[x, x, t], or a bound on it where x and t are close: from above, or from below."""
    value, slope = relu_power_with_slope(x, p)
    gap = t - x
    # Across the kink no terms cancel, and the difference is exact however near the two are.
    close = (gap.abs() <= _NEAR_ANCHOR_SHARE * size) & ((x * t > 0) | (gap == 0))
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
