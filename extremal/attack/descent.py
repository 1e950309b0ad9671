"""The loop of projected gradient descent, for whatever margin it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.attack.ball import Ball
from extremal.attack.surrogate import clearly_broken

# From points (n, dim) and what says which class is theirs: margins (n,), and gradients (n, dim).
Look = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Active:
    """Points that are being attacked, and where they are."""

    x: Tensor
    y: Tensor
    ball: Ball
    delta: Tensor
    length: Tensor  # (n, 1): of a step

    def take(self, rows: Tensor | slice) -> Active:
        """The chosen points."""
        ball = self.ball.take(rows)
        return Active(self.x[rows], self.y[rows], ball, self.delta[rows], self.length[rows])

    def moved(self, delta: Tensor, keep: Tensor) -> Active:
        """The points to keep, at their new perturbations."""
        there = replace(self, delta=delta)
        return there if bool(keep.all()) else there.take(keep)


def descend(look: Look, now: Active, steps: int) -> tuple[Tensor, Tensor]:
    """The perturbations (n, dim) of least margin along the descent, and those margins (n,).

    A point leaves once it is clearly broken, stands still, or goes round in a circle: once it is
    back where it was at the last step whose number is a power of two (Brent's test). Rounding does
    that to a descent which has arrived.
    """
    best = now.delta.clone()
    lowest = torch.full_like(now.x[:, 0], torch.inf)
    rows = torch.arange(len(best), device=best.device)
    enough, mark = None, now.delta
    for number in range(steps):
        value, gradient = look(now.x + now.delta, now.y)
        enough = clearly_broken(value) if enough is None else enough
        _note(best, lowest, rows, value, now.delta)
        delta = _step(now, gradient)
        moves = (delta != now.delta).any(1) & (delta != mark).any(1)
        keep = (value > enough) & moves
        if not bool(keep.any()):
            return best, lowest
        now, rows, enough, mark = now.moved(delta, keep), rows[keep], enough[keep], mark[keep]
        if number & (number + 1) == 0:
            mark = now.delta
    _note(best, lowest, rows, look(now.x + now.delta, now.y)[0], now.delta)
    return best, lowest


def _step(now: Active, gradient: Tensor) -> Tensor:
    downward = -torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
    open_part = now.ball.unblocked(downward, now.delta, now.x)
    return now.ball.project(now.delta + now.length * now.ball.steepest(open_part), now.x)


def _note(best: Tensor, lowest: Tensor, rows: Tensor, value: Tensor, delta: Tensor) -> None:
    """Keep the perturbations whose margin is less than any before, in place."""
    better = value < lowest[rows]
    lowest[rows[better]] = value[better]
    best[rows[better]] = delta[better]
