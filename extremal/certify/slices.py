"""A ball in slices across the attack's direction, where one parabola for all of it is too low.

M may bend downward along the very direction in which it falls, and then no multiplier of the ball
alone makes up for it, though the minimum is where the attack is. In a slice low <= <v, d> <= high
the product (<v, d> - low) (high - <v, d>) is >= 0, and a multiple of it, taken off, bends the
parabola upward along v at no cost at the slice's ends. Slices that fail are halved.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor

from extremal.certify.dual_ascent import raised
from extremal.certify.l2_problem import NEAR, Cut, Pairs
from extremal.certify.move import Move
from extremal.certify.quadratic import Anchor

ENDS = (-1.0 - NEAR, 0.0, 0.6, 0.9, 1.0 + NEAR)  # of the first slices, in radii
HALVINGS = 2


def sliced(pairs: Pairs, move: Move, mu: Tensor, need: Tensor) -> Tensor:
    """Whether M exceeds `need` (m,) on the whole ball, by slices across the move, bool (m,).

    The farthest slices are tried first, since what fails there need not be looked at elsewhere.
    """
    good = torch.ones(len(pairs), dtype=torch.bool, device=need.device)
    for low, high in reversed(list(itertools.pairwise(ENDS))):
        index = torch.nonzero(good).squeeze(1)
        if len(index) == 0:
            break
        first = torch.full_like(need[index], low)
        good[index] = _holds(pairs, move, mu, need, index, first, torch.full_like(first, high))
    return good


def _holds(
    pairs: Pairs,
    move: Move,
    mu: Tensor,
    need: Tensor,
    index: Tensor,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    """Whether M exceeds `need` in a slice of each pair at `index`, halved where that helps."""
    place = torch.arange(len(index), device=index.device)
    good = torch.ones_like(place, dtype=torch.bool)
    for halving in range(HALVINGS + 1):
        rows = index[place]
        part, start = _slice(pairs.take(rows), move.take(rows), low, high)
        failed = ~(raised(part, start, mu[rows], need[rows]) > need[rows])
        place, low, high = place[failed], low[failed], high[failed]
        if len(place) == 0 or halving == HALVINGS:
            break
        middle = 0.5 * (low + high)
        place = torch.cat([place, place])
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
    good[place] = False
    return good


def _slice(pairs: Pairs, move: Move, low: Tensor, high: Tensor) -> tuple[Pairs, Anchor]:
    """The pairs cut to slices with ends in radii, and anchors at their far ends."""
    length = move.square.clamp(min=1e-300).sqrt()
    rho = pairs.radius
    cut = Cut(move.e / length.unsqueeze(1), move.inner / length, low * rho, high * rho)
    part = replace(pairs, cut=cut)
    end = Move(high.unsqueeze(1) * move.e, high * move.inner, high**2 * move.square)
    return part, Anchor.at(part, end)
