"""The best parabola for each pair: anchors and multipliers that raise the bound.

The bound is a concave function of parabolas and multiplier together, and the parabola of one neuron
is best when it touches where the minimum is. So anchors move a share of the way to the minimiser
that the dual gives, and the multiplier down where that is inside the ball and up where it is not; a
step that does not raise the bound is undone, and the next one is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.move import Move
from extremal.certify.pairs import Pairs
from extremal.certify.quadratic import Anchor, multiplier, parabola
from extremal.certify.trust import Dual, dual

FIRST = 2.5  # times the multiplier that the anchor suggests: where ascent begins if that fails
MORE = 6  # times that it grows where it is still too small
SHARE = 0.5  # of the way that anchors move at first
GROW, SHRINK, LARGEST = 1.3, 0.5, 0.9  # of that share, after a step that raised the bound or not
LOWER = 0.5  # of the share, for the multiplier


@dataclass(frozen=True, eq=False)
class Bound:
    """The best bound on M so far, (m,), and its scale ||grad M|| rho, which is M's fall per radius."""

    value: Tensor
    scale: Tensor
    anchor: Anchor

    def take(self, index: Tensor) -> Bound:
        """The bounds of the chosen pairs."""
        return Bound(self.value[index], self.scale[index], self.anchor.take(index))


def first_bound(pairs: Pairs, move: Move) -> Bound:
    """The bound of the parabola at a move, with the multiplier that belongs to it."""
    anchor = Anchor.at(pairs, move)
    q = parabola(pairs, anchor)
    mu = multiplier(pairs, q, move)
    return Bound(dual(pairs, q, mu).bound, mu * pairs.radius**2, anchor)


def raised(pairs: Pairs, start: Bound, need: Tensor, steps: int) -> Bound:
    """The bound after `steps` steps of ascent, or fewer where it exceeds `need` (m,) before."""
    anchor = start.anchor
    mu = FIRST * start.scale / pairs.radius**2
    q = parabola(pairs, anchor)
    now = dual(pairs, q, mu)
    for _ in range(MORE):
        if bool(now.bound.isfinite().all()):
            break
        mu = torch.where(now.bound.isfinite(), mu, 1.7 * mu)
        now = dual(pairs, q, mu)
    share = torch.full_like(mu, SHARE)
    for _ in range(steps):
        if bool((now.bound > need).all()):
            break
        inside = now.move.square < pairs.radius**2
        trial_mu = mu * torch.where(inside, 1.0 - LOWER * share, 1.0 + LOWER * share)
        trial_anchor = anchor.toward(Anchor.at(pairs, now.move), share)
        trial = dual(pairs, parabola(pairs, trial_anchor), trial_mu)
        better = trial.bound > now.bound
        anchor, mu = trial_anchor.where(better, anchor), torch.where(better, trial_mu, mu)
        now = Dual(torch.maximum(trial.bound, now.bound), trial.move.where(better, now.move))
        share = torch.where(better, (GROW * share).clamp(max=LARGEST), SHRINK * share)
    better = now.bound > start.value
    best = torch.where(better, now.bound, start.value)
    return Bound(best, start.scale, anchor.where(better, start.anchor))
