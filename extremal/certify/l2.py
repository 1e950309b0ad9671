"""Certified radii in l2 for shallow networks: linear bounds first, parabolas where they fail."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.linear import linear_bound
from extremal.certify.move import Move, descend, rest, value
from extremal.certify.pairs import Pairs, Points
from extremal.certify.tight import first_bound, raised
from extremal.models.power import relu_power

ROUNDING = 1e-9  # share of all terms' sizes that a bound on M must exceed
HALVINGS = 14  # of the fast level: a ten-thousandth of the first interval
ROUNDS = 8  # radii that the tight level tries for a point
FIRST = 0.995  # of the attacked radius
DESCENT = 12  # full linear steps toward the worst perturbation of a pair
ASCENT = 12  # steps that raise a bound
AT_ONCE = 48  # pairs whose matrices are in memory together


@dataclass(frozen=True, eq=False)
class Task:
    """Correctly classified points, their best own outputs, and all foreign ones."""

    points: Points
    own: Tensor  # (n,): the output to hold
    foreign: Tensor  # (n, C) bool
    slack: Tensor  # (n,): what another network's margin may be below this one's
    attack: Move  # (n,): a perturbation that breaks each point, for directions

    def pairs(self, rows: Tensor, radius: Tensor) -> tuple[Pairs, Tensor, Tensor]:
        """All pairs of the points at `rows`, at radii (len(rows),); their places; what they need."""
        place, target = self.foreign[rows].nonzero(as_tuple=True)
        row = rows[place]
        pairs = self.points.pairs(row, self.own[row], target, radius[place])
        return pairs, place, needed(pairs, self.slack[row])


def needed(pairs: Pairs, slack: Tensor) -> Tensor:
    """What a bound on M must exceed, (m,): rounding, and a slack of the margin in units of M."""
    high = relu_power(pairs.s + pairs.radius.unsqueeze(1), pairs.p)
    top = (pairs.square.sqrt() + pairs.radius) ** (2.0 * pairs.power)
    return ROUNDING * ((pairs.a.abs() * high).sum(1) + pairs.beta.abs() * top) + slack * top


def fast_radii(task: Task, upper: Tensor) -> Tensor:
    """The largest radius up to `upper` (n,) that linear bounds certify, (n,), by bisection."""
    rows = torch.arange(len(upper), device=upper.device)
    low, high = torch.zeros_like(upper), upper.clone()
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        pairs, place, need = task.pairs(rows, middle)
        good = _all(linear_bound(pairs, rest(pairs)) > need, place, len(rows))
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return low


def tight_radii(task: Task, upper: Tensor, lower: Tensor) -> Tensor:
    """The largest radius that was certified, (n,), beginning just under `upper`, the attacked one.

    Where a radius fails, the next one is smaller by what the bound lacked.
    """
    found = lower.clone()
    radius = FIRST * upper
    rows = torch.nonzero(radius > lower).squeeze(1)
    for _ in range(ROUNDS):
        if len(rows) == 0:
            break
        lacks = _lacks(task, rows, radius[rows])
        good = lacks <= 0
        found[rows[good]] = radius[rows[good]]
        radius[rows] = radius[rows] * (1.0 - (1.2 * lacks + 0.003).clamp(0.005, 0.4))
        rows = rows[~good & (radius[rows] > lower[rows])]
    return found


def _lacks(task: Task, rows: Tensor, radius: Tensor) -> Tensor:
    """What the bounds lack at the worst target, as a share of M's fall per radius; <= 0: none."""
    pairs, place, need = task.pairs(rows, radius)
    move = _worst_move(pairs, task.attack.take(rows[place]))
    lack = torch.full_like(need, -1.0)
    hard = torch.nonzero(linear_bound(pairs, move) <= need).squeeze(1)
    for some in hard.split(AT_ONCE):
        lack[some] = _hard(pairs.take(some), move.take(some), need[some])
    worst = torch.full((len(rows),), -1.0, dtype=need.dtype, device=need.device)
    return worst.scatter_reduce_(0, place, lack, "amax")


def _worst_move(pairs: Pairs, attack: Move) -> Move:
    """Where M is least, as far as descents from the point and from the attack can tell."""
    size = attack.square.clamp(min=1e-300).sqrt()
    cut = pairs.radius / size
    start = Move(cut.unsqueeze(1) * attack.e, cut * attack.inner, cut**2 * attack.square)
    first, second = (descend(pairs, begin, DESCENT) for begin in (rest(pairs), start))
    return first.where(value(pairs, first) <= value(pairs, second), second)


def _hard(pairs: Pairs, move: Move, need: Tensor) -> Tensor:
    """What the best parabola lacks, (m,)."""
    bound = first_bound(pairs, move)
    best = bound.value.clone()
    left = torch.nonzero(best <= need).squeeze(1)
    if len(left) > 0:
        best[left] = raised(pairs.take(left), bound.take(left), need[left], ASCENT).value
    lack = (need - best) / bound.scale.clamp(min=1e-300)
    return torch.where(best > need, -1.0, lack.clamp(min=1e-6)).nan_to_num(nan=1.0, posinf=1.0)


def _all(good: Tensor, place: Tensor, count: int) -> Tensor:
    """Whether all pairs of each place are good, (count,) bool."""
    result = torch.ones(count, dtype=torch.bool, device=good.device)
    result[place[~good]] = False
    return result
