"""A parabola below M on an l2 ball: one for each neuron, below it for a_j > 0, above for a_j < 0.

M(d) >= c + g.d + d'Hd/2 for ||d|| <= rho, with g = U' slope + along z and H = U' diag(bend) U +
even I. Each neuron's parabola touches it at an anchor, which is free to choose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import Cut, Pairs
from extremal.certify.move import Move
from extremal.certify.norm_term import line_below, span_of_squares
from extremal.certify.parabolas import opening_above, opening_below
from extremal.models.activations import relu_power_with_slope

KINK = 0.07  # anchors of neurons that may switch stay this share of rho from a kink (p = 1)


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where bounds touch: pre-activations x (m, h), and w = ||z + d||^2 (m,)."""

    x: Tensor
    w: Tensor

    @classmethod
    def at(cls, pairs: Pairs, move: Move) -> Anchor:
        """At a move, cut to the ball where it is longer than rho."""
        length = move.square.clamp(min=0.0).sqrt()
        cut = (pairs.radius / length.clamp(min=1e-300)).clamp(max=1.0)
        inside = Move(cut.unsqueeze(1) * move.e, cut * move.inner, cut**2 * move.square)
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

    def cut(self, cut: Cut, weight: Tensor) -> Parabola:
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


def parabola(pairs: Pairs, anchor: Anchor, *, flat: bool = False) -> Parabola:
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


def multiplier(pairs: Pairs, q: Parabola, move: Move) -> Tensor:
    """||grad q|| / rho at a move, (m,): what the multiplier is where the move minimises q."""
    # grad q = U' weight + along z + even d
    weight = q.slope + q.bend * move.e
    up = Move.of(pairs, weight, q.along)
    cross = (weight * move.e).sum(1) + q.along * move.inner
    square = up.square + 2.0 * q.even * cross + q.even**2 * move.square
    return square.clamp(min=0.0).sqrt() / pairs.radius
