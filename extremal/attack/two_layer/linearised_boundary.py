"""Smallest steps to linearised boundaries, and the smallest broken perturbations that they meet."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.attack.ball import Ball
from extremal.attack.linear_problems import smallest_move
from extremal.attack.surrogate import ReducedProblem
from extremal.attack.two_layer.frank_wolfe import target_minus_own
from extremal.models import group_margins

MOMENTUM = 0.5  # of the gradient: without it p = 1 goes to and fro between two linear pieces
JUST = 1e-7  # of the margin at the point: how far below zero is enough in the end,
ROUNDINGS = 32  # or so many units of rounding of it
TIGHTER = 2  # steps on the network itself in the end


@dataclass(frozen=True, eq=False)
class Shortest:
    """The smallest perturbation that breaks each point so far, updated in place."""

    delta: Tensor  # (n, dim')
    size: Tensor  # (n,) float64: its norm, inf where there is none
    enough: Tensor  # (n,)
    norm: str

    @classmethod
    def nothing(cls, task: ReducedProblem, enough: Tensor) -> Shortest:
        """No perturbation of any point of the task."""
        size = torch.full((len(task),), torch.inf, dtype=torch.float64, device=task.x.device)
        return cls(torch.zeros_like(task.x), size, enough, task.ball.norm)

    def note(self, rows: Tensor, value: Tensor, delta: Tensor) -> None:
        """Keep what breaks a point by less than before; a row may occur several times."""
        size = Ball(self.norm, 0.0).norms(delta)
        size = torch.where((value <= self.enough[rows]) | (value == 0), size, torch.inf)
        before = self.size[rows]
        self.size.scatter_reduce_(0, rows, size, "amin")
        won = (size == self.size[rows]) & (size < before)
        self.delta[rows[won]] = delta[won]


def linearised_step(
    task: ReducedProblem,
    best: Shortest,
    row: Tensor,
    target: Tensor | None,
    delta: Tensor,
    memory: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One linearised step of (point, target) pairs; what was met on the way is noted."""
    x, own = task.x[row], task.own[row]
    at = task.form.preparation.at(x + delta)
    out, slope = task.form.powers(at)
    best.note(row, group_margins(out, own), delta)
    gradient = task.form.gradient(at, slope, target_minus_own(task, out, own, target))
    if memory is not None:
        gradient = MOMENTUM * memory + (1.0 - MOMENTUM) * gradient
    need = _short(out, own, target) - 2.0 * best.enough[row] + (gradient * delta).sum(1)
    bounds = task.ball.bounds(x)
    return torch.nan_to_num(smallest_move(gradient, need, best.norm, bounds)), gradient


def note(task: ReducedProblem, best: Shortest, rows: Tensor, delta: Tensor) -> None:
    """Note perturbations of the points at `rows`."""
    best.note(rows, task.form.margins(task.x[rows] + delta, task.own[rows]), delta)


def tightened(searched: ReducedProblem, fine: ReducedProblem, delta: Tensor) -> Tensor:
    """Perturbations (n, dim') that break points of a searched task, as small as the fine one lets.

    A search that may change the network by a thousandth, and stops where a point is clearly broken,
    leaves perturbations too long by about as much, or too short. A linearised step with the fine
    network's value and the searched one's gradient is exact to the square of that; a second one is
    made where the first falls short. Where neither breaks a point, `delta` stays. The result
    (n, dim) has the coordinates of the data: the fine network is large, and each pass costs.
    """
    form, x, own = searched.form, searched.x, searched.own
    share = max(JUST, ROUNDINGS * torch.finfo(delta.dtype).eps)
    best = Shortest.nothing(fine, -share * form.margins(x, own).abs())
    at = form.preparation.at(x + delta)
    out, slope = form.powers(at)
    gradient = form.gradient(at, slope, target_minus_own(searched, out, own, None))
    gradient, delta = searched.lift(gradient), searched.lift(delta)
    rows, moved = torch.arange(len(x), device=x.device), delta
    value = fine.form.margins(fine.x + moved, fine.own)
    best.note(rows, value, moved)
    for _ in range(TIGHTER):
        part, slopes = fine.take(rows), gradient[rows]
        need = value - 2.0 * best.enough[rows] + (slopes * moved).sum(1)
        moved = torch.nan_to_num(smallest_move(slopes, need, best.norm, part.ball.bounds(part.x)))
        value = part.form.margins(part.x + moved, part.own)
        best.note(rows, value, moved)
        left = torch.nonzero(best.size[rows] > fine.ball.norms(moved)).squeeze(1)
        if len(left) == 0:
            break
        rows, moved, value = rows[left], moved[left], value[left]
    return torch.where(best.size.isfinite().unsqueeze(1), best.delta, delta)


def _short(out: Tensor, own: Tensor, target: Tensor | None) -> Tensor:
    """f_own - f_t, (n,): what a target lacks, or the best foreign output."""
    if target is None:
        return group_margins(out, own)
    return out.masked_fill(~own, -torch.inf).amax(1) - out.gather(1, target.unsqueeze(1)).squeeze(1)
