"""Ascents of a gap on the sphere or in the ball, many at once."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.measure.classifier_distance.network_difference import Gap, onto

_STRIDE = 12  # steps between two looks at who still climbs
_FEW = 24  # ascents that go on after the first look
_CYCLES = 3  # of coordinate descent in a step, which is taken only where it is good


def ascend(gap: Gap, start: Tensor, steps: int, *, ball: bool, still: float = 1e-6) -> Tensor:
    """Points (n', r) that ascents from `start` (n, r) reach; the lowest are given up on the way.

    A step goes to x + t (slope - sum_i l_i ridge_i) and back to the sphere or ball, where l in
    [0, 1]^k makes the bracket with x / t shortest: the exact maximiser of the linearised gap less
    its ridges and ||y - x||^2 / (2 t). It is taken where the gap rises; t doubles or shrinks.
    The end is a relative rise of at most `still` in a stretch of steps.
    """
    x = start
    value, slope = gap.value_and_slope(x)
    tau = 0.3 / torch.linalg.vector_norm(slope, dim=1, keepdim=True).clamp(min=1e-300)
    last = value
    for step in range(1, steps + 1):
        trial = onto(tau * shortest(x / tau + slope, gap.ridges, _CYCLES), ball=ball)
        new, new_slope = gap.value_and_slope(trial)
        better = new > value
        rows = better[:, None]
        x, slope = torch.where(rows, trial, x), torch.where(rows, new_slope, slope)
        value = torch.where(better, new, value)
        tau = torch.where(rows, tau * 2.0, tau * 0.3)
        if step % _STRIDE == 0:
            rise = value - last
            top = value.topk(min(_FEW, len(value))).indices
            if bool((rise[top] <= still * value[top].abs()).all()):
                return x[top]
            x, value, slope, tau = x[top], value[top], slope[top], tau[top]
            last = value
    return x


def shortest(z: Tensor, vectors: Tensor, cycles: int) -> Tensor:
    """z - sum_i l_i vectors_i with l in [0, 1]^k that makes it short, by coordinate descent."""
    if len(vectors) == 0:
        return z
    gram = vectors @ vectors.T
    squares = gram.diagonal().tolist()
    rest = z @ vectors.T  # (n, k): <z - sum_i l_i vectors_i, vectors_k>
    pulls = torch.zeros_like(rest)
    for _ in range(1 if len(vectors) == 1 else cycles):
        before = pulls.clone()
        for i, square in enumerate(squares):
            new = (pulls[:, i] + rest[:, i] / square).clamp_(0.0, 1.0)
            rest.addr_(new - pulls[:, i], gram[i], alpha=-1.0)
            pulls[:, i] = new
        if torch.allclose(pulls, before, rtol=0.0, atol=1e-9):
            break
    return z - pulls @ vectors
