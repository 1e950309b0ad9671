"""The smallest radius at which a shallow network breaks, point by point: a whole curve at once."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    BATCH,
    SLACK,
    AttackResult,
    batches,
    check_points,
    verified,
)
from extremal.attack.ball import Ball
from extremal.attack.linear_problems import smallest_move
from extremal.attack.surrogate import ReducedProblem, reduced_problem
from extremal.attack.two_layer.extra_starts import LARGEST, refine, silenced, sweep
from extremal.attack.two_layer.frank_wolfe import (
    LowestMargins,
    attack_in_phases,
    check_shallow,
    directed_starts,
    frank_wolfe,
    target_minus_own,
)
from extremal.attack.two_layer.linearised_boundary import Shortest, linearised_step, note, tightened
from extremal.data import Box
from extremal.models import as_two_layer_form, group_margins

ROUNDS = ((None, 2), (4, 4), (2, 10))  # targets that are kept, and linearised steps for them
SHRINK = (0.9, 0.97, 0.99)  # radii of the polish, as shares of the one found
LAST = 4  # linearised steps at the end
STRETCH = (
    1.00001,
    1.0001,
    1.0003,
    1.001,
    1.003,
    1.01,
    1.03,
)  # of what the network itself does not take as broken
NEARER = 0.97  # of the radius found, at which other ways are looked for
AGAIN, FEW = 0.997, 64  # of the radius, for a second look where neurons are few
AROUND, STEPS = 32, 5  # directions all around where neurons are few, and steps from the lowest
SILENCE, BEYOND = 3, 1.0001  # steps to where own neurons fall silent, and how far past it
DOUBLINGS = 8  # of the radius, where nothing was found
POLISH = 3  # full linear steps at each of them
SMALL = 64  # neurons and coordinates below which more points are taken at a time


def shortest(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """The smallest perturbation found that breaks each point of a `PReLUNet`, or a `Grouped` one.

    d <- argmin of ||d'|| over d' in the box with linearised f_t - f_own >= 0, for all targets t at
    first and then the ones that need least; then from starts toward opposing neurons; then full
    linear steps just under the radius found, as long as they succeed; and last linearised steps on
    the network itself. Deterministic. `batch` is the number of points at a time; not less than
    the default one, it grows where only a few neurons matter. Any other network is a ValueError.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one; it is not changed.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    check_shallow(net)
    _check.integer("batch", batch, minimum=1)
    ball = Ball(norm, 0.0, box)
    with Bar("shortest", len(x), progress) as bar:
        task = reduced_problem(net, x, y, ball, coarse=True)
        best = _searched(task, batch, bar)
    result = _settled(net, x, y, task, best, batch)
    left = torch.nonzero(best.size.isfinite() & ~result.success).squeeze(1)
    if len(left) == 0:
        return result
    part, labels = x[left], y[left]
    task = reduced_problem(net, part, labels, ball, whole=True)
    best = _searched(task, batch, None)
    return result.merged(left, _settled(net, part, labels, task, best, batch))


def _searched(task: ReducedProblem, batch: int, bar: Bar | None) -> Shortest:
    """The smallest perturbations found in the task's coordinates."""
    best = Shortest.nothing(task, task.enough())
    more = max(1, SMALL // task.widest) if batch >= BATCH else 1
    for at in batches(len(task), more * batch):
        rows = torch.arange(at.start, at.stop, device=task.x.device)
        _linearised(task, best, rows)
        _silence(task, best, rows)
        _directed(task, best, rows, NEARER)
        _polish(task, best, rows)
        if len(task.form.directions) <= FEW:
            _silent(task, best, rows)
            _scattered(task, best, rows)
            _directed(task, best, rows, AGAIN)
            _polish(task, best, rows)
        # Two neurons and a round ball leave no corners: what came before finds all there is.
        simple = len(task.form.directions) <= 2 and best.norm == "l2"
        if task.x.shape[1] <= LARGEST and not simple:
            _swept(task, best, rows)
        _farther(task, best, rows, batch)
        if bar is not None:
            bar.done(at.stop)
    return best


def _linearised(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """The smallest steps to the linearised boundaries, with fewer targets from round to round."""
    foreign = ~task.own[rows]
    row, target = foreign.nonzero(as_tuple=True)
    row = rows[row]
    delta = torch.zeros_like(task.x[row])
    memory: Tensor | None = None
    for kept, steps in ROUNDS:
        if kept is not None:
            keep = _nearest_targets(row, Ball(best.norm, 0.0).norms(delta), kept)
            row, target, delta = row[keep], target[keep], delta[keep]
            memory = None if memory is None else memory[keep]
        for _ in range(steps):
            delta, memory = linearised_step(task, best, row, target, delta, memory)
    note(task, best, row, delta)


def _nearest_targets(row: Tensor, size: Tensor, kept: int) -> Tensor:
    """Indices of the `kept` pairs of least size for each row."""
    order = size.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]  # by row, then by size
    counts = row[order].unique_consecutive(return_counts=True)[1]
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    place = torch.arange(len(order), device=order.device) - first
    return order[place < kept]


def _silence(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """Newton's steps to a root of multiplicity p, where the last own neuron falls silent: f ~ s^p.

    There the margin is exactly 0, which counts as broken, and no linearised step arrives.
    """
    x, own = task.x[rows], task.own[rows]
    delta, bounds = torch.zeros_like(x), task.ball.bounds(x)
    for _ in range(SILENCE):
        at = task.form.preparation.at(x + delta)
        out, slope = task.form.powers(at)
        gradient = task.form.gradient(at, slope, target_minus_own(task, out, own, None))
        need = BEYOND * task.form.p * group_margins(out, own) + (gradient * delta).sum(1)
        delta = torch.nan_to_num(smallest_move(gradient, need, best.norm, bounds))
        note(task, best, rows, delta)


def _swept(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """In a few dimensions, all directions, and then the neighbourhood of the best."""
    sweep(task, rows, best.size[rows], best.note)
    _polish(task, best, rows)
    rows = rows[best.size[rows].isfinite() & (best.size[rows] > 0)]
    if len(rows) > 0:
        refine(task, rows, lambda: best.delta[rows], best.note)


def _farther(task: ReducedProblem, best: Shortest, rows: Tensor, batch: int) -> None:
    """Attacks at doubling radii of the points of which nothing was found, as far as they go."""
    known = best.size[best.size.isfinite() & (best.size > 0)]
    sizes = known if len(known) > 0 else task.ball.norms(task.x[rows])
    radius = 0.25 * (float(sizes.median()) or 1.0)
    for _ in range(DOUBLINGS):
        left = rows[best.size[rows].isinf()]
        if len(left) == 0:
            return
        part, inner = _inside(task, best, left, torch.full_like(best.size[left], radius))
        attack_in_phases(part, inner, torch.arange(len(left), device=left.device), batch)
        best.note(left, inner.lowest, inner.delta)
        found = left[inner.lowest <= inner.enough]
        _halve(task, best, found)
        _polish(task, best, found)
        radius *= 2.0


def _directed(task: ReducedProblem, best: Shortest, rows: Tensor, share: float) -> None:
    """Full linear steps from starts toward opposing neurons, at a share of the radius found.

    Where nothing was found yet, at the distance of the centre, where a network without biases is 0.
    """
    size = best.size[rows]
    center = task.form.preparation.center
    far = task.ball.norms(task.x[rows] if center is None else task.x[rows] - center)
    part, inner = _inside(task, best, rows, torch.where(size.isinf(), far, share * size))
    every = torch.arange(len(rows), device=rows.device)
    for start in directed_starts(part):
        alive = inner.standing(every)
        frank_wolfe(part, inner, every[alive], None, 2, start[alive])
    best.note(rows, inner.lowest, inner.delta)
    _halve(task, best, rows[inner.lowest <= inner.enough])


def _silent(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """Where all own neurons are silent, if that is within the box."""
    place, target = (~task.own[rows]).nonzero(as_tuple=True)
    delta = silenced(task, rows[place], target)
    if delta is None:
        return
    bounds = task.ball.bounds(task.x[rows[place]])
    if bounds is not None:
        delta = torch.minimum(torch.maximum(delta, bounds[0]), bounds[1])
    note(task, best, rows[place], delta)


def _scattered(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """A look in directions all around, always the same, just under the radius found.

    Few neurons make few gradients, and a basin that none of them leads into is easily missed. What
    breaks a point is noted, and full linear steps start from the lowest of the others.
    """
    rows = rows[best.size[rows].isfinite() & (best.size[rows] > 0)]
    if len(rows) == 0:
        return
    part, inner = _inside(task, best, rows, NEARER * best.size[rows])
    every = torch.arange(len(rows), device=rows.device)
    generator = torch.Generator().manual_seed(0)
    lowest, start = torch.full_like(part.x[:, 0], torch.inf), torch.zeros_like(part.x)
    for way in torch.randn(AROUND, task.x.shape[1], generator=generator).to(task.x):
        delta = part.ball.linear_maximum(way.expand_as(part.x), part.x)
        value = part.form.margins(part.x + delta, part.own)
        lower = value < lowest
        lowest = torch.where(lower, value, lowest)
        start = torch.where(lower.unsqueeze(1), delta, start)
    frank_wolfe(part, inner, every, None, STEPS, start)
    best.note(rows, lowest, start)
    found = (inner.lowest <= inner.enough) | (lowest <= inner.enough)
    best.note(rows, inner.lowest, inner.delta)
    _halve(task, best, rows[found])


def _halve(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """Bisection along the perturbations found."""
    whole = best.delta[rows].clone()
    low = torch.zeros_like(whole[:, :1])
    high = torch.ones_like(low)
    for _ in range(7):
        if len(rows) == 0:
            return
        middle = 0.5 * (low + high)
        value = task.form.margins(task.x[rows] + middle * whole, task.own[rows])
        best.note(rows, value, middle * whole)
        broken = (value <= best.enough[rows]).unsqueeze(1)
        low, high = torch.where(broken, low, middle), torch.where(broken, middle, high)


def _polish(task: ReducedProblem, best: Shortest, rows: Tensor) -> None:
    """Full linear steps at growing shares of the radius found, from the perturbation found."""
    rows = rows[best.size[rows].isfinite() & (best.size[rows] > 0)]
    if len(rows) == 0:
        return
    for share in SHRINK:
        part, inner = _inside(task, best, rows, share * best.size[rows])
        start = part.ball.project(share * best.delta[rows], part.x)
        frank_wolfe(part, inner, torch.arange(len(rows), device=rows.device), None, POLISH, start)
        best.note(rows, inner.lowest, inner.delta)
    delta = best.delta[rows]
    for _ in range(LAST):
        delta, _ = linearised_step(task, best, rows, None, delta, None)
    note(task, best, rows, delta)


def _inside(
    task: ReducedProblem, best: Shortest, rows: Tensor, radius: Tensor
) -> tuple[ReducedProblem, LowestMargins]:
    """The problem of some points at given radii, and nothing found for it."""
    part = replace(task.take(rows), ball=replace(task.ball, radius=radius))
    never = torch.full_like(part.x[:, 0], torch.inf)
    return part, LowestMargins(torch.zeros_like(part.x), never, best.enough[rows])


def _settled(
    net: nn.Module, x: Tensor, y: Tensor, task: ReducedProblem, best: Shortest, batch: int
) -> AttackResult:
    """The perturbations found, tightened on the fine network, verified, and longer where need be.

    Longer where the network itself does not take them as broken, by as little as is enough.
    """
    form = as_two_layer_form(task.fine, x.dtype)
    assert form is not None
    fine = ReducedProblem(form, x, task.own, task.ball, task.fine)
    delta = torch.zeros_like(x)
    some = torch.nonzero(best.size.isfinite() & (best.size > 0)).squeeze(1)
    for rows in some.split(batch):
        delta[rows] = tightened(task.take(rows), fine.take(rows), best.delta[rows])
    result = _landed(net, x, y, delta, task.ball)
    for stretch in STRETCH:
        left = torch.nonzero(~result.success & best.size.isfinite()).squeeze(1)
        if len(left) == 0:
            break
        longer = _landed(net, x[left], y[left], stretch * delta[left], task.ball)
        result = result.merged(left, longer)
    return result


def _landed(net: nn.Module, x: Tensor, y: Tensor, delta: Tensor, like: Ball) -> AttackResult:
    """x + delta, cut by the box, as the re-check sees it."""
    ball = replace(like, radius=like.norms(delta) * (1.0 + SLACK))
    return verified(net, x, y, ball.land(delta, x), ball, "shortest")
