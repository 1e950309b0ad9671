"""The nearest place where all neurons that speak for a point are silent.

There the margin is at most zero, which counts as broken, but gradients do not lead to it: they
vanish on the way, and where several neurons must fall silent each pulls its own way.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.problem import Problem

SWEEPS = 200  # over all neurons; most points need few
ENOUGH = 1e-5  # of the largest multiplier: a sweep that changes less is the last
BEYOND = 1.0001  # how far past it, so that rounding leaves no neuron active


def silenced(task: Problem, rows: Tensor, target: Tensor) -> Tensor | None:
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
    s = form.preparation.residue(task.x[rows]) @ form.directions.T
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
