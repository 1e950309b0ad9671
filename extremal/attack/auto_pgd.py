"""APGD: gradient ascent that sets its own step lengths, on several objectives and targets.

One ascent (`ascend`) follows a rule that proposes steps and reviews them at checkpoints: momentum
for l2 and linf, sparse steps for l1.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import RowRecord, batches
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    attack_in_batches,
    check_attack,
)
from extremal.attack.ball import Ball
from extremal.attack.objectives import (
    OBJECTIVES,
    ObjectiveValues,
    likely_targets,
    objective_gradient,
)
from extremal.attack.projection import ROWS_IN_CACHE, sorted_rows
from extremal.attack.surrogate import stopping_margin, surrogate_network
from extremal.models import output_margins

# The phases of a run in l1: a radius, in units of the ball's, and the share of the steps that is
# made with it (Croce & Hein 2021, Section 4.2).
_L1_PHASES = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))


def apgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    objective: str = "margin",
    targets: int = 0,
    steps: int = 100,
    restarts: int = 1,
    start: str = "zero",
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by the APGD of Croce & Hein 2020, in l1 by that of Croce & Hein 2021.

    A point that is broken is left alone. In l1 a run goes through balls of 3, 2 and 1 times the
    radius. Of each point the perturbation of least margin is returned, and verified.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `objective`: "margin" (the default), "cross-entropy" or "dlr" (`objectives.objective_values`);
      the cross-entropy is weak where outputs are small, and all classes about as likely.
    - `targets`: how many wrong classes each point is driven toward in turn, the likeliest first; 0
      (the default) for no target.
    - `steps`: of each run, 100 by default.
    - `restarts`: how many runs, 1 by default; those after the first start at random points.
    - `start`: of the first run: "zero" (the default), or a "random" point of the ball.
    - `generator`: a `torch.Generator`, the source of all random draws.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_attack(net, x, y, ball, batch)
    _check.choice("objective", objective, OBJECTIVES)
    _check.choice("start", start, ("zero", "random"))
    _check.integer("targets", targets, minimum=0)
    _check.integer("steps", steps, minimum=1)
    _check.integer("restarts", restarts, minimum=1)
    _check.generator("generator", generator)
    twin = surrogate_network(net, x)
    starts = [start] + ["random"] * (restarts - 1)

    def search(rows: slice) -> Tensor:
        points = AscentProblem(x[rows], y[rows], ball.take(rows), None, objective)
        return _least_margins(twin, points, targets, steps, starts, generator)

    name = f"apgd-{objective}" + ("-targeted" if targets else "")
    bar = Bar("apgd", len(x), progress)
    return attack_in_batches(search, net, x, y, ball, name, batch, bar)


def _least_margins(
    net: nn.Module,
    task: AscentProblem,
    targets: int,
    steps: int,
    starts: list[str],
    g: torch.Generator,
) -> Tensor:
    """The perturbations (n, dim) of least margin of all runs."""
    with torch.no_grad():
        out = net(task.x)
    clean = output_margins(out, task.y)
    best = BestPerturbations.begin(torch.zeros_like(task.x), stopping_margin(clean), clean)
    every = torch.arange(len(clean), device=clean.device)
    for start, target in itertools.product(starts, likely_targets(out, task.y, targets)):
        left = every[best.standing(every)]
        if len(left) == 0:
            break
        delta, margin = _run(net, replace(task, target=target).take(left), steps, start, g)
        best.note_lower(left, margin, delta)
    return best.delta


def _run(
    net: nn.Module, task: AscentProblem, steps: int, start: str, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The perturbations of least margin, and that margin, of one run."""
    norm, x, left = task.ball.norm, task.x, steps
    phases = _L1_PHASES if norm == "l1" else ((1.0, 1.0),)
    for number, (factor, share) in enumerate(phases):
        inner = replace(task, ball=replace(task.ball, radius=factor * task.ball.radius))
        if number == 0:
            dense = start == "random"
            delta = inner.ball.sample(x, generator=g) if dense else torch.zeros_like(x)
        rule: Rule = Sparse(fresh=number == 0) if norm == "l1" else Momentum()
        last = number == len(phases) - 1
        count = left if last else min(left, math.ceil(share * steps))
        delta = inner.ball.project(delta, x)
        delta, least, lowest = ascend(net, inner, delta, count, rule, stop=last)
        left -= count
    return least, lowest


# The weight of the new step against the last one: alpha of the paper.
_NEW_STEP_WEIGHT = 0.75
# The step length stays only if this share of the steps has risen: rho of the paper.
_LEAST_RISING_SHARE = 0.75
# Sparse steps are reviewed each time this share of all steps has been made.
_SPARSE_REVIEW_SHARE = 0.04
# The first sparse steps move this share of all coordinates.
_FIRST_MOVED_SHARE = 0.2
# The next sparse steps move this many times fewer coordinates than the best point has, and a step
# that is shortened is divided by the same number.
_SPARSITY_FACTOR = 1.5
# No sparse step becomes shorter than this share of the first one.
_LEAST_STEP_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class MomentumState(RowRecord):
    """What `Momentum` keeps of each point since its last checkpoint."""

    step: Tensor  # (n, 1)
    rises: Tensor  # (n,): how many steps rose
    mark: Tensor  # (n,): largest objective at the checkpoint
    halved: Tensor  # (n,) bool: whether the step was halved there


class Momentum:
    """The rule of Croce & Hein 2020, Algorithm 1, for l2 and linf.

    From a step of 2 radius: z = P(d + step * steepest(g)), d <- P(d + 0.75 (z - d) + 0.25 move).
    At checkpoints ceil(p_j steps), p = 0, 0.22, then p_j + max(p_j - p_(j-1) - 0.03, 0.06), the
    step is halved and the best point taken up again where fewer than 75 % of the steps rose, or
    where neither the step nor the best objective has changed since the checkpoint before. Here P is
    the exact projection on ball and box, and coordinates that the box blocks are left out of g.
    """

    def checkpoints(self, steps: int) -> list[int]:
        before, share, found = 0, 22, []  # in hundredths: 0.41 * 100 is more than 41 in floats
        while share <= 100:
            found.append(math.ceil(share * steps / 100))
            before, share = share, share + max(share - before - 3, 6)
        return found

    def begin(self, task: AscentProblem, delta: Tensor, now: ObjectiveValues) -> MomentumState:
        step = (2.0 * task.ball.radii(task.x)).to(delta.dtype).unsqueeze(1)
        never = torch.zeros_like(now.value, dtype=torch.bool)
        return MomentumState(step, torch.zeros_like(now.value), now.value, never)

    def propose(self, ascent: AscentState) -> Tensor:
        ball, delta = ascent.task.ball, ascent.delta
        around = ball.around(ascent.task.x)
        upward = ball.steepest(around.without_blocked(ascent.now.gradient, delta))
        aim = around.project(delta + ascent.memory.step * upward)
        if not bool(ascent.move.any()):
            return aim
        moved = delta + _NEW_STEP_WEIGHT * (aim - delta) + (1.0 - _NEW_STEP_WEIGHT) * ascent.move
        begun = ascent.move.any(1, keepdim=True)
        return torch.where(begun, around.project(moved), aim)

    def note(self, ascent: AscentState, now: ObjectiveValues) -> MomentumState:
        rose = (now.value > ascent.now.value).to(now.value.dtype)
        momentum: MomentumState = ascent.memory
        return replace(momentum, rises=momentum.rises + rose)

    def review(self, ascent: AscentState, window: int) -> AscentState:
        momentum: MomentumState = ascent.memory
        idle = ~momentum.halved & (ascent.top.value <= momentum.mark)
        halve = (momentum.rises < _LEAST_RISING_SHARE * window) | idle
        step = torch.where(halve.unsqueeze(1), 0.5 * momentum.step, momentum.step)
        new = MomentumState(step, torch.zeros_like(momentum.rises), ascent.top.value, halve)
        return replace(back_to_best(ascent, halve), memory=new)


@dataclass(frozen=True, eq=False)
class SparseState(RowRecord):
    """What `Sparse` keeps of each point."""

    step: Tensor  # (n, 1)
    most: Tensor  # (n, 1): the first step's length
    count: Tensor  # (n,) int64: coordinates that a step moves
    support: Tensor  # (n,) int64: coordinates of the best point at the last checkpoint


class Sparse:
    """The rule of Croce & Hein 2021, Algorithm 1 (APGD for l1 in a box).

    d <- P(d + step * s), s the signs of the `count` largest |g_i| over their number. Every 4 % of
    the steps: count becomes the number of coordinates of the best point / 1.5; where that number
    fell by over 5 % the step is the radius again and the best point is taken up again, else the
    step is divided by 1.5, down to a tenth of the radius. P is the exact projection on ball and
    box; coordinates that the box blocks are left out of g.
    """

    def __init__(self, fresh: bool) -> None:
        self._fresh = fresh  # whether the start is a random, dense one

    def checkpoints(self, steps: int) -> list[int]:
        every = max(1, int(_SPARSE_REVIEW_SHARE * steps))
        return list(range(every, steps + 1, every))

    def begin(self, task: AscentProblem, delta: Tensor, now: ObjectiveValues) -> SparseState:
        step = task.ball.radii(task.x).to(delta.dtype).unsqueeze(1)
        dim = delta.shape[1]
        if self._fresh:
            count = torch.full((len(delta),), int(_FIRST_MOVED_SHARE * dim), device=delta.device)
            return SparseState(step, step, count.clamp(min=1), torch.full_like(count, dim))
        support = (delta != 0).sum(1)
        return SparseState(step, step, _sparser_count(support), support)

    def propose(self, ascent: AscentState) -> Tensor:
        around, sparse = ascent.task.ball.around(ascent.task.x), ascent.memory
        gradient = around.without_blocked(ascent.now.gradient, ascent.delta)
        size = gradient.abs()
        least = sorted_rows(size).gather(1, size.shape[1] - sparse.count.unsqueeze(1))
        signs = torch.where(size >= least, gradient.sign(), 0.0)
        number = signs.abs().sum(1, keepdim=True).clamp(min=1.0)
        return around.project(ascent.delta + sparse.step * signs / number)

    def note(self, ascent: AscentState, now: ObjectiveValues) -> SparseState:
        sparse: SparseState = ascent.memory
        return sparse

    def review(self, ascent: AscentState, window: int) -> AscentState:
        sparse: SparseState = ascent.memory
        support = (ascent.best != 0).sum(1)
        fell = support < 0.95 * sparse.support
        shorter = torch.maximum(sparse.step / _SPARSITY_FACTOR, _LEAST_STEP_SHARE * sparse.most)
        step = torch.where(fell.unsqueeze(1), sparse.most, shorter)
        new = SparseState(step, sparse.most, _sparser_count(support), support)
        return replace(back_to_best(ascent, fell), memory=new)


def _sparser_count(support: Tensor) -> Tensor:
    return (support / _SPARSITY_FACTOR).long().clamp(min=1)


@dataclass(frozen=True, eq=False)
class AscentProblem(RowRecord):
    """Points (n, dim) to attack, within what, and toward which class where there is a target."""

    x: Tensor
    y: Tensor
    ball: Ball
    target: Tensor | None
    objective: str

    def evaluate(self, net: nn.Module, delta: Tensor) -> ObjectiveValues:
        """The objective at x + delta."""
        return objective_gradient(net, self.x + delta, self.y, self.objective, self.target)


@dataclass(frozen=True, eq=False)
class AscentState(RowRecord):
    """An ascent under way."""

    task: AscentProblem
    rows: Tensor  # (n,): places of these points among those it began with
    delta: Tensor  # (n, dim)
    move: Tensor  # (n, dim): the step that led to delta
    now: ObjectiveValues  # at delta
    best: Tensor  # (n, dim): the perturbation of largest objective so far
    top: ObjectiveValues  # at best
    memory: Any  # what the rule keeps of each point, a dataclass of tensors


class Rule(Protocol):
    """How steps are made and judged."""

    def checkpoints(self, steps: int) -> list[int]:
        """The step numbers, ascending, after which `review` is called."""

    def begin(self, task: AscentProblem, delta: Tensor, now: ObjectiveValues) -> Any:
        """The memory at the start."""

    def propose(self, ascent: AscentState) -> Tensor:
        """The next perturbations, (n, dim), in the ball and the box."""

    def note(self, ascent: AscentState, now: ObjectiveValues) -> Any:
        """The memory after a step to where the objective is `now`."""

    def review(self, ascent: AscentState, window: int) -> AscentState:
        """The ascent to go on with, `window` steps after the last review."""


def ascend(
    net: nn.Module, task: AscentProblem, delta: Tensor, steps: int, rule: Rule, *, stop: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Climb for `steps` steps from `delta`.

    Returns the perturbations of largest objective and of least margin, and that margin. With `stop`
    a point leaves once it is clearly broken.
    """
    now = task.evaluate(net, delta)
    memory = rule.begin(task, delta, now)
    rows = torch.arange(len(delta), device=delta.device)
    ascent = AscentState(task, rows, delta, torch.zeros_like(delta), now, delta, now, memory)
    best = delta.clone()
    least = BestPerturbations.begin(delta.clone(), stopping_margin(now.margin), now.margin.clone())
    checks, last = rule.checkpoints(steps), 0
    for step in range(1, steps + 1):
        if stop:
            # A point whose margin is NaN goes on.
            standing = ~(ascent.now.margin <= least.broken_below[ascent.rows])
            if not bool(standing.any()):
                break
            ascent = ascent if bool(standing.all()) else ascent.take(standing)
        ascent = _advanced(net, rule, ascent)
        least.note_lower(ascent.rows, ascent.now.margin, ascent.delta)
        best[ascent.rows] = ascent.best
        if step in checks:
            ascent, last = rule.review(ascent, step - last), step
    return best, least.delta, least.margin


def back_to_best(ascent: AscentState, rows: Tensor) -> AscentState:
    """The ascent with the points where `rows` (n,) is set put back at their best, without speed."""
    where = rows.unsqueeze(1)
    return replace(
        ascent,
        delta=torch.where(where, ascent.best, ascent.delta),
        move=torch.where(where, 0.0, ascent.move),
        now=ascent.top.where(rows, ascent.now),
    )


def _advanced(net: nn.Module, rule: Rule, ascent: AscentState) -> AscentState:
    """The ascent after one step."""
    blocks = batches(len(ascent.rows), ROWS_IN_CACHE)
    delta = torch.cat([rule.propose(ascent.take(block)) for block in blocks])
    now = ascent.task.evaluate(net, delta)
    higher = now.value > ascent.top.value
    return replace(
        ascent,
        delta=delta,
        move=delta - ascent.delta,
        now=now,
        best=torch.where(higher.unsqueeze(1), delta, ascent.best),
        top=now.where(higher, ascent.top),
        memory=rule.note(ascent, now),
    )
