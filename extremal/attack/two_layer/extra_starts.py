"""Starts that no gradient finds: silent neurons, and directions all around.

Where all neurons that speak for a point are silent the margin is at most zero, which counts as
broken, but gradients do not lead there: they vanish on the way, and where several neurons must fall
silent each pulls its own way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.attack_result import BestPerturbations
from extremal.attack.linear_problems import smallest_move
from extremal.attack.surrogate import ReducedProblem
from extremal.attack.two_layer.frank_wolfe import frank_wolfe, target_minus_own
from extremal.attack.two_layer.linearised_boundary import at_radii, bisect, note_smallest
from extremal.models import group_margins

# Newton makes so many steps to where the own neurons fall silent.
NEWTON_STEPS = 3
# Steps to silence go so far beyond it that rounding leaves no neuron active.
SILENCE_OVERSHOOT = 1.0001
# Hildreth's method goes over all neurons so often at most; most points need few sweeps.
MOST_HILDRETH_SWEEPS = 200
# Hildreth's method ends with a sweep that changes no multiplier by more than this share of the
# largest.
SETTLED_MULTIPLIER_SHARE = 1e-5
# So many directions all around are looked in where neurons are few.
SCATTERED_STARTS = 32
# So many full linear steps are made from the scattered start of least margin.
SCATTERED_STEPS = 5


def newton_to_silence(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Newton's steps to a root of multiplicity p, where the last own neuron falls silent: f ~ s^p.

    There the margin is exactly 0, which counts as broken, and no linearised step arrives.
    """
    x, own = task.x[rows], task.own[rows]
    delta, bounds = torch.zeros_like(x), task.ball.bounds(x)
    for _ in range(NEWTON_STEPS):
        at = task.form.preparation.at(x + delta)
        out, slope = task.form.powers(at)
        gradient = task.form.gradient(at, slope, target_minus_own(task, out, own, None))
        height = SILENCE_OVERSHOOT * task.form.p * group_margins(out, own)
        need = height + (gradient * delta).sum(1)
        delta = torch.nan_to_num(smallest_move(gradient, need, task.ball.norm, bounds))
        note_smallest(task, best, rows, delta)


def projected_to_silence(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Note where all own neurons are silent, if that is within the box."""
    place, target = (~task.own[rows]).nonzero(as_tuple=True)
    delta = silenced(task, rows[place], target)
    if delta is None:
        return
    bounds = task.ball.bounds(task.x[rows[place]])
    if bounds is not None:
        delta = torch.minimum(torch.maximum(delta, bounds[0]), bounds[1])
    note_smallest(task, best, rows[place], delta)


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
    for _ in range(MOST_HILDRETH_SWEEPS):
        before = weight.clone()
        for j in torch.nonzero(square > 0).squeeze(1).tolist():
            new = (weight[:, j] + s[:, j] / square[j]).clamp(min=0.0)
            step = torch.where(speaks[:, j], new - weight[:, j], 0.0)
            weight[:, j] += step
            s -= step.unsqueeze(1) * gram[j]
        if float((weight - before).abs().max()) <= SETTLED_MULTIPLIER_SHARE * float(weight.max()):
            break
    return -SILENCE_OVERSHOOT * (weight @ walls)


def scatter(task: ReducedProblem, best: BestPerturbations, rows: Tensor, share: float) -> None:
    """Look in directions all around, always the same, at a share of the radius found.

    Few neurons make few gradients, and a basin that none of them leads into is easily missed. What
    breaks a point is noted, and full linear steps start from the lowest of the others.
    """
    rows = rows[best.size[rows].isfinite() & (best.size[rows] > 0)]
    if len(rows) == 0:
        return
    part, inner, every = at_radii(task, best, rows, share * best.size[rows])
    generator = torch.Generator().manual_seed(0)
    lowest, start = torch.full_like(part.x[:, 0], torch.inf), torch.zeros_like(part.x)
    for way in torch.randn(SCATTERED_STARTS, task.x.shape[1], generator=generator).to(task.x):
        delta = part.ball.linear_maximum(way.expand_as(part.x), part.x)
        value = part.form.margins(part.x + delta, part.own)
        lower = value < lowest
        lowest = torch.where(lower, value, lowest)
        start = torch.where(lower.unsqueeze(1), delta, start)
    frank_wolfe(part, inner, every, None, SCATTERED_STEPS, start)
    note_smallest(task, best, rows, start, lowest)
    found = (inner.margin <= inner.broken_below) | (lowest <= inner.broken_below)
    note_smallest(task, best, rows, inner.delta, inner.margin)
    bisect(task, best, rows[found])


def center_distance(task: ReducedProblem, rows: Tensor) -> Tensor:
    """The distance (n,) of points from the centre, where a network without biases is 0."""
    center = task.form.preparation.center
    return task.ball.norms(task.x[rows] if center is None else task.x[rows] - center)
