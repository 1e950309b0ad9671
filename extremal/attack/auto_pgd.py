"""APGD: gradient ascent that sets its own step lengths, on several objectives and targets."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    attack_in_batches,
    check_attack,
)
from extremal.attack.auto_pgd_ascent import AscentProblem, Momentum, Rule, Sparse, ascend
from extremal.attack.ball import Ball
from extremal.attack.objectives import OBJECTIVES, likely_targets
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
    batch: int = BATCH_POINTS,
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
    y = check_attack(net, x, y, ball, batch)
    _check.choice("objective", objective, OBJECTIVES)
    _check.choice("start", start, ("zero", "random"))
    _check.integer("targets", targets, minimum=0)
    _check.integer("steps", steps, minimum=1)
    _check.integer("restarts", restarts, minimum=1)
    _check.generator("generator", generator)
    twin = surrogate_network(net, x)

    def search(rows: slice) -> Tensor:
        """The perturbations of least margin of all runs."""
        points, labels, inner = x[rows], y[rows], ball.take(rows)
        with torch.no_grad():
            out = twin(points)
        clean = output_margins(out, labels)
        best = BestPerturbations.begin(torch.zeros_like(points), stopping_margin(clean), clean)
        every = torch.arange(len(points), device=x.device)
        aims = likely_targets(out, labels, targets)
        for turn, aim in itertools.product(range(restarts), aims):
            left = every[best.standing(every)]
            if len(left) == 0:
                break
            aimed = None if aim is None else aim[left]
            task = AscentProblem(points[left], labels[left], inner.take(left), aimed, objective)
            begin = start if turn == 0 else "random"
            delta, margin = _run(twin, task, steps, begin, generator)
            best.note_lower(left, margin, delta)
        return best.delta

    name = f"apgd-{objective}" + ("-targeted" if targets else "")
    bar = Bar("apgd", len(x), progress)
    return attack_in_batches(search, net, x, y, ball, name, batch, bar)


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
