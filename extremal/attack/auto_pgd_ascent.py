"""The ascent that APGD makes from one start: rules propose steps and review them at checkpoints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from extremal.attack.ball import Ball
from extremal.attack.objectives import Ascent, objective_gradient
from extremal.attack.surrogate import clearly_broken

Record = TypeVar("Record")
_ROWS = 256  # points at a time in a rule, so that what it makes of them stays in the cache


@dataclass(frozen=True, eq=False)
class Task:
    """Points (n, dim) to attack, within what, and toward which class where there is a target."""

    x: Tensor
    y: Tensor
    ball: Ball
    target: Tensor | None
    objective: str

    def look(self, net: nn.Module, delta: Tensor) -> Ascent:
        """The objective at x + delta."""
        return objective_gradient(net, self.x + delta, self.y, self.objective, self.target)


@dataclass(frozen=True, eq=False)
class Climb:
    """An ascent under way."""

    task: Task
    rows: Tensor  # (n,): places of these points among those it began with
    delta: Tensor  # (n, dim)
    move: Tensor  # (n, dim): the step that led to delta
    now: Ascent  # at delta
    best: Tensor  # (n, dim): the perturbation of largest objective so far
    top: Ascent  # at best
    memory: Any  # what the rule keeps of each point, a dataclass of tensors


class Rule(Protocol):
    """How steps are made and judged."""

    def checkpoints(self, steps: int) -> list[int]:
        """The step numbers, ascending, after which `review` is called."""

    def begin(self, task: Task, delta: Tensor, now: Ascent) -> Any:
        """The memory at the start."""

    def propose(self, climb: Climb) -> Tensor:
        """The next perturbations, (n, dim), in the ball and the box."""

    def note(self, climb: Climb, now: Ascent) -> Any:
        """The memory after a step to where the objective is `now`."""

    def review(self, climb: Climb, window: int) -> Climb:
        """The ascent to go on with, `window` steps after the last review."""


def ascend(
    net: nn.Module, task: Task, delta: Tensor, steps: int, rule: Rule, *, stop: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Climb for `steps` steps from `delta`.

    Returns the perturbations of largest objective and of least margin, and that margin. With `stop`
    a point leaves once it is clearly broken.
    """
    now = task.look(net, delta)
    memory = rule.begin(task, delta, now)
    rows = torch.arange(len(delta), device=delta.device)
    climb = Climb(task, rows, delta, torch.zeros_like(delta), now, delta, now, memory)
    best, least, lowest = delta.clone(), delta.clone(), now.margin.clone()
    enough = clearly_broken(now.margin)
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


def back_to_best(climb: Climb, rows: Tensor) -> Climb:
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


def _advanced(net: nn.Module, rule: Rule, climb: Climb) -> Climb:
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


def _merged(rows: Tensor, first: Ascent, second: Ascent) -> Ascent:
    """`first` where `rows` is set, else `second`."""
    return Ascent(
        torch.where(rows, first.value, second.value),
        torch.where(rows.unsqueeze(1), first.gradient, second.gradient),
        torch.where(rows, first.margin, second.margin),
    )
