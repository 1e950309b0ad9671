"""Tangents and one number for all curvature: a bound that costs a few matrix products.

The parabola of `quadratic` with its upward bends left out has H >= -l I for every l that is at
least the largest eigenvalue of B G B, B = |bend|^(1/2) and G the Gram matrix of the neurons that
bend downward. That is at most the one of B |G| B, a matrix without negative entries, and so
(Collatz and Wielandt) at most max_i (B |G| B v)_i / v_i for every v > 0: a few power steps make it
small. Then

    M(d) >= c - rho ||g|| - l rho^2 / 2   for ||d|| <= rho.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.certify.l2_problem import Pairs
from extremal.certify.move import Move, blur
from extremal.certify.quadratic import Anchor, parabola

STEPS = 3
TINY = 1e-9  # of the largest entry: keeps v positive


def even_bound(pairs: Pairs, move: Move) -> Tensor:
    """The bound (m,) with tangents at a move."""
    q = parabola(pairs, Anchor.at(pairs, move), flat=True)
    up = Move.of(pairs, q.slope, q.along)
    fall = pairs.radius * (up.square.clamp(min=0.0).sqrt() + blur(pairs, q.slope, q.along))
    bend = largest_bend(pairs.gram, -q.bend) - q.even.clamp(max=0.0)
    return q.constant - fall - 0.5 * bend * pairs.radius**2


def largest_bend(gram: Tensor, bend: Tensor) -> Tensor:
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
