"""A search in all directions, for problems of so few dimensions that it can be had."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from extremal.attack.problem import Problem

LARGEST = 4  # dimensions
DIRECTIONS = (2, 64, 128, 256)  # rays from each point, by dimension
AT_ONCE = 16  # of them in memory, and neighbours of the best at each distance
SHARES = 24  # of the ray's length that are tried
FARTHER = 8.0  # rays are this many times as long as the centre is far, where nothing is known
NEAR = (0.3, 0.2, 0.1, 0.06, 0.03, 0.02, 0.01, 0.006, 0.003, 0.002, 0.001)  # of the size
PASSES = 6
SHORTER = (0.0, 0.02, 0.1, 0.3)  # of that: by how much they are shorter

Note = Callable[[Tensor, Tensor, Tensor], None]  # of rows, margins and perturbations


def sweep(task: Problem, rows: Tensor, size: Tensor, note: Note) -> None:
    """Try rays in many directions from the points at `rows`, as far as `size` (n,); far if inf."""
    center = task.form.preparation.center
    far = task.ball.norms(task.x[rows] if center is None else task.x[rows] - center)
    length = torch.where(size.isinf(), FARTHER * far, size).to(task.x.dtype)
    for rays in _directions(task).split(AT_ONCE):
        for share in torch.linspace(0.0, 1.0, SHARES + 1)[1:].tolist():
            step = share * length[:, None, None] * rays  # (n, k, dim)
            _try(task, rows, step, note)


def refine(task: Problem, rows: Tensor, best: Callable[[], Tensor], note: Note) -> None:
    """Try neighbours of the best perturbations of the points at `rows`, ever nearer ones.

    At each distance some of them as long as the best, and some shorter.
    """
    some = _directions(task).split(AT_ONCE)
    passes = PASSES if len(task.form.directions) > 2 else 1  # two neurons leave no corners
    for turn, near in enumerate(NEAR * passes):
        rays, delta = some[turn % len(some)], best()
        size = task.ball.norms(delta).to(delta.dtype)[:, None, None]
        moved = delta.unsqueeze(1) + near * size * rays
        length = task.ball.norms(moved.flatten(0, 1)).view(moved.shape[:2]).unsqueeze(2)
        moved = moved * (size / length.clamp(min=1e-300)).to(moved.dtype)
        for shorter in SHORTER:
            _try(task, rows, (1.0 - near * shorter) * moved, note)


def _try(task: Problem, rows: Tensor, step: Tensor, note: Note) -> None:
    """Note the margins of perturbations (n, k, dim), cut by the box."""
    count = step.shape[1]
    row = rows.repeat_interleave(count)
    x, delta = task.x[row], step.flatten(0, 1)
    bounds = task.ball.bounds(x)
    if bounds is not None:
        delta = torch.clamp(delta, *bounds)
    note(row, task.form.margins(x + delta, task.own[row]), delta)


def _directions(task: Problem) -> Tensor:
    """Directions of norm 1 in the ball's norm, (k, dim), always the same."""
    dim = task.x.shape[1]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(DIRECTIONS[dim - 1], dim, generator=generator, dtype=torch.float64)
    axes = torch.eye(dim, dtype=torch.float64)
    every = torch.cat([axes, -axes, drawn])
    unit = every / task.ball.norms(every).unsqueeze(1)
    return unit.to(task.x)
