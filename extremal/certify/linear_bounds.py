"""Linear bounds: M(d) >= c + g.d, a tangent for each a_j > 0 and a chord for each a_j < 0.

relu^p is convex, so on [s_j - rho, s_j + rho] it lies above its tangents and below its chord. On an
l2 ball the minimum of the line is c - rho ||g||.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.certify.l2_problem import Pairs
from extremal.certify.move import Move, blur
from extremal.certify.norm_term import line_below, span_of_squares
from extremal.models.activations import relu_power, relu_power_with_slope


def linear_bound(pairs: Pairs, move: Move) -> Tensor:
    """The bound (m,) with tangents at a move."""
    rho = pairs.radius.unsqueeze(1)
    low, high = pairs.s - rho, pairs.s + rho
    bottom, top = relu_power(low, pairs.p), relu_power(high, pairs.p)
    rise = (top - bottom) / (2.0 * rho).clamp(min=1e-300)
    value, slope = relu_power_with_slope(pairs.s + move.e, pairs.p)
    above = pairs.a < 0
    at_zero = torch.where(above, bottom + rise * rho, value - slope * move.e)
    weight = pairs.a * torch.where(above, rise, slope)
    # w >= ||z||^2 + 2 <z, d>, and w <= that + rho^2: the square of d costs at most rho^2.
    span = span_of_squares(pairs.square, pairs.radius)
    constant, rate = line_below(pairs.beta, *span, move.w(pairs), pairs.power)
    up = Move.of(pairs, weight, 2.0 * rate)
    square = pairs.square + torch.where(rate < 0, pairs.radius**2, 0.0)
    c = (pairs.a * at_zero).sum(1) + constant + rate * square
    length = up.square.clamp(min=0.0).sqrt() + blur(pairs, weight, 2.0 * rate)
    return c - pairs.radius * length
