"""Fast Adaptive Boundary (FAB): the smallest perturbation that breaks each point, for any network.

What its iteration finds is polished, and at last pulled back to the boundary by bisection.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    attack_in_batches,
    check_points,
)
from extremal.attack.ball import Ball
from extremal.attack.linear_problems import smallest_move
from extremal.attack.objectives import likely_targets, objective_gradient
from extremal.attack.projection import norms
from extremal.attack.surrogate import surrogate_network
from extremal.data import Box
from extremal.models import MarginJudge, margin, margin_judge

# The first steps go this share beyond the linearised boundary: eta - 1 of the paper.
_FIRST_OVERSHOOT = 0.05
# The most weight of the boundary's point nearest to x: alpha_max of the paper.
_MOST_NEAREST_WEIGHT = 0.1
# So much of a perturbation is kept once it breaks the point: beta of the paper.
_KEPT_SHARE_WHEN_BROKEN = 0.9
# Each step of the polish goes this share of the way to the linearised boundary.
_POLISH_STEP_SHARES = (1.0, 1.0, 0.5, 0.5, 0.2, 0.2, 0.1, 0.1)
# So many points are tried by bisection in each step of the polish.
_POLISH_TRIALS = 10
# A perturbation that float64 does not take as broken is made longer by the first of these factors
# that is enough.
_FLOAT64_LENGTHENING_FACTORS = (1.0, 1.0 + 1e-6, 1.0 + 1e-4, 1.01)
# Bisection in float64 halves the way to x so often.
_HALVINGS_TOWARD_X = 25


def _known_balls(ball: Ball, best: BestPerturbations, share: float = 1.0) -> Ball:
    """The balls of the radii known, or a share of them: `ball` where none is smaller."""
    return Ball(ball.norm, share * best.size.clamp(max=float(ball.radius)), ball.box)


def bounded(delta: Tensor, ball: Ball) -> Tensor:
    """Perturbations without what a nearly flat network asks for: NaN, or coordinates too large."""
    most = 2.0 * float(ball.radius)
    return torch.nan_to_num(delta, nan=0.0, posinf=most, neginf=-most).clamp(-most, most)


def polish(net: nn.Module, x: Tensor, y: Tensor, ball: Ball, best: BestPerturbations) -> None:
    """Look for smaller perturbations that break the points, from where the boundary was met.

    Each step aims at the point nearest to x of the boundary linearised there, or at a part of the
    way to it. If the radius known, in that direction, is still broken, bisection between the two
    finds a smaller one.
    """
    for share in _POLISH_STEP_SHARES:
        rows = torch.nonzero(torch.isfinite(best.size) & (best.size > 0)).squeeze(1)
        if len(rows) == 0:
            return
        part, labels, delta = x[rows], y[rows], best.delta[rows]
        seen = objective_gradient(net, part + delta, labels, "margin")
        height = seen.margin + (seen.gradient * delta).sum(1)
        origin = smallest_move(seen.gradient, height, ball.norm, ball.bounds(part))
        aim = delta + share * (bounded(origin, ball) - delta)
        size = ball.norms(aim)
        longer = (best.size[rows] / torch.where(size > 0, size, 1.0)).clamp(min=1.0, max=2.0)
        known = Ball(ball.norm, best.size[rows], ball.box)
        outer = known.project(longer.to(x.dtype).unsqueeze(1) * aim, part)
        low, high = torch.zeros_like(outer[:, 0]), torch.ones_like(outer[:, 0])
        along = high
        for _ in range(_POLISH_TRIALS):
            trial = aim + along.unsqueeze(1) * (outer - aim)
            with torch.no_grad():
                value = margin(net, part + trial, labels)
            best.note_better(rows, value, trial, ball.norms(trial))
            low, high = torch.where(value <= 0, low, along), torch.where(value <= 0, along, high)
            along = 0.5 * (low + high)


def just_broken(net: nn.Module, x: Tensor, y: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """Perturbations (n, dim) longer than `delta` by up to 1 %, by as little as breaks the point.

    A search in float32 ends so near the boundary that float64 may put it on the other side. Where
    even 1 % does not help, `delta` is left as it is.
    """
    return _just_broken(margin_judge(net), x, y, delta, ball)


def _just_broken(judge: MarginJudge, x: Tensor, y: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    share = torch.zeros_like(delta[:, 0])
    for longer in _FLOAT64_LENGTHENING_FACTORS:
        trial = torch.where(share > 0, share, longer)
        share = torch.where(_broken(judge, x, y, trial, delta, ball), trial, 0.0)
    return torch.where(share > 0, share, 1.0).unsqueeze(1) * delta


def bisected_to_boundary(
    judge: MarginJudge, x: Tensor, y: Tensor, delta: Tensor, ball: Ball
) -> Tensor:
    """Perturbations shorter than delta, broken in float64 and as short as bisection finds."""
    delta = _just_broken(judge, x, y, delta, ball)
    high = torch.ones_like(delta[:, 0])
    low = torch.where(_broken(judge, x, y, high, delta, ball), 0.0, high)
    for _ in range(_HALVINGS_TOWARD_X):
        middle = 0.5 * (low + high)
        hit = _broken(judge, x, y, middle, delta, ball)
        high, low = torch.where(hit, middle, high), torch.where(hit, low, middle)
    return high.unsqueeze(1) * delta


def _broken(
    judge: MarginJudge, x: Tensor, y: Tensor, share: Tensor, delta: Tensor, ball: Ball
) -> Tensor:
    return judge(ball.rounded_points(share.unsqueeze(1) * delta, x), y).broken


def boundary(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    steps: int = 100,
    targets: int = 0,
    restarts: int = 1,
    farthest: float | None = None,
    start: Tensor | None = None,
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Look for the smallest perturbation that breaks each point of x (n, dim), inf where none.

    The iteration of FAB (Croce & Hein 2020, "Minimally distorted adversarial examples"): with the
    margin linearised at x + d, d_1 is the point of its zero set nearest to x + d, and d_0 the one
    nearest to x, both in the norm and in the box; d <- (1 - a) (d + c (d_1 - d)) + c a d_0 with
    a = min(0.1, ||d_1 - d|| / (||d_1 - d|| + ||d_0||)) and c falling from 1.05 to 1, within the
    radius known. Where x + d is broken, d <- 0.9 d. The smallest broken d is then polished by d_0
    alone, pulled back to x by bisection in float64, and verified.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `steps`: of each run toward each target, at least 1; 100 by default.
    - `targets`: how many of the likeliest wrong classes the margin is linearised toward in turn; 0
      (the default) for the margin itself.
    - `restarts`: how many runs, 1 by default: the first begins at `x`, others at random points half
      as far as the best found.
    - `farthest`: the largest norm of a perturbation; None (the default) for ten times the largest
      norm of a point.
    - `start`: points (n, dim) to begin with, such as another attack's: those that are broken bound
      the search; None for none.
    - `generator`: a `torch.Generator`, the source of all random draws; unused with one restart.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.integer("steps", steps, minimum=1)
    _check.integer("targets", targets, minimum=0)
    _check.integer("restarts", restarts, minimum=1)
    _check.generator("generator", generator)
    _check.integer("batch", batch, minimum=1)
    ball = Ball(norm, _farthest_norm(x, norm, farthest), box)
    ball.bounds(x)
    known = _check_start(start, x, ball)
    twin, judge = surrogate_network(net, x), margin_judge(net)

    def search(rows: slice) -> Tensor:
        part, labels = x[rows], y[rows]
        best = _start_of_search(judge, part, labels, known[rows] - part, ball)
        with torch.no_grad():
            aims = likely_targets(twin(part), labels, targets)
        for turn, target in itertools.product(range(restarts), aims):
            begin = torch.zeros_like(part)
            if turn > 0:
                begin = _known_balls(ball, best, 0.5).sample(part, generator=generator)
            _run(twin, part, labels, ball, best, target, begin, steps)
        polish(twin, part, labels, ball, best)
        return bisected_to_boundary(judge, part, labels, best.delta, ball)

    bar = Bar("boundary", len(x), progress)
    return attack_in_batches(search, net, x, y, ball, "boundary", batch, bar, smallest=True)


def _start_of_search(
    judge: MarginJudge, x: Tensor, y: Tensor, delta: Tensor, ball: Ball
) -> BestPerturbations:
    """The perturbations to begin with, whose sizes are known where they break their points."""
    found = judge(x + delta, y)
    value = found.margin.to(x.dtype)
    size = torch.where(found.broken, ball.norms(delta), torch.inf)
    return BestPerturbations(delta, size, value, torch.zeros_like(value))


def _run(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    best: BestPerturbations,
    target: Tensor | None,
    begin: Tensor,
    steps: int,
) -> None:
    """`steps` steps of the iteration from the perturbations `begin`; the best are noted."""
    every, delta = torch.arange(len(x), device=x.device), begin
    for step in range(steps):
        over = 1.0 + _FIRST_OVERSHOOT * (1.0 - step / steps)
        seen = objective_gradient(net, x + delta, y, "margin", target)
        best.note_better(every, seen.margin, delta, ball.norms(delta))
        new = _next_delta(delta, -seen.value, seen.gradient, over, x, ball)
        broken = (seen.margin <= 0).unsqueeze(1)
        delta = torch.where(broken, _KEPT_SHARE_WHEN_BROKEN * delta, new)
        delta = _known_balls(ball, best).project(delta, x)
    with torch.no_grad():
        value = margin(net, x + delta, y)
    best.note_better(every, value, delta, ball.norms(delta))


def _next_delta(
    delta: Tensor, gap: Tensor, upward: Tensor, over: float, x: Tensor, ball: Ball
) -> Tensor:
    """The next perturbations, by the margin `gap` (n,) at x + delta and minus its slope."""
    bounds = ball.bounds(x)
    moved = None if bounds is None else (bounds[0] - delta, bounds[1] - delta)
    if moved is not None:
        moved = moved[0].clamp(max=0.0), moved[1].clamp(min=0.0)
    near = bounded(smallest_move(upward, gap, ball.norm, moved), ball)
    height = gap + (upward * delta).sum(1)
    origin = bounded(smallest_move(upward, height, ball.norm, bounds), ball)
    step, far = norms(near, ball.norm), norms(origin, ball.norm)
    share = (
        (step / (step + far).clamp(min=1e-300))
        .clamp(max=_MOST_NEAREST_WEIGHT)
        .to(x.dtype)
        .unsqueeze(1)
    )
    return (1.0 - share) * (delta + over * near) + share * over * origin


def _farthest_norm(x: Tensor, norm: str, farthest: float | None) -> float:
    if farthest is not None:
        return _check.number("farthest", farthest, above=0.0)
    largest = 10.0 * float(Ball(norm, 0.0).norms(x).max())
    return largest if largest > 0 else 1.0


def _check_start(start: Tensor | None, x: Tensor, ball: Ball) -> Tensor:
    if start is None:
        return x
    rule = f"be a tensor like x, {x.dtype} {tuple(x.shape)}, in the box"
    good = isinstance(start, Tensor) and start.shape == x.shape and start.dtype == x.dtype
    seen = f"{start.dtype} {tuple(start.shape)}" if isinstance(start, Tensor) else repr(start)
    _check.require(good, "start", rule, seen)
    _check.finite("start", start)
    limits = ball.limits(x)
    inside = limits is None or bool(((start >= limits[0]) & (start <= limits[1])).all())
    _check.require(inside, "start", rule, "points outside")
    return start.to(x.device)
