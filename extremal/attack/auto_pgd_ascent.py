"""The ascent that APGD makes from one start: rules propose steps and review them at checkpoints.

The two step rules of APGD: momentum for l2 and linf, sparse steps for l1.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from extremal.attack.ball import Ball
from extremal.attack.objectives import ObjectiveValues, objective_gradient
from extremal.attack.projection import sorted_rows
from extremal.attack.surrogate import stopping_margin

_INERTIA = 0.75  # alpha: weight of the new step against the last one
_RISES = 0.75  # rho: share of steps that must have risen for the step length to stay
_SPARSE_CHECKS = 0.04
_FIRST_SHARE = 0.2  # of all coordinates, moved by the first sparse steps
_SPARSER = 1.5  # the next steps move so much fewer coordinates than the best point has
_SHORTEST = 0.1


@dataclass(frozen=True, eq=False)
class MomentumState:
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

    def propose(self, climb: AscentState) -> Tensor:
        ball, delta = climb.task.ball, climb.delta
        around = ball.around(climb.task.x)
        upward = ball.steepest(around.unblocked(climb.now.gradient, delta))
        aim = around.project(delta + climb.memory.step * upward)
        if not bool(climb.move.any()):
            return aim
        moved = delta + _INERTIA * (aim - delta) + (1.0 - _INERTIA) * climb.move
        begun = climb.move.any(1, keepdim=True)
        return torch.where(begun, around.project(moved), aim)

    def note(self, climb: AscentState, now: ObjectiveValues) -> MomentumState:
        rose = (now.value > climb.now.value).to(now.value.dtype)
        pace: MomentumState = climb.memory
        return replace(pace, rises=pace.rises + rose)

    def review(self, climb: AscentState, window: int) -> AscentState:
        pace: MomentumState = climb.memory
        idle = ~pace.halved & (climb.top.value <= pace.mark)
        halve = (pace.rises < _RISES * window) | idle
        step = torch.where(halve.unsqueeze(1), 0.5 * pace.step, pace.step)
        new = MomentumState(step, torch.zeros_like(pace.rises), climb.top.value, halve)
        return replace(back_to_best(climb, halve), memory=new)


@dataclass(frozen=True, eq=False)
class SparseState:
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
        every = max(1, int(_SPARSE_CHECKS * steps))
        return list(range(every, steps + 1, every))

    def begin(self, task: AscentProblem, delta: Tensor, now: ObjectiveValues) -> SparseState:
        step = task.ball.radii(task.x).to(delta.dtype).unsqueeze(1)
        dim = delta.shape[1]
        if self._fresh:
            count = torch.full((len(delta),), int(_FIRST_SHARE * dim), device=delta.device)
            return SparseState(step, step, count.clamp(min=1), torch.full_like(count, dim))
        support = (delta != 0).sum(1)
        return SparseState(step, step, _fewer(support), support)

    def propose(self, climb: AscentState) -> Tensor:
        around, thrift = climb.task.ball.around(climb.task.x), climb.memory
        gradient = around.unblocked(climb.now.gradient, climb.delta)
        size = gradient.abs()
        least = sorted_rows(size).gather(1, size.shape[1] - thrift.count.unsqueeze(1))
        signs = torch.where(size >= least, gradient.sign(), 0.0)
        number = signs.abs().sum(1, keepdim=True).clamp(min=1.0)
        return around.project(climb.delta + thrift.step * signs / number)

    def note(self, climb: AscentState, now: ObjectiveValues) -> SparseState:
        thrift: SparseState = climb.memory
        return thrift

    def review(self, climb: AscentState, window: int) -> AscentState:
        thrift: SparseState = climb.memory
        support = (climb.best != 0).sum(1)
        fell = support < 0.95 * thrift.support
        shorter = torch.maximum(thrift.step / _SPARSER, _SHORTEST * thrift.most)
        step = torch.where(fell.unsqueeze(1), thrift.most, shorter)
        new = SparseState(step, thrift.most, _fewer(support), support)
        return replace(back_to_best(climb, fell), memory=new)


def _fewer(support: Tensor) -> Tensor:
    return (support / _SPARSER).long().clamp(min=1)


Record = TypeVar("Record")
_ROWS = 256  # points at a time in a rule, so that what it makes of them stays in the cache


@dataclass(frozen=True, eq=False)
class AscentProblem:
    """Points (n, dim) to attack, within what, and toward which class where there is a target."""

    x: Tensor
    y: Tensor
    ball: Ball
    target: Tensor | None
    objective: str

    def look(self, net: nn.Module, delta: Tensor) -> ObjectiveValues:
        """The objective at x + delta."""
        return objective_gradient(net, self.x + delta, self.y, self.objective, self.target)


@dataclass(frozen=True, eq=False)
class AscentState:
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

    def propose(self, climb: AscentState) -> Tensor:
        """The next perturbations, (n, dim), in the ball and the box."""

    def note(self, climb: AscentState, now: ObjectiveValues) -> Any:
        """The memory after a step to where the objective is `now`."""

    def review(self, climb: AscentState, window: int) -> AscentState:
        """The ascent to go on with, `window` steps after the last review."""


def ascend(
    net: nn.Module, task: AscentProblem, delta: Tensor, steps: int, rule: Rule, *, stop: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Climb for `steps` steps from `delta`.

    Returns the perturbations of largest objective and of least margin, and that margin. With `stop`
    a point leaves once it is clearly broken.
    """
    now = task.look(net, delta)
    memory = rule.begin(task, delta, now)
    rows = torch.arange(len(delta), device=delta.device)
    climb = AscentState(task, rows, delta, torch.zeros_like(delta), now, delta, now, memory)
    best, least, lowest = delta.clone(), delta.clone(), now.margin.clone()
    enough = stopping_margin(now.margin)
    checks, last = rule.checkpoints(steps), 0
    for step in range(1, steps + 1):
        if stop:
            standing = ~(climb.now.margin <= enough[climb.rows])  # NaN goes on
            if not bool(standing.any()):
                break
            climb = climb if bool(standing.all()) else chosen(climb, standing)
        climb = _advanced(net, rule, climb)
        better = climb.now.margin < lowest[climb.rows]
        lowest[climb.rows[better]] = climb.now.margin[better]
        least[climb.rows[better]] = climb.delta[better]
        best[climb.rows] = climb.best
        if step in checks:
            climb, last = rule.review(climb, step - last), step
    return best, least, lowest


def back_to_best(climb: AscentState, rows: Tensor) -> AscentState:
    """The ascent with the points where `rows` (n,) is set put back at their best, without speed."""
    where = rows.unsqueeze(1)
    return dataclasses.replace(
        climb,
        delta=torch.where(where, climb.best, climb.delta),
        move=torch.where(where, 0.0, climb.move),
        now=_merged(rows, climb.top, climb.now),
    )


def chosen(record: Record, keep: Tensor | slice) -> Record:
    """A dataclass of tensors, balls and such dataclasses, for the chosen points."""
    parts = {
        field.name: _chosen_part(getattr(record, field.name), keep)
        for field in dataclasses.fields(record)  # type: ignore[arg-type]
    }
    return dataclasses.replace(record, **parts)  # type: ignore[type-var]


def _chosen_part(part: Any, keep: Tensor | slice) -> Any:
    if isinstance(part, Tensor):
        return part[keep]
    if isinstance(part, Ball):
        return part.take(keep)
    return chosen(part, keep) if dataclasses.is_dataclass(part) else part


def _advanced(net: nn.Module, rule: Rule, climb: AscentState) -> AscentState:
    blocks = (slice(first, first + _ROWS) for first in range(0, len(climb.rows), _ROWS))
    delta = torch.cat([rule.propose(chosen(climb, block)) for block in blocks])
    now = climb.task.look(net, delta)
    higher = now.value > climb.top.value
    return dataclasses.replace(
        climb,
        delta=delta,
        move=delta - climb.delta,
        now=now,
        best=torch.where(higher.unsqueeze(1), delta, climb.best),
        top=_merged(higher, now, climb.top),
        memory=rule.note(climb, now),
    )


def _merged(rows: Tensor, first: ObjectiveValues, second: ObjectiveValues) -> ObjectiveValues:
    """`first` where `rows` is set, else `second`."""
    return ObjectiveValues(
        torch.where(rows, first.value, second.value),
        torch.where(rows.unsqueeze(1), first.gradient, second.gradient),
        torch.where(rows, first.margin, second.margin),
    )
