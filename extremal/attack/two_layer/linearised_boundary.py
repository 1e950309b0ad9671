"""Smallest steps to linearised boundaries, and how the smallest broken perturbations are kept."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from extremal.attack.attack_result import BestPerturbations
from extremal.attack.linear_problems import smallest_move
from extremal.attack.surrogate import ReducedProblem
from extremal.attack.two_layer.frank_wolfe import target_minus_own
from extremal.models import group_margins, relu_power

# The weight of earlier gradients: without it p = 1 goes to and fro between two linear pieces.
GRADIENT_MOMENTUM = 0.5
# In the end a margin counts as broken once it is below zero by this share of the one at the point.
BROKEN_MARGIN_SHARE = 1e-7
# The share by which a broken margin is below zero is at least so many units of rounding.
LEAST_BROKEN_MARGIN_ROUNDINGS = 32
# So many steps are made on the network itself in the end.
TIGHTENING_STEPS = 2
# Bisection along a perturbation halves it so often.
BISECTION_STEPS = 7


def no_perturbations(task: ReducedProblem, broken_below: Tensor) -> BestPerturbations:
    """Nothing found yet for any point of the task."""
    return BestPerturbations.begin(torch.zeros_like(task.x), broken_below)


def note_smallest(
    task: ReducedProblem,
    best: BestPerturbations,
    rows: Tensor,
    delta: Tensor,
    margin: Tensor | None = None,
) -> Tensor:
    """Keep perturbations of the points at `rows` that are the smallest to break them.

    A margin of 0 counts as broken where the neurons that tell the two outputs apart are silent,
    and not where rounding makes it. The margins, which are computed unless they are given, are
    returned.
    """
    if margin is None:
        margin = task.form.margins(task.x[rows] + delta, task.own[rows])
    broken, equal = margin, torch.nonzero(margin == 0).squeeze(1)
    if len(equal) > 0:
        silent = equal[_undecided(task, rows[equal], delta[equal])]
        broken = margin.index_fill(0, silent, -torch.inf)
    best.note_smaller(rows, broken, delta, task.ball.norms(delta))
    return margin


def _undecided(task: ReducedProblem, rows: Tensor, delta: Tensor) -> Tensor:
    """Whether all neurons with different votes for the best own and foreign output are silent."""
    form, own = task.form, task.own[rows]
    s = form.active(form.preparation.at(task.x[rows] + delta))
    out = form.read(relu_power(s, form.p))
    best = out.masked_fill(~own, -torch.inf).argmax(1)
    rival = out.masked_fill(own, -torch.inf).argmax(1)
    telling = form.weights[best] != form.weights[rival]
    speaks = (telling & (s > 0)).any(1)
    return ~speaks & (form.constant[best] == form.constant[rival])


def at_radii(
    task: ReducedProblem, best: BestPerturbations, rows: Tensor, radius: Tensor
) -> tuple[ReducedProblem, BestPerturbations, Tensor]:
    """The problem of the points at `rows` at given radii, nothing found for it, and its rows."""
    part = replace(task.take(rows), ball=replace(task.ball, radius=radius))
    places = torch.arange(len(rows), device=rows.device)
    return part, no_perturbations(part, best.broken_below[rows]), places


def bisect(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Bisection along the perturbations found for the points at `rows`."""
    whole = best.delta[rows].clone()
    low = torch.zeros_like(whole[:, :1])
    high = torch.ones_like(low)
    for _ in range(BISECTION_STEPS):
        if len(rows) == 0:
            return
        middle = 0.5 * (low + high)
        value = note_smallest(task, best, rows, middle * whole)
        broken = (value <= best.broken_below[rows]).unsqueeze(1)
        low, high = torch.where(broken, low, middle), torch.where(broken, middle, high)


def linearised_step(
    task: ReducedProblem,
    best: BestPerturbations,
    row: Tensor,
    target: Tensor | None,
    delta: Tensor,
    memory: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One linearised step of (point, target) pairs; what was met on the way is noted."""
    x, own = task.x[row], task.own[row]
    at = task.form.preparation.at(x + delta)
    out, slope = task.form.powers(at)
    note_smallest(task, best, row, delta, group_margins(out, own))
    gradient = task.form.gradient(at, slope, target_minus_own(task, out, own, target))
    if memory is not None:
        gradient = GRADIENT_MOMENTUM * memory + (1.0 - GRADIENT_MOMENTUM) * gradient
    need = _missing(out, own, target) - 2.0 * best.broken_below[row] + (gradient * delta).sum(1)
    bounds = task.ball.bounds(x)
    return torch.nan_to_num(smallest_move(gradient, need, task.ball.norm, bounds)), gradient


def tightened(searched: ReducedProblem, fine: ReducedProblem, delta: Tensor) -> Tensor:
    """Perturbations (n, dim') that break points of a searched task, as small as the fine one lets.

    A search that may change the network by a thousandth, and stops where a point is clearly broken,
    leaves perturbations too long by about as much, or too short. A linearised step with the fine
    network's value and the searched one's gradient is exact to the square of that; a second one is
    made where the first falls short. Where neither breaks a point, `delta` stays. The result
    (n, dim) has the coordinates of the data: the fine network is large, and each pass costs.
    """
    form, x, own = searched.form, searched.x, searched.own
    share = max(BROKEN_MARGIN_SHARE, LEAST_BROKEN_MARGIN_ROUNDINGS * torch.finfo(delta.dtype).eps)
    best = no_perturbations(fine, -share * form.margins(x, own).abs())
    at = form.preparation.at(x + delta)
    out, slope = form.powers(at)
    gradient = form.gradient(at, slope, target_minus_own(searched, out, own, None))
    gradient, delta = searched.lift(gradient), searched.lift(delta)
    rows, moved = torch.arange(len(x), device=x.device), delta
    value = note_smallest(fine, best, rows, moved)
    for _ in range(TIGHTENING_STEPS):
        slopes, bounds = gradient[rows], fine.ball.bounds(fine.x[rows])
        need = value - 2.0 * best.broken_below[rows] + (slopes * moved).sum(1)
        moved = torch.nan_to_num(smallest_move(slopes, need, fine.ball.norm, bounds))
        value = note_smallest(fine, best, rows, moved)
        left = torch.nonzero(best.size[rows] > fine.ball.norms(moved)).squeeze(1)
        if len(left) == 0:
            break
        rows, moved, value = rows[left], moved[left], value[left]
    return torch.where(best.size.isfinite().unsqueeze(1), best.delta, delta)


def _missing(out: Tensor, own: Tensor, target: Tensor | None) -> Tensor:
    """f_own - f_t, (n,): what a target lacks, or the best foreign output."""
    if target is None:
        return group_margins(out, own)
    return out.masked_fill(~own, -torch.inf).amax(1) - out.gather(1, target.unsqueeze(1)).squeeze(1)
