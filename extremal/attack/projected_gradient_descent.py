"""Projected gradient descent: on the margin, at one radius or several, and on a representation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import RowRecord, batches
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    CLEAN_NAME,
    AttackResult,
    BestPerturbations,
    check_attack,
    check_points,
    norms_within,
    verified,
)
from extremal.attack.ball import Ball
from extremal.attack.surrogate import (
    COARSE_TOLERANCE,
    ReducedProblem,
    reduced_problem,
    stopping_margin,
    surrogate_network,
)
from extremal.models import (
    TwoLayerForm,
    float64_copy,
    gap_gradient,
    group_margins,
    is_shallow,
    margin_gradient,
    representations,
)

# From points (n, dim) and what says which class is theirs: margins (n,), and gradients (n, dim).
MarginAndGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# A function that is called with the number of points that are done.
PointsDone = Callable[[int], object]

# The steps of `guided` are together this many radii long.
_GUIDED_TRAVEL_RADII = 3.0


@dataclass(frozen=True, eq=False)
class PgdState(RowRecord):
    """Points that are being attacked, and where they are."""

    x: Tensor
    y: Tensor
    ball: Ball
    delta: Tensor
    length: Tensor  # (n, 1): of a step


def pgd_loop(
    margin_and_gradient: MarginAndGradient, now: PgdState, steps: int
) -> tuple[Tensor, Tensor]:
    """The perturbations (n, dim) of least margin along the descent, and those margins (n,).

    A point leaves once it is clearly broken, stands still, or goes round in a circle: once it is
    back where it was at the last step whose number is a power of two (Brent's test). Rounding does
    that to a descent which has arrived.
    """
    best = BestPerturbations.begin(now.delta.clone(), torch.zeros_like(now.x[:, 0]))
    rows = torch.arange(len(now.x), device=now.x.device)
    broken_below, mark = None, now.delta
    for number in range(steps):
        value, gradient = margin_and_gradient(now.x + now.delta, now.y)
        broken_below = stopping_margin(value) if broken_below is None else broken_below
        best.note_lower(rows, value, now.delta)
        delta = _next_delta(now, gradient)
        moves = (delta != now.delta).any(1) & (delta != mark).any(1)
        keep = (value > broken_below) & moves
        if not bool(keep.any()):
            return best.delta, best.margin
        now = replace(now, delta=delta)
        if not bool(keep.all()):
            now, rows = now.take(keep), rows[keep]
            broken_below, mark = broken_below[keep], mark[keep]
        if number & (number + 1) == 0:
            mark = now.delta
    best.note_lower(rows, margin_and_gradient(now.x + now.delta, now.y)[0], now.delta)
    return best.delta, best.margin


def _next_delta(now: PgdState, gradient: Tensor) -> Tensor:
    """The perturbations after one step against the gradient."""
    downward = -torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
    open_part = now.ball.without_blocked(downward, now.delta, now.x)
    return now.ball.project(now.delta + now.length * now.ball.steepest(open_part), now.x)


@dataclass(frozen=True, eq=False)
class Guided:
    """Where a guide has led points, and how much nearer in its representation, in float64."""

    x_adv: Tensor  # (n, dim), in the ball and the box
    gap: Tensor  # (n,): ||G(x_adv) - G(z)||
    start: Tensor  # (n,): ||G(x) - G(z)||


def guided(guide: nn.Module, x: Tensor, wanted: Tensor, *, ball: Ball, steps: int = 40) -> Guided:
    """Minimise ||G(x + d) - G(z)||_2 over the ball, by PGD, for points x and wanted z.

    Where the z are points of a target class this is a targeted attack that no network's labels take
    part in. With G of a network trained as usual it is our NRF-PGD, with that of an adversarially
    trained one RF-PGD: Li & Li 2025, Table 2, gives the names and no formula. d starts at zero;
    each step goes along the steepest descent of the ball's norm, with lengths that fall evenly to
    zero and add up to three radii. The point of least gap is returned; norm and box are checked in
    float64.

    Arguments:

    - `guide`: G, any module from points (n, dim) to (n, width), such as a `models.Representation`.
    - `x`: points (n, dim) to attack, finite, in the guide's dtype.
    - `wanted`: z (n, dim), the point that each of `x` should look like to G.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `steps`: of the descent, at least 1; more steps are shorter ones; 40 by default.
    """
    _check.instance("ball", ball, Ball, "be a Ball")
    _check.matrix("x", x)
    _check.tensor("wanted", wanted, tuple(x.shape))
    total = _check.integer("steps", steps, minimum=1)
    aim = representations(guide, wanted)
    longest = 2.0 * _GUIDED_TRAVEL_RADII / (total + 1) * ball.radii(x).to(x.dtype).unsqueeze(1)
    delta = best = torch.zeros_like(x)
    least = torch.full_like(aim[:, 0], torch.inf)
    for step in range(total + 1):
        gap, gradient = gap_gradient(guide, x + delta, aim)
        best = torch.where((gap < least).unsqueeze(1), delta, best)
        least = torch.minimum(gap, least)
        move = ball.steepest(ball.without_blocked(-gradient, delta, x))
        delta = ball.project(delta + (1 - step / total) * longest * move, x)
    x_adv = ball.rounded_points(best, x)
    norms_within(x, x_adv, ball, "guided")
    twin = float64_copy(guide)
    seen = [representations(twin, points.double()) for points in (x_adv, x, wanted)]
    gap, start = (torch.linalg.vector_norm(own - seen[2], dim=1) for own in seen[:2])
    return Guided(x_adv, gap, start)


def pgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    steps: int,
    step: float | Tensor,
    start: str = "zero",
    generator: torch.Generator | None = None,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by projected gradient descent on the margin m, in the norm of the ball.

    d <- project(d + step * steepest(-grad m(x + d))), `steps` times. Coordinates that the box
    blocks are left out of the gradient. The iterate of least margin is returned, and verified. A
    point leaves the batch once it is broken, or once it stands still, as where the gradient is
    zero.

    A shallow network is searched without neurons of no effect, and from zero, in l2 without a box,
    in the coordinates of the neurons' span, which all iterates lie in; one of hundreds of neurons
    perhaps as one of few that differs from it by a thousandth. Every result is verified on the
    network itself, and a point that is broken in the search but not there is searched again with
    the network as it is.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `steps`: how many steps are taken at most.
    - `step`: the length of a step in the ball's norm, one number or (n,), one for each point.
    - `start`: "zero" (the default), or "random" for a random point of the ball, which needs
      `generator`.
    - `generator`: a `torch.Generator`, the source of all random draws; may be None from "zero".
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_attack(net, x, y, ball, batch)
    _check.integer("steps", steps, minimum=1)
    _check.choice("start", start, ("zero", "random"))
    if start == "random":
        source = _check.generator("generator", generator)
        parts = batches(len(x), batch)
        begin = torch.cat([ball.take(at).sample(x[at], generator=source) for at in parts])
    else:
        begin = _zeros(x)
    every = PgdState(x, y, ball, begin, _step_lengths(step, x))
    task = _in_span(net, x, y, ball) if start == "zero" else None
    with Bar("pgd", len(x), progress) as bar:
        delta, lowest = _search(net, task, every, steps, batch, bar.done)
    delta = _lifted(task, delta, every)
    return _verified_on_network(net, every, delta, lowest, steps, batch, f"pgd-{start}")


def published_pgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    radius: float | Tensor,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """The attack of Min & Vidal 2024, Figure 2e: l2, no box, 2000 steps of 0.1, start at zero.

    The settings are those of the authors' published code.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `radius`: of the l2 ball, at least 0; one number or one a point (n,).
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    ball = Ball("l2", radius)
    return pgd(net, x, y, ball=ball, steps=2000, step=0.1, batch=batch, progress=progress)


def radii_pgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    radii: Sequence[float],
    steps: int,
    step: float,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """`pgd` in l2 from zero at one radius after the other, each on what the ones before left.

    The result's radius is infinite where a point stands at all of them. Only what the search breaks
    is verified, so that 15 radii cost little more than one. Progress counts points and radii.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `radii`: of the l2 balls, at least 0, in any order; the smallest is tried first.
    - `steps`: of the descent at each radius, at least 1.
    - `step`: the l2 length of a step, at least 0, the same at every radius.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.instance("radii", radii, Iterable, "be a sequence of numbers")
    wanted = sorted({_check.number("radii", radius, minimum=0.0) for radius in radii})
    _check.integer("steps", steps, minimum=1)
    _check.integer("batch", batch, minimum=1)
    still, lengths = Ball("l2", 0.0), _step_lengths(step, x)
    result = verified(net, x, y, x, still, CLEAN_NAME)
    task = _in_span(net, x, y, still)
    total = len(wanted) * len(x)
    with Bar("pgd", total, progress) as bar:
        for turn, radius in enumerate(wanted, 1):
            rows = torch.nonzero(~result.success).squeeze(1)
            if len(rows) == 0:
                break
            ball, before = Ball("l2", radius), turn * len(x) - len(rows)
            every = PgdState(x[rows], y[rows], ball, _zeros(x[rows]), lengths[rows])
            part = None if task is None else replace(task.take(rows), ball=ball)
            tell = functools.partial(_tell_bar, bar, before)
            delta, lowest = _search(net, part, every, steps, batch, tell)
            hit = torch.nonzero(lowest <= 0).squeeze(1)
            if len(hit) > 0:
                every, part = every.take(hit), None if part is None else part.take(hit)
                delta = _lifted(part, delta[hit], every)
                found = _verified_on_network(
                    net, every, delta, lowest[hit], steps, batch, "pgd-zero"
                )
                result = result.merged(rows[hit], found)
        bar.done(total)
    return result


def _tell_bar(bar: Bar, before: int, done: int) -> None:
    """Say that `done` points are done beside those `before` them."""
    bar.done(before + done)


def _search(
    net: nn.Module,
    task: ReducedProblem | None,
    every: PgdState,
    steps: int,
    batch: int,
    tell: PointsDone,
) -> tuple[Tensor, Tensor]:
    """Perturbations (n, dim') of least margin in the search, and those margins (n,).

    In the span's coordinates where there is a `task`, as many numbers at a time as a batch has.
    """
    if task is None:
        margins = functools.partial(margin_gradient, surrogate_network(net, every.x))
        return _descend(margins, every, steps, batch, tell)
    near = PgdState(task.x, task.own, task.ball, torch.zeros_like(task.x), every.length)
    size = batch * max(1, every.x.shape[1] // max(task.form.directions.shape))
    return _descend(_form_margins(task.form), near, steps, size, tell)


def _descend(
    margins: MarginAndGradient, every: PgdState, steps: int, size: int, tell: PointsDone | None
) -> tuple[Tensor, Tensor]:
    """`pgd_loop` for `size` points at a time."""
    parts = []
    for at in batches(len(every.x), size):
        parts.append(pgd_loop(margins, every.take(at), steps))
        if tell is not None:
            tell(at.stop)
    delta, lowest = zip(*parts, strict=True)
    return torch.cat(delta), torch.cat(lowest)


def _lifted(task: ReducedProblem | None, delta: Tensor, every: PgdState) -> Tensor:
    """Perturbations in the data's coordinates, (n, dim), with no norm above the radius."""
    return delta if task is None else every.ball.project(task.lift(delta), every.x)


def _verified_on_network(
    net: nn.Module,
    every: PgdState,
    delta: Tensor,
    lowest: Tensor,
    steps: int,
    batch: int,
    name: str,
) -> AttackResult:
    """What the network itself says of perturbations.

    Where all neurons of the search are silent its margin and gradient are exactly zero. The network
    has a small margin there, and a gradient that leads on: such points are searched again with it.
    """

    def measured(points: PgdState, delta: Tensor) -> AttackResult:
        x_adv = points.ball.rounded_points(delta, points.x)
        return verified(net, points.x, points.y, x_adv, points.ball, name)

    def searched_whole(rows: Tensor) -> AttackResult:
        margins = functools.partial(margin_gradient, float64_copy(net).to(delta.dtype))
        points = every.take(rows)
        return measured(points, _descend(margins, points, steps, batch, None)[0])

    result = measured(every, delta)
    return result.retried(searched_whole, lowest <= 0) if is_shallow(net) else result


def _in_span(net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> ReducedProblem | None:
    """The problem in the coordinates of the neurons' span, or None where that gains nothing."""
    if not is_shallow(net) or ball.norm != "l2" or ball.box is not None:
        return None
    task = reduced_problem(net, x, y, ball, tolerance=COARSE_TOLERANCE)
    return None if task.basis is None else task


def _form_margins(form: TwoLayerForm) -> MarginAndGradient:
    """Margins and their gradients, from points and the mask of their own outputs."""

    def margins(x: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        at = form.preparation.at(x)
        out, slope = form.powers(at)
        mine = out.masked_fill(~own, -torch.inf).argmax(1)
        other = out.masked_fill(own, -torch.inf).argmax(1)
        weight = form.weights[mine] - form.weights[other]
        return group_margins(out, own), form.gradient(at, slope, weight)

    return margins


def _zeros(x: Tensor) -> Tensor:
    """Perturbations of zero for the points x, which take no memory."""
    return x.new_zeros(()).expand_as(x)


def _step_lengths(step: float | Tensor, x: Tensor) -> Tensor:
    """The length (n, 1) of a step of each point."""
    if not isinstance(step, Tensor):
        return torch.full_like(x[:, :1], _check.number("step", step, minimum=0.0))
    rule = f"be a number or a tensor of shape ({len(x)},), finite and >= 0"
    _check.require(tuple(step.shape) == (len(x),), "step", rule, f"shape {tuple(step.shape)}")
    _check.finite("step", step)
    _check.require(bool((step >= 0).all()), "step", rule, f"smallest {float(step.min()):g}")
    return step.to(x).unsqueeze(1)
