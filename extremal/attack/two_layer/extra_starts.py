"""The nearest place where all neurons that speak for a point are silent.

There the margin is at most zero, which counts as broken, but gradients do not lead to it: they
vanish on the way, and where several neurons must fall silent each pulls its own way.

A search in all directions, for problems of so few dimensions that it can be had.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from extremal.attack.surrogate import ReducedProblem

LARGEST = 4  # dimensions
DIRECTIONS = (2, 64, 128, 256)  # rays from each point, by dimension
AT_ONCE = 16  # of them in memory, and neighbours of the best at each distance
SHARES = 24  # of the ray's length that are tried
FARTHER = 8.0  # rays are this many times as long as the centre is far, where nothing is known
NEAR = (0.3, 0.2, 0.1, 0.06, 0.03, 0.02, 0.01, 0.006, 0.003, 0.002, 0.001)  # of the size
PASSES = 6
SHORTER = (0.0, 0.02, 0.1, 0.3)  # of that: by how much they are shorter

Note = Callable[[Tensor, Tensor, Tensor], None]  # of rows, margins and perturbations


def sweep(task: ReducedProblem, rows: Tensor, size: Tensor, note: Note) -> None:
    """Try rays in many directions from the points at `rows`, as far as `size` (n,); far if inf."""
    center = task.form.preparation.center
    far = task.ball.norms(task.x[rows] if center is None else task.x[rows] - center)
    length = torch.where(size.isinf(), FARTHER * far, size).to(task.x.dtype)
    for rays in _directions(task).split(AT_ONCE):
        for share in torch.linspace(0.0, 1.0, SHARES + 1)[1:].tolist():
            step = share * length[:, None, None] * rays  # (n, k, dim)
            _try(task, rows, step, note)


def refine(task: ReducedProblem, rows: Tensor, best: Callable[[], Tensor], note: Note) -> None:
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


def _try(task: ReducedProblem, rows: Tensor, step: Tensor, note: Note) -> None:
    """Note the margins of perturbations (n, k, dim), cut by the box."""
    count = step.shape[1]
    row = rows.repeat_interleave(count)
    x, delta = task.x[row], step.flatten(0, 1)
    bounds = task.ball.bounds(x)
    if bounds is not None:
        delta = torch.clamp(delta, *bounds)
    note(row, task.form.margins(x + delta, task.own[row]), delta)


def _directions(task: ReducedProblem) -> Tensor:
    """Directions of norm 1 in the ball's norm, (k, dim), always the same."""
    dim = task.x.shape[1]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(DIRECTIONS[dim - 1], dim, generator=generator, dtype=torch.float64)
    axes = torch.eye(dim, dtype=torch.float64)
    every = torch.cat([axes, -axes, drawn])
    unit = every / task.ball.norms(every).unsqueeze(1)
    return unit.to(task.x)


SWEEPS = 200  # over all neurons; most points need few
ENOUGH = 1e-5  # of the largest multiplier: a sweep that changes less is the last
BEYOND = 1.0001  # how far past it, so that rounding leaves no neuron active


def silenced(task: ReducedProblem, rows: Tensor, target: Tensor) -> Tensor | None:
    """Perturbations (m, dim) of the points at `rows` that silence all neurons with a_j > 0.

    a = W_own - W_target for targets (m,), so that M = sum_j a_j relu(s_j)^p <= 0. The l2 projection
    onto the intersection of half-spaces s_j <= 0, by Hildreth's sweeps: each neuron's multiplier in
    turn is set to what its own constraint asks for, and never below zero. None where output biases
    or offsets of normalised inputs leave no such half-spaces.
    """
    form = task.form
    normalised = form.preparation.normalize > 0.0
    if bool((form.constant != 0).any()) or (normalised and form.offsets is not None):
        return None
    own = task.own[rows].to(form.weights.dtype).argmax(1)
    speaks = form.weights[own] - form.weights[target] > 0
    walls = form.directions * form.preparation.scale
    square = (walls * walls).sum(1)
    s = form.preparation.scaled_offset(task.x[rows]) @ form.directions.T
    s = s if form.offsets is None else s + form.offsets
    gram = walls @ walls.T
    weight = torch.zeros_like(s)
    for _ in range(SWEEPS):
        before = weight.clone()
        for j in torch.nonzero(square > 0).squeeze(1).tolist():
            new = (weight[:, j] + s[:, j] / square[j]).clamp(min=0.0)
            step = torch.where(speaks[:, j], new - weight[:, j], 0.0)
            weight[:, j] += step
            s -= step.unsqueeze(1) * gram[j]
        if float((weight - before).abs().max()) <= ENOUGH * float(weight.max()):
            break
    return -BEYOND * (weight @ walls)
