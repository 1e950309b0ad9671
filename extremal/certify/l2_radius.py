"""Certified radii in l2 for shallow networks: linear bounds first, parabolas where they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal._tensors import RowRecord, bisect_largest
from extremal.certify.l2_problem import (
    Perturbation,
    PointProducts,
    TargetPairs,
    descend_margin,
    margin_value,
    no_perturbation,
    point_products,
)
from extremal.certify.linear_bounds import linear_bound
from extremal.certify.parabolas import uniform_curvature_bound
from extremal.certify.reduced_networks import (
    ReducedNetwork,
    assigned_points,
    distance_to_zero_output,
)
from extremal.certify.trust_region import ascend_dual, first_bound, holds_on_slices
from extremal.models import RoundingNear, relu_power

# A bound on M must exceed this share of the sizes of all its terms, which rounding may hide.
ROUNDING_SHARE = 1e-9
# The first radius that the tight level tries, as a share of the attacked one.
FIRST_RADIUS_SHARE = 0.992
# By what share the second radius is smaller than the first; this doubles from one to the next.
LEAST_RADIUS_STEP = 0.005
# How many radii the tight level tries for a point, at most.
MOST_RADII = 8
# Full linear steps toward the worst perturbation of a pair.
DESCENT_STEPS = 12
# Ascent begins at this many times the multiplier that the worst perturbation suggests.
FIRST_MULTIPLIER_FACTOR = 2.5
# Pairs whose matrices are in memory together.
PAIRS_AT_ONCE = 48
# Pairs whose matrices are in memory together where balls are cut in slices.
SLICED_PAIRS_AT_ONCE = 16
# Linear bounds are tried as well where others reach less than this share of the attacked radius.
WEAK_RADIUS_SHARE = 0.5


def l2_bounds(
    networks: tuple[ReducedNetwork, ...],
    x: Tensor,
    y: Tensor,
    attacked: Tensor | None,
    *,
    tight: bool,
    at: float | None,
) -> Iterator[tuple[Tensor, Tensor, str]]:
    """All levels for points x (n, dim): rows (m,), radii (m,) that hold there, the bound's name.

    `attacked` (n, dim) are points that break the class. With a radius `at` no other is tried.
    """
    far = distance_to_zero_output(networks[-1].form, x, "l2")
    if attacked is not None:
        size = torch.linalg.vector_norm(attacked.double() - x.double(), dim=1)
        far = torch.where(size > 0, size, far)
    for network, rows, slack in assigned_points(networks, x, y, far):
        known = None if attacked is None else attacked[rows]
        problem, upper = prepare_l2(network, x[rows], y[rows], slack, known)
        limit = torch.where(slack > 0, far[rows], torch.inf)
        lower = network.clusters.radii(problem.points, problem.own, problem.foreign, slack)
        lower = torch.minimum(lower, limit)
        yield rows, lower, "clustered"
        if at is not None:
            left = torch.nonzero(lower < at).squeeze(1)
            if len(left) > 0:
                radii = held_radii(problem.take(left), upper[left], at, tight=tight)
                yield rows[left], torch.minimum(radii, limit[left]), "parabolas"
            continue
        if tight:
            lower = torch.minimum(tight_radii(problem, upper, lower), limit)
            yield rows, lower, "parabolas"
        weak = torch.nonzero(lower < WEAK_RADIUS_SHARE * upper).squeeze(1)
        if len(weak) > 0:
            radii = bisected_radii(problem.take(weak), upper[weak])
            yield rows[weak], torch.minimum(radii, limit[weak]), "linear"


@dataclass(frozen=True, eq=False)
class L2Problem(RowRecord):
    """Correctly classified points, their best own outputs, and all foreign ones."""

    points: PointProducts
    own: Tensor  # (n,): the output to hold
    foreign: Tensor  # (n, C) bool
    slack: Tensor  # (n,): what another network's margin may be below this one's
    rounding: RoundingNear  # of the network as it runs, around the points
    attack: Perturbation  # (n,): a perturbation that breaks each point, for directions

    def pairs(self, rows: Tensor, radius: Tensor) -> tuple[TargetPairs, Tensor, Tensor]:
        """All pairs of the points at `rows`, at radii (len(rows),).

        With the place in `rows` of each pair, (m,), and what a bound on M must exceed, (m,).
        """
        place, target = self.foreign[rows].nonzero(as_tuple=True)
        row = rows[place]
        pairs = self.points.pairs(row, self.own[row], target, radius[place])
        error = self.rounding.take(rows).outputs(radius)
        error = error[place, self.own[row]] + error[place, target]
        return pairs, place, required_bound(pairs, self.slack[row]) + error


def prepare_l2(
    network: ReducedNetwork, x: Tensor, y: Tensor, slack: Tensor, attacked: Tensor | None
) -> tuple[L2Problem, Tensor]:
    """The problem of correctly classified points x (n, dim), and radii (n,) to begin with.

    Those of the points `attacked` (n, dim). Where there is none, the distance of the centre, at
    which a network without biases is zero, and of others twice what quick bounds certify. The
    original's margin may be smaller by `slack` (n,).
    """
    form, x = network.form, x.double()
    delta = torch.zeros_like(x) if attacked is None else attacked.double() - x
    mine = form.own(y)
    own = form.outputs(x).masked_fill(~mine, -torch.inf).argmax(1)
    points = point_products(form, network.gram, x)
    z, step = form.preparation.scaled_offset(x), form.preparation.scale * delta
    attack = Perturbation(step @ form.directions.T, (z * step).sum(1), (step * step).sum(1))
    size = torch.linalg.vector_norm(delta, dim=1)
    far = form.preparation.distance(x)
    problem = L2Problem(points, own, ~mine, slack, network.rounding.near(x), attack)
    if form.biased and bool((size == 0).any()):
        far = 2.0 * bisected_radii(problem, far, beyond=True)
    return problem, torch.where(size > 0, size, far.clamp(min=1e-12))


def required_bound(pairs: TargetPairs, slack: Tensor) -> Tensor:
    """What a bound on M must exceed, (m,): rounding, and a slack of the margin in units of M."""
    high = relu_power(pairs.preactivations + pairs.radius.unsqueeze(1), pairs.p)
    top = (pairs.squared_norm.sqrt() + pairs.radius) ** (2.0 * pairs.power)
    size = (pairs.weight_gap.abs() * high).sum(1) + pairs.constant_gap.abs() * top
    return ROUNDING_SHARE * size + slack * top


def bisected_radii(
    problem: L2Problem,
    upper: Tensor,
    bound: Callable[[TargetPairs, Perturbation], Tensor] = linear_bound,
    *,
    beyond: bool = False,
) -> Tensor:
    """The largest radius up to `upper` (n,), or `beyond` it, that a quick bound certifies, (n,)."""
    rows = torch.arange(len(upper), device=upper.device)
    return bisect_largest(
        lambda radius: _quickly_held(problem, rows, radius, bound), upper, beyond=beyond
    )


def tight_radii(problem: L2Problem, upper: Tensor, lower: Tensor) -> Tensor:
    """The largest radius that was certified, (n,), beginning just under `upper`, the attacked one.

    Where a radius fails the next one is smaller: by a half to one percent at first, then more.
    """
    found = lower.clone()
    radius = FIRST_RADIUS_SHARE * upper
    rows = torch.nonzero(radius > lower).squeeze(1)
    for turn in range(MOST_RADII):
        if len(rows) == 0:
            break
        missing = _missing_margin(problem, rows, radius[rows])
        good = missing <= 0
        found[rows[good]] = radius[rows[good]]
        step = LEAST_RADIUS_STEP * 2.0**turn
        radius[rows] = radius[rows] * (1.0 - (0.5 * missing).clamp(step, min(2.0 * step, 0.5)))
        rows = rows[~good & (radius[rows] > lower[rows])]
    return found


def held_radii(problem: L2Problem, upper: Tensor, radius: float, *, tight: bool) -> Tensor:
    """`radius` where bounds certify it, else 0, (n,): linear ones, and parabolas where `tight`.

    Nothing is tried where `upper` (n,), the attacked radius, is smaller.
    """
    asked = torch.full_like(upper, radius)
    rows = torch.nonzero(asked < upper).squeeze(1)
    if len(rows) == 0:
        return torch.zeros_like(upper)
    good = torch.zeros_like(upper, dtype=torch.bool)
    good[rows] = _quickly_held(problem, rows, asked[rows], linear_bound)
    rows = rows[~good[rows]]
    if tight and len(rows) > 0:
        good[rows] = _missing_margin(problem, rows, asked[rows]) <= 0
    return torch.where(good, asked, 0.0)


def _quickly_held(
    problem: L2Problem,
    rows: Tensor,
    radius: Tensor,
    bound: Callable[[TargetPairs, Perturbation], Tensor],
) -> Tensor:
    """Whether a quick bound holds all targets off the points at `rows` (m,) at radii (m,)."""
    pairs, place, need = problem.pairs(rows, radius)
    result = torch.ones_like(rows, dtype=torch.bool)
    result[place[~(bound(pairs, no_perturbation(pairs)) > need)]] = False
    return result


def _missing_margin(problem: L2Problem, rows: Tensor, radius: Tensor) -> Tensor:
    """What the bounds lack at the worst target, as a share of M's fall per radius; <= 0: none."""
    pairs, place, need = problem.pairs(rows, radius)
    move = _worst_perturbation(pairs, problem.attack.take(rows[place]))
    missing = torch.full_like(need, -1.0)
    easy = torch.maximum(linear_bound(pairs, move), uniform_curvature_bound(pairs, move))
    hard = torch.nonzero(~(easy > need)).squeeze(1)
    for some in hard.split(PAIRS_AT_ONCE) if len(hard) > 0 else ():
        missing[some] = _missing_from_parabolas(pairs.take(some), move.take(some), need[some])
    worst = torch.full((len(rows),), -1.0, dtype=need.dtype, device=need.device)
    return worst.scatter_reduce_(0, place, missing, "amax")


def _worst_perturbation(pairs: TargetPairs, attack: Perturbation) -> Perturbation:
    """Where M is least, as far as descents from the point and from the attack can tell."""
    start = attack.scaled(pairs.radius / attack.squared_length.clamp(min=1e-300).sqrt())
    first, second = (
        descend_margin(pairs, begin, DESCENT_STEPS) for begin in (no_perturbation(pairs), start)
    )
    return first.where(margin_value(pairs, first) <= margin_value(pairs, second), second)


def _missing_from_parabolas(pairs: TargetPairs, move: Perturbation, need: Tensor) -> Tensor:
    """What the best parabolas lack, (m,): one for the ball, or else one for each of its slices."""
    first = first_bound(pairs, move)
    best, mu = first.bound.clone(), first.multiplier
    left = torch.nonzero(~(best > need)).squeeze(1)
    if len(left) == 0:
        return torch.full_like(best, -1.0)
    raised = ascend_dual(
        pairs.take(left), first.anchor.take(left), FIRST_MULTIPLIER_FACTOR * mu[left], need[left]
    )
    best[left] = torch.maximum(best[left], raised)
    missing = (need - best) / (mu * pairs.radius**2).clamp(min=1e-300)
    left = torch.nonzero(~(best > need)).squeeze(1)
    missing = missing.clamp(min=1e-6).nan_to_num(nan=1.0, posinf=1.0)
    missing = torch.where(best > need, -1.0, missing)
    for some in left.split(SLICED_PAIRS_AT_ONCE) if len(left) > 0 else ():
        held = holds_on_slices(pairs.take(some), move.take(some), mu[some], need[some])
        missing[some[held]] = -1.0
    return missing
