"""The point of a cone nearest to a vector: non-negative least squares, told by inner products."""

from __future__ import annotations

import torch
from torch import Tensor

_COSINE = 1e-7  # gradients at a smaller cosine with the residual count as perpendicular to it


def nearest_in_cone(gram: Tensor, inner: Tensor) -> Tensor:
    """The c >= 0 (m,) that minimises ||t - sum_a c_a u_a|| for unit vectors u_a and a unit t.

    `gram` (m, m) holds <u_a, u_b> and `inner` (m,) holds <u_a, t>, in float64: the vectors
    themselves may be too long to keep. The active-set method of Lawson & Hanson (1974, Chapter 23)
    on the normal equations. It stops where no u_a has <u_a, residual> > 1e-7, or where the best of
    those depends on the chosen ones to rounding: the squared distance is then within
    2e-7 sum_a c*_a of the least one, by convexity, with c* the minimiser.
    """
    c = torch.zeros_like(inner)
    chosen = torch.zeros_like(inner, dtype=torch.bool)
    barred = chosen.clone()
    for _ in range(10 * len(inner)):
        slack = torch.where(chosen | barred, -torch.inf, inner - gram @ c)
        if not len(slack) or float(slack.max()) <= _COSINE:
            break
        new = int(slack.argmax())
        chosen[new] = True
        if not _descend(c, chosen, gram, inner, new):
            chosen[new], barred[new] = False, True
            continue
        barred.zero_()
    return c


def _descend(c: Tensor, chosen: Tensor, gram: Tensor, inner: Tensor, new: int) -> bool:
    """Move c to the least-squares point of the chosen vectors, dropping those that would turn < 0.

    False, with nothing changed, where the new vector depends on the others to rounding or where
    rounding gives it no positive weight.
    """
    while True:
        index = chosen.nonzero().squeeze(1)
        factor, failed = torch.linalg.cholesky_ex(gram[index][:, index])
        if int(failed) and c[new] == 0.0:
            return False
        wanted = torch.cholesky_solve(inner[index].unsqueeze(1), factor).squeeze(1)
        if c[new] == 0.0 and not float(wanted[index == new]) > 0.0:
            return False
        bad = wanted <= 0.0
        if not bool(bad.any()):
            c.zero_()
            c[index] = wanted
            return True
        now = c[index]
        share = float((now[bad] / (now[bad] - wanted[bad])).min())
        moved = now + share * (wanted - now)
        moved[bad & (moved <= 1e-14 * moved.max())] = 0.0
        c[index] = moved
        chosen &= c > 0.0
