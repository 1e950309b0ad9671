"""Other ways to look at what attacks found: each may notice that they were misled."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack import AttackResult, Ball, pgd, random_search
from extremal.attack.recheck import batches
from extremal.attack.surrogate import search_copy
from extremal.evaluate import health_checks
from extremal.evaluate.evaluation_task import Task
from extremal.evaluate.health_checks import HealthWarning
from extremal.models import is_shallow, margin_gradient, output_margins

SEARCHED, QUERIES, BELOW = 64, 300, 0.95  # random search: points, trials, share of the radius found
STEPPED, PLAIN, ABOVE = 256, 100, 1.05  # plain PGD: points, steps, share of the median radius
TRAVEL = 10.0  # length of all plain steps together, in radii
FIRST = 10  # of these steps, in which a loss should change


def checked(
    task: Task, out: Tensor, found: AttackResult
) -> tuple[AttackResult, list[HealthWarning | None]]:
    """What the probes leave of the attacks' result, and what all checks of it say.

    `out` (n,) or (n, C) are the network's outputs at the points, in float64.
    """
    margins = output_margins(out, task.test.y)
    plateau = _plateau(task, out, found)
    found, search_warning = _searched(task, found)
    found, step_warning = _stepped(task, found)
    return found, [
        health_checks.constant(out, task.test.y),
        health_checks.probabilities(out, task.test.y),
        health_checks.margins_of_rounding(margins, out, task.dtype),
        health_checks.zero_gradients(_gradients(task, margins)),
        plateau,
        search_warning,
        step_warning,
    ]


def _gradients(task: Task, margins: Tensor) -> Tensor:
    """The margin's gradients (m, dim) at correctly classified points, as attacks see them."""
    right = margins > 0
    x, y = task.test.x[right], task.test.y[right]
    if len(x) == 0:
        return x
    twin, rows = search_copy(task.net, x), batches(len(x), task.batch)
    return torch.cat([margin_gradient(twin, x[at], y[at])[1] for at in rows])


def _plateau(task: Task, out: Tensor, found: AttackResult) -> HealthWarning | None:
    """The loss over the first plain steps, at points that no attack broke."""
    rows = _some(torch.nonzero(found.radius.isinf()).squeeze(1), STEPPED)
    if len(rows) == 0:
        return None
    radius = _finite(found.radius, task.test.x, task.norm)[rows]
    parts = [_change(task, rows[at], radius[at]) for at in batches(len(rows), task.batch)]
    return health_checks.loss_plateau(torch.cat(parts), out[rows], task.test.x.dtype, FIRST)


def _change(task: Task, rows: Tensor, radius: Tensor) -> Tensor:
    """The largest change (m,) of the margin over the first steps of plain PGD from the points."""
    part, ball = task.test.take(rows), Ball(task.norm, radius, task.test.box)
    twin, delta = search_copy(task.net, part.x), torch.zeros_like(part.x)
    length = (TRAVEL / PLAIN * radius).to(part.x).unsqueeze(1)
    start, gradient = margin_gradient(twin, part.x, part.y)
    change = torch.zeros_like(start)
    for _ in range(FIRST):
        downward = -torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        step = ball.steepest(ball.unblocked(downward, delta, part.x))
        delta = ball.project(delta + length * step, part.x)
        value, gradient = margin_gradient(twin, part.x + delta, part.y)
        change = torch.maximum(change, (value - start).abs())
    return change.double()


def _searched(task: Task, found: AttackResult) -> tuple[AttackResult, HealthWarning | None]:
    """A random search a little below the radius found for some points."""
    rows = _some(torch.nonzero(found.radius > 0).squeeze(1), SEARCHED)
    if len(rows) == 0:
        return found, None
    part = task.test.take(rows)
    radius = BELOW * _finite(found.radius, part.x, task.norm)[rows]
    probe = random_search(
        task.net,
        part.x,
        part.y,
        ball=Ball(task.norm, radius, part.box),
        steps=QUERIES,
        generator=task.generator,
        batch=task.batch,
    )
    return found.merged(rows, probe), health_checks.random_wins(probe, shallow=is_shallow(task.net))


def _stepped(task: Task, found: AttackResult) -> tuple[AttackResult, HealthWarning | None]:
    """Plain PGD from the points themselves, a little beyond the median radius found."""
    right = torch.nonzero(found.radius > 0).squeeze(1)
    if not bool(found.radius[right].isfinite().any()):
        return found, None
    sizes = found.radius[right]
    radius = ABOVE * float(sizes[sizes.isfinite()].quantile(0.5))
    rows = _some(right, STEPPED)
    part = task.test.take(rows)
    probe = pgd(
        task.net,
        part.x,
        part.y,
        ball=Ball(task.norm, radius, part.box),
        steps=PLAIN,
        step=TRAVEL / PLAIN * radius,
        batch=task.batch,
    )
    shallow = is_shallow(task.net)
    upper = found.radius[rows]
    warning = health_checks.plain_steps_miss(probe, upper, task.norm, radius, shallow=shallow)
    return found.merged(rows, probe), warning


def _some(rows: Tensor, count: int) -> Tensor:
    """At most `count` of the rows, evenly spaced."""
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count, device=rows.device).round().long()]


def _finite(radius: Tensor, x: Tensor, norm: str) -> Tensor:
    """The radii, with the largest finite one or the points' median norm in the place of inf."""
    known = radius[radius.isfinite()]
    top = float(known.max()) if len(known) > 0 else 0.0
    far = max(top, float(Ball(norm, 0.0).norms(x).median())) or 1.0
    return torch.where(radius.isfinite(), radius, far)
