"""Certified radii in l2 for shallow networks: linear bounds first, parabolas where they fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.dual_ascent import ascend_dual, first_bound, holds_on_slices
from extremal.certify.l2_problem import (
    Perturbation,
    PointProducts,
    TargetPairs,
    descend,
    no_perturbation,
    points,
    value,
)
from extremal.certify.largest import largest
from extremal.certify.linear_bounds import linear_bound
from extremal.certify.parabolas import uniform_curvature_bound
from extremal.certify.reduced_networks import ReducedNetwork
from extremal.models import relu_power

ROUNDING = 1e-9  # share of all terms' sizes that a bound on M must exceed
ROUNDS = 8  # radii that the tight level tries for a point
FIRST = 0.992  # of the attacked radius
LEAST = 0.005  # by what the next radius is smaller, doubled from one to the next
DESCENT = 12  # full linear steps toward the worst perturbation of a pair
AHEAD = 2.5  # times the multiplier that the move suggests: where ascent begins
AT_ONCE, IN_SLICES = 48, 16  # pairs whose matrices are in memory together


@dataclass(frozen=True, eq=False)
class L2Problem:
    """Correctly classified points, their best own outputs, and all foreign ones."""

    points: PointProducts
    own: Tensor  # (n,): the output to hold
    foreign: Tensor  # (n, C) bool
    slack: Tensor  # (n,): what another network's margin may be below this one's
    attack: Perturbation  # (n,): a perturbation that breaks each point, for directions

    def take(self, index: Tensor) -> L2Problem:
        """The chosen points."""
        return L2Problem(
            self.points.take(index),
            self.own[index],
            self.foreign[index],
            self.slack[index],
            self.attack.take(index),
        )

    def pairs(self, rows: Tensor, radius: Tensor) -> tuple[TargetPairs, Tensor, Tensor]:
        """All pairs of the points at `rows`, at radii of theirs; their places, and needs."""
        place, target = self.foreign[rows].nonzero(as_tuple=True)
        row = rows[place]
        pairs = self.points.pairs(row, self.own[row], target, radius[place])
        return pairs, place, needed(pairs, self.slack[row])


def l2_task(
    network: ReducedNetwork, x: Tensor, y: Tensor, slack: Tensor, attacked: Tensor | None
) -> tuple[L2Problem, Tensor]:
    """The task for correctly classified points x (n, dim), and radii (n,) to begin with.

    Those of the points `attacked` (n, dim). Where there is none, the distance of the centre, at
    which a network without biases is zero, and of others twice what quick bounds certify. The
    original's margin may be smaller by `slack` (n,).
    """
    form, x = network.form, x.double()
    delta = torch.zeros_like(x) if attacked is None else attacked.double() - x
    mine = form.own(y)
    own = form.outputs(x).masked_fill(~mine, -torch.inf).argmax(1)
    seen = points(form, network.gram, x)
    z, step = form.preparation.scaled_offset(x), form.preparation.scale * delta
    attack = Perturbation(step @ form.directions.T, (z * step).sum(1), (step * step).sum(1))
    size = torch.linalg.vector_norm(delta, dim=1)
    far = form.preparation.distance(x)
    task = L2Problem(seen, own, ~mine, slack, attack)
    if form.biased and bool((size == 0).any()):
        far = 2.0 * bisected_radii(task, far, beyond=True)
    return task, torch.where(size > 0, size, far.clamp(min=1e-12))


def needed(pairs: TargetPairs, slack: Tensor) -> Tensor:
    """What a bound on M must exceed, (m,): rounding, and a slack of the margin in units of M."""
    high = relu_power(pairs.s + pairs.radius.unsqueeze(1), pairs.p)
    top = (pairs.square.sqrt() + pairs.radius) ** (2.0 * pairs.power)
    return ROUNDING * ((pairs.a.abs() * high).sum(1) + pairs.beta.abs() * top) + slack * top


def bisected_radii(
    task: L2Problem,
    upper: Tensor,
    bound: Callable[[TargetPairs, Perturbation], Tensor] = linear_bound,
    *,
    beyond: bool = False,
) -> Tensor:
    """The largest radius up to `upper` (n,), or `beyond` it, that a quick bound certifies, (n,)."""
    rows = torch.arange(len(upper), device=upper.device)

    def holds(radius: Tensor) -> Tensor:
        pairs, place, need = task.pairs(rows, radius)
        return _all(bound(pairs, no_perturbation(pairs)) > need, place, len(rows))

    return largest(holds, upper, beyond=beyond)


def tight_radii(task: L2Problem, upper: Tensor, lower: Tensor) -> Tensor:
    """The largest radius that was certified, (n,), beginning just under `upper`, the attacked one.

    Where a radius fails the next one is smaller: by a half to one percent at first, then more.
    """
    found = lower.clone()
    radius = FIRST * upper
    rows = torch.nonzero(radius > lower).squeeze(1)
    for turn in range(ROUNDS):
        if len(rows) == 0:
            break
        lacks = _lacks(task, rows, radius[rows])
        good = lacks <= 0
        found[rows[good]] = radius[rows[good]]
        step = LEAST * 2.0**turn
        radius[rows] = radius[rows] * (1.0 - (0.5 * lacks).clamp(step, min(2.0 * step, 0.5)))
        rows = rows[~good & (radius[rows] > lower[rows])]
    return found


def held_radii(task: L2Problem, upper: Tensor, radius: float, *, tight: bool) -> Tensor:
    """`radius` where bounds certify it, else 0, (n,): linear ones, and parabolas where `tight`.

    Nothing is tried where `upper` (n,), the attacked radius, is smaller.
    """
    asked = torch.full_like(upper, radius)
    rows = torch.nonzero(asked < upper).squeeze(1)
    if len(rows) == 0:
        return torch.zeros_like(upper)
    pairs, place, need = task.pairs(rows, asked[rows])
    good = torch.zeros_like(upper, dtype=torch.bool)
    good[rows] = _all(linear_bound(pairs, no_perturbation(pairs)) > need, place, len(rows))
    rows = rows[~good[rows]]
    if tight and len(rows) > 0:
        good[rows] = _lacks(task, rows, asked[rows]) <= 0
    return torch.where(good, asked, 0.0)


def _lacks(task: L2Problem, rows: Tensor, radius: Tensor) -> Tensor:
    """What the bounds lack at the worst target, as a share of M's fall per radius; <= 0: none."""
    pairs, place, need = task.pairs(rows, radius)
    move = _worst_move(pairs, task.attack.take(rows[place]))
    lack = torch.full_like(need, -1.0)
    easy = torch.maximum(linear_bound(pairs, move), uniform_curvature_bound(pairs, move))
    hard = torch.nonzero(~(easy > need)).squeeze(1)
    for some in hard.split(AT_ONCE) if len(hard) > 0 else ():
        lack[some] = _hard(pairs.take(some), move.take(some), need[some])
    worst = torch.full((len(rows),), -1.0, dtype=need.dtype, device=need.device)
    return worst.scatter_reduce_(0, place, lack, "amax")


def _worst_move(pairs: TargetPairs, attack: Perturbation) -> Perturbation:
    """Where M is least, as far as descents from the point and from the attack can tell."""
    size = attack.square.clamp(min=1e-300).sqrt()
    cut = pairs.radius / size
    start = Perturbation(cut.unsqueeze(1) * attack.e, cut * attack.inner, cut**2 * attack.square)
    first, second = (descend(pairs, begin, DESCENT) for begin in (no_perturbation(pairs), start))
    return first.where(value(pairs, first) <= value(pairs, second), second)


def _hard(pairs: TargetPairs, move: Perturbation, need: Tensor) -> Tensor:
    """What the best parabolas lack, (m,): one for the ball, or else one for each of its slices."""
    first = first_bound(pairs, move)
    best = first.bound.clone()
    left = torch.nonzero(~(best > need)).squeeze(1)
    if len(left) == 0:
        return torch.full_like(best, -1.0)
    part, mu = pairs.take(left), first.mu[left]
    best[left] = torch.maximum(
        best[left], ascend_dual(part, first.anchor.take(left), AHEAD * mu, need[left])
    )
    lack = (need - best) / (first.mu * pairs.radius**2).clamp(min=1e-300)
    left = torch.nonzero(~(best > need)).squeeze(1)
    lack = torch.where(best > need, -1.0, lack.clamp(min=1e-6).nan_to_num(nan=1.0, posinf=1.0))
    for some in left.split(IN_SLICES) if len(left) > 0 else ():
        held = holds_on_slices(pairs.take(some), move.take(some), first.mu[some], need[some])
        lack[some[held]] = -1.0
    return lack


def _all(good: Tensor, place: Tensor, count: int) -> Tensor:
    """Whether all pairs of each place are good, (count,) bool."""
    result = torch.ones(count, dtype=torch.bool, device=good.device)
    result[place[~good]] = False
    return result
