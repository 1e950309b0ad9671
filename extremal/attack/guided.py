"""Attacks that are led by a representation: toward what it sees of points of another class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack.ball import Ball
from extremal.attack.recheck import check_ball, checked_norms
from extremal.models import double, gap_gradient, represented

_TRAVEL = 3.0  # the length of all steps together, in radii


@dataclass(frozen=True, eq=False)
class Guided:
    """Where a guide has led points, and how much nearer in its representation, in float64."""

    x_adv: Tensor  # (n, dim), in the ball and the box
    gap: Tensor  # (n,): ||G(x_adv) - G(z)||
    start: Tensor  # (n,): ||G(x) - G(z)||


def guided(guide: nn.Module, x: Tensor, wanted: Tensor, *, ball: Ball, steps: int = 40) -> Guided:
    """Minimise ||G(x + d) - G(z)||_2 over the ball, by PGD, for points x and `wanted` z (n, dim).

    G is the `guide`, such as a network's `models.Representation`. Where the z are points of a
    target class this is a targeted attack that no network's labels take part in. With G of a
    network trained as usual it is our NRF-PGD, with that of an adversarially trained one RF-PGD:
    Li & Li 2025, Table 2, gives the names and no formula. d starts at zero; each step goes along
    the steepest descent of the ball's norm, with lengths that fall evenly to zero and add up to
    three radii. The point of least gap is returned; norm and box are checked in float64.
    """
    check_ball(ball)
    _check.matrix("x", x)
    _check.matrix("wanted", wanted, columns=x.shape[1])
    _check.require(len(wanted) == len(x), "wanted", f"have {len(x)} points", len(wanted))
    total = _check.integer("steps", steps, minimum=1)
    aim = represented(guide, wanted)
    longest = 2.0 * _TRAVEL / (total + 1) * ball.radii(x).to(x.dtype).unsqueeze(1)
    delta = best = torch.zeros_like(x)
    least = torch.full_like(aim[:, 0], torch.inf)
    for step in range(total + 1):
        gap, gradient = gap_gradient(guide, x + delta, aim)
        best = torch.where((gap < least).unsqueeze(1), delta, best)
        least = torch.minimum(gap, least)
        move = ball.steepest(ball.unblocked(-gradient, delta, x))
        delta = ball.project(delta + (1 - step / total) * longest * move, x)
    x_adv = ball.land(best, x)
    checked_norms(x, x_adv, ball, "guided")
    twin = double(guide)
    seen = [represented(twin, points.double()) for points in (x_adv, x, wanted)]
    gap, start = (torch.linalg.vector_norm(own - seen[2], dim=1) for own in seen[:2])
    return Guided(x_adv, gap, start)
