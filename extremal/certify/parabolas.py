"""Parabolas above and below relu(t)^p on an interval, for any p >= 1, with the least opening.

With an anchor x: phi(t) = phi(x) + phi'(x) (t - x) + C(t) (t - x)^2, C(t) the second divided
difference phi[x, x, t]. The parabola with C = max C(t) over an interval lies above phi there, the
one with C = min C(t) below it. Where that maximum or minimum is:

- p >= 2: C grows with t (phi'' does), so at the ends.
- p < 2, x > 0: C rises up to t* = -x (2 - p) / p, where it is p^2 x^(p-2) / 4, and falls after it.
- p < 2, x < 0: C(t) = relu(t)^p / (t - x)^2 rises up to t* = p |x| / (2 - p), and falls after it.

In each case the maximum is at t* cut to the interval, the minimum at one of the ends. At x = 0 and
p < 2 there is no parabola above: anchors must stay away from the kink.

A parabola below M on an l2 ball: one for each neuron, below it for a_j > 0, above for a_j < 0.

M(d) >= c + g.d + d'Hd/2 for ||d|| <= rho, with g = U' slope + along z and H = U' diag(bend) U +
even I. Each neuron's parabola touches it at an anchor, which is free to choose.

Tangents and one number for all curvature: a bound that costs a few matrix products.

The parabola of `quadratic` with its upward bends left out has H >= -l I for every l that is at
least the largest eigenvalue of B G B, B = |bend|^(1/2) and G the Gram matrix of the neurons that
bend downward. That is at most the one of B |G| B, a matrix without negative entries, and so
(Collatz and Wielandt) at most max_i (B |G| B v)_i / v_i for every v > 0: a few power steps make it
small. Then

    M(d) >= c - rho ||g|| - l rho^2 / 2   for ||d|| <= rho.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import (
    BallSlice,
    Perturbation,
    TargetPairs,
    line_below,
    rounding_loss,
    span_of_squares,
)
from extremal.models import relu_power, relu_power_with_slope

KINK = 0.07  # anchors of neurons that may switch stay this share of rho from a kink (p = 1)


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where bounds touch: pre-activations x (m, h), and w = ||z + d||^2 (m,)."""

    x: Tensor
    w: Tensor

    @classmethod
    def at(cls, pairs: TargetPairs, move: Perturbation) -> Anchor:
        """At a move, cut to the ball where it is longer than rho."""
        length = move.square.clamp(min=0.0).sqrt()
        cut = (pairs.radius / length.clamp(min=1e-300)).clamp(max=1.0)
        inside = Perturbation(cut.unsqueeze(1) * move.e, cut * move.inner, cut**2 * move.square)
        return cls(pairs.s + inside.e[:, : pairs.s.shape[1]], inside.w(pairs))

    def toward(self, other: Anchor, share: Tensor) -> Anchor:
        """A share (m,) of the way to another anchor."""
        x = self.x + share.unsqueeze(1) * (other.x - self.x)
        return Anchor(x, self.w + share * (other.w - self.w))

    def where(self, mask: Tensor, other: Anchor) -> Anchor:
        """This anchor where the mask (m,) holds, else the other."""
        x = torch.where(mask.unsqueeze(1), self.x, other.x)
        return Anchor(x, torch.where(mask, self.w, other.w))

    def take(self, index: Tensor) -> Anchor:
        """The anchors of the chosen pairs."""
        return Anchor(self.x[index], self.w[index])


@dataclass(frozen=True, eq=False)
class Parabola:
    """c + g.d + d'Hd/2 for each pair."""

    constant: Tensor  # (m,)
    slope: Tensor  # (m, h)
    bend: Tensor  # (m, h)
    along: Tensor  # (m,)
    even: Tensor  # (m,)

    def cut(self, cut: BallSlice, weight: Tensor) -> Parabola:
        """Less weight (m,) times (<v, d> - low) (high - <v, d>), which is >= 0 in the slice."""
        slope, bend = -weight * (cut.low + cut.high), 2.0 * weight
        return Parabola(
            self.constant + weight * cut.low * cut.high,
            torch.cat([self.slope, slope.unsqueeze(1)], 1),
            torch.cat([self.bend, bend.unsqueeze(1)], 1),
            self.along,
            self.even,
        )

    def where(self, mask: Tensor) -> Parabola:
        """These where the mask (m,) holds, else flat ones at zero."""
        parts = (self.constant, self.slope, self.bend, self.along, self.even)
        keep = (mask if part.ndim == 1 else mask.unsqueeze(1) for part in parts)
        return Parabola(*(torch.where(k, part, 0.0) for k, part in zip(keep, parts, strict=True)))

    def take(self, index: Tensor) -> Parabola:
        """The parabolas of the chosen pairs."""
        parts = (self.constant, self.slope, self.bend, self.along, self.even)
        return Parabola(*(part[index] for part in parts))


def parabola(pairs: TargetPairs, anchor: Anchor, *, flat: bool = False) -> Parabola:
    """The parabola below M that touches it at the anchor, but where that is too near a kink.

    With `flat` no neuron bends upward: those with a_j > 0 have tangents.
    """
    p, rho = pairs.p, pairs.radius.unsqueeze(1)
    low, high = pairs.span()
    above = pairs.a < 0
    x = anchor.x.clamp(low, high)
    if p < 2.0:
        least = KINK * (2.0 - p) * rho
        near = above & (low <= 0) & (high > 0) & (x.abs() < least)
        x = torch.where(near, torch.where(x >= 0, least, -least), x)
    shift = x - pairs.s
    value, slope = relu_power_with_slope(x, p)
    below = torch.zeros_like(x) if flat else opening_below(x, low, high, p)
    c = torch.where(above, opening_above(x, low, high, p), below)
    span = span_of_squares(pairs.square, pairs.radius)
    constant, rate = line_below(pairs.beta, *span, anchor.w, pairs.power)
    level = value - slope * shift + c * shift * shift
    return Parabola(
        constant=(pairs.a * level).sum(1) + constant + rate * pairs.square,
        slope=pairs.a * (slope - 2.0 * c * shift),
        bend=2.0 * pairs.a * c,
        along=2.0 * rate,
        even=2.0 * rate,
    )


def multiplier(pairs: TargetPairs, q: Parabola, move: Perturbation) -> Tensor:
    """||grad q|| / rho at a move, (m,): what the multiplier is where the move minimises q."""
    # grad q = U' weight + along z + even d
    weight = q.slope + q.bend * move.e
    up = Perturbation.of(pairs, weight, q.along)
    cross = (weight * move.e).sum(1) + q.along * move.inner
    square = up.square + 2.0 * q.even * cross + q.even**2 * move.square
    return square.clamp(min=0.0).sqrt() / pairs.radius


STEPS = 3
TINY = 1e-9  # of the largest entry: keeps v positive


def uniform_curvature_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """The bound (m,) with tangents at a move."""
    q = parabola(pairs, Anchor.at(pairs, move), flat=True)
    up = Perturbation.of(pairs, q.slope, q.along)
    fall = pairs.radius * (up.square.clamp(min=0.0).sqrt() + rounding_loss(pairs, q.slope, q.along))
    bend = curvature_bound(pairs.gram, -q.bend) - q.even.clamp(max=0.0)
    return q.constant - fall - 0.5 * bend * pairs.radius**2


def curvature_bound(gram: Tensor, bend: Tensor) -> Tensor:
    """An upper bound (m,) on the largest eigenvalue of U' diag(bend) U, bend (m, h) >= 0."""
    root = bend.clamp(min=0.0).sqrt()
    size = gram.abs()
    v = root + TINY * root.amax(1, keepdim=True)
    ratio = torch.zeros_like(root)
    for _ in range(STEPS):
        image = root * ((root * v) @ size)
        ratio = image / v.clamp(min=1e-300)
        v = image + TINY * image.amax(1, keepdim=True)
    return torch.where(root > 0, ratio, 0.0).amax(1)


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
