"""APGD: gradient ascent that sets its own step lengths, on several objectives and targets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    BATCH,
    AttackResult,
    batches,
    check_ball,
    check_points,
    verified,
)
from extremal.attack.auto_pgd_ascent import AscentProblem, Momentum, Rule, Sparse, ascend
from extremal.attack.ball import Ball
from extremal.attack.objectives import OBJECTIVES, likely_targets
from extremal.attack.surrogate import stopping_margin, surrogate_network
from extremal.models import output_margins

# Radii, in units of the ball's, and shares of the steps (Croce & Hein 2021, Section 4.2).
_L1_PHASES = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))


@dataclass(frozen=True)
class _Settings:
    objective: str
    targets: int
    steps: int
    restarts: int
    start: str


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
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by the APGD of Croce & Hein 2020, in l1 by that of Croce & Hein 2021.

    `objective` is "margin", "cross-entropy" or "dlr" (`objectives.objective_values`); the
    cross-entropy is weak where outputs are small, and all classes about as likely. With `targets`
    each point is driven toward that many wrong classes in turn, the likeliest first. `restarts`
    runs of `steps` steps each, the first from `start` ("zero", or a "random" point of the ball),
    the others random; a broken point is left alone. In l1 a run goes through balls of 3, 2 and 1
    times the radius. Of each point the perturbation of least margin is returned, and verified.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `generator`: a `torch.Generator`, the source of all random draws.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    check_ball(ball)
    _check.choice("objective", objective, OBJECTIVES)
    _check.choice("start", start, ("zero", "random"))
    settings = _Settings(
        objective,
        _check.integer("targets", targets, minimum=0),
        _check.integer("steps", steps, minimum=1),
        _check.integer("restarts", restarts, minimum=1),
        start,
    )
    _check.generator("generator", generator)
    _check.integer("batch", batch, minimum=1)
    twin = surrogate_network(net, x)
    x_adv = torch.empty_like(x)
    with Bar("apgd", len(x), progress) as bar:
        for rows in batches(len(x), batch):
            part, inner = x[rows], ball.take(rows)
            least = _attacked(twin, part, y[rows], inner, settings, generator)
            x_adv[rows] = inner.land(least, part)
            bar.done(rows.stop)
    name = f"apgd-{objective}" + ("-targeted" if targets else "")
    return verified(net, x, y, x_adv, ball, name)


def _attacked(
    net: nn.Module, x: Tensor, y: Tensor, ball: Ball, settings: _Settings, g: torch.Generator
) -> Tensor:
    """The perturbations (n, dim) of least margin of all runs."""
    with torch.no_grad():
        out = net(x)
    lowest, least = output_margins(out, y), torch.zeros_like(x)
    enough = stopping_margin(lowest)
    for start, target in _runs(settings, likely_targets(out, y, settings.targets)):
        rows = torch.nonzero(~(lowest <= enough)).squeeze(1)
        if len(rows) == 0:
            break
        aim = None if target is None else target[rows]
        task = AscentProblem(x[rows], y[rows], ball.take(rows), aim, settings.objective)
        delta, margin = _run(net, task, settings.steps, start, g)
        better = margin < lowest[rows]
        lowest[rows[better]] = margin[better]
        least[rows[better]] = delta[better]
    return least


def _runs(settings: _Settings, targets: list[Tensor | None]) -> Iterator[tuple[str, Tensor | None]]:
    for restart in range(settings.restarts):
        for target in targets:
            yield settings.start if restart == 0 else "random", target


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
