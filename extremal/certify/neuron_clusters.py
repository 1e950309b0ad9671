"""Closed-form radii for networks without biases whose neurons sit in clusters.

For a pair the margin's sign is that of A - B, A = (sum_own a_j relu(<z, u_j>)^p)^(1/p) over the
neurons with a_j > 0 and B the same with |a_j| over those with a_j < 0: both are convex and
1-homogeneous. So A(z + d) >= A + <v, d> with v its gradient, and B(z + d) <= B + B(d). Split
sum |a_j| u_j u_j' of the others into its top eigenvectors T and the rest R; then
B(d) <= l |d_T| + l_R |d_R| and

    rho = (A - B) / sqrt((|v_T| + l)^2 + (|v_R| + l_R)^2).

For p >= 2, |t|^p <= t^2 max|t|^(p-2) gives l = lambda_1^(1/p) and, with eta_j = |P_R u_j|, l_R =
min((sum |a_j| eta_j^p)^(1/p), (max eta^(p-2) lambda_(k+1))^(1/p)). For p < 2, power means give
l = c^(1/p - 1/2) lambda_1^(1/2) with c = sum |a_j|, and l_R alike.

Where all neurons against are silent at z, <z, u_j> <= -m, then B = 0 and more is to be had. With
eta the largest eta_j, <d, u_j> is at most E = |d_T| + eta |d_R|, so that relu(<d, u_j> - m) is at
most (1 - m/E) relu(<d, u_j>), and B(z + d) at most (1 - m/E) (l |d_T| + l_R |d_R|), which is below
l |d_T| + l_R |d_R| - m min(l, l_R/eta); or zero. So m min(l, l_R/eta) is added to A - B above, and
rho is at most A / |v|.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import PointProducts
from extremal.models import TwoLayerForm, relu_power, relu_power_with_slope

SPLITS = (0, 1, 2, 4, 8, 16)  # sizes of T that are tried, besides the number of large eigenvalues
LARGE = 1e-3  # of the largest
ROUNDING = 1e-12  # of squares, where they are differences or eigenvalues
SAFE = 1e-7  # of the radius
TERMS = 1e-9  # of A + B, by which A - B is taken smaller


class NeuronClusters:
    """A network's pairs of outputs, each prepared when a point first needs it."""

    def __init__(self, form: TwoLayerForm, gram: Tensor) -> None:
        self._form, self._gram = form, gram
        self._sides: dict[tuple[int, int], _Sides] = {}

    def radii(self, points: PointProducts, own: Tensor, foreign: Tensor, slack: Tensor) -> Tensor:
        """Radii (n,) in the data's units for correctly classified points; 0 with biases.

        `own` (n,) is each point's best own output, `foreign` (n, C) the outputs to hold against,
        `slack` (n,) by how much another network's margin may be smaller.
        """
        form = self._form
        result = torch.full_like(points.square, torch.inf)
        if form.offsets is not None:
            return torch.zeros_like(result)
        norm = points.square.sqrt()
        # In units of M the slack grows with ||z||^(p q) <= (2 ||z||)^(p q): rho < ||z|| here.
        lost = slack * (2.0 * norm) ** (form.p * form.preparation.normalize)
        for mine in own.unique().tolist():
            for target in range(foreign.shape[1]):
                rows = torch.nonzero((own == mine) & foreign[:, target]).squeeze(1)
                if len(rows) == 0:
                    continue
                if float(form.constant[mine] - form.constant[target]) != 0.0:
                    result[rows] = 0.0
                    continue
                radii = _radii(points, self._pair(mine, target), rows, lost[rows])
                result[rows] = torch.minimum(result[rows], torch.minimum(radii, norm[rows]))
        return result / points.stretch

    def _pair(self, mine: int, target: int) -> _Sides:
        if (mine, target) not in self._sides:
            a = self._form.weights[mine] - self._form.weights[target]
            self._sides[mine, target] = _sides(a, self._gram, self._form.p)
        return self._sides[mine, target]


@dataclass(frozen=True, eq=False)
class _Sides:
    """A pair of outputs: the neurons' weights, and ways to split what stands against."""

    a: Tensor  # (h,)
    p: float
    splits: tuple[_Split, ...]


@dataclass(frozen=True, eq=False)
class _Split:
    """The top eigenvectors T, and what B(d) is at most."""

    basis: Tensor  # (h, k): the neurons' inner products with T
    top: float  # l
    rest: float  # l_R
    quiet: float  # min(l, l_R/eta): what each unit of silence is worth


def _sides(a: Tensor, gram: Tensor, p: float) -> _Sides:
    against = torch.nonzero(a < 0).squeeze(1)
    if len(against) == 0:
        return _Sides(a, p, (_Split(torch.zeros_like(a)[:, None], 0.0, 0.0, 0.0),))
    c = -a[against]
    root = c.sqrt()
    inside = gram[against][:, against]
    values, vectors = torch.linalg.eigh(root[:, None] * inside * root)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    large = int((values > LARGE * values[0]).sum())
    splits = []
    for k in sorted({min(k, large) for k in (*SPLITS, large)}):
        scale = root[:, None] * vectors[:, :k] / values[:k].sqrt()
        basis = gram[:, against] @ scale  # <u_j, b_i> for each neuron and top eigenvector
        splits.append(_Split(basis, *_gains(c, values, k, basis[against], p)))
    return _Sides(a, p, tuple(splits))


def _gains(
    c: Tensor, values: Tensor, k: int, inside: Tensor, p: float
) -> tuple[float, float, float]:
    """l, l_R and min(l, l_R/eta) for the top k eigenvectors."""
    eta = ((1.0 - (inside**2).sum(1)).clamp(min=0.0) + ROUNDING).sqrt()
    direct = float((c * eta**p).sum()) ** (1.0 / p)
    below = (float(values[k]) if k < len(values) else 0.0) + ROUNDING * float(values[0])
    farthest = float(eta.max())
    if p >= 2.0:
        top = float(values[0]) ** (1.0 / p)
        rest = min(direct, (farthest ** (p - 2.0) * below) ** (1.0 / p))
    else:
        mass = float(c.sum()) ** (1.0 / p - 0.5)
        top, rest = mass * float(values[0]) ** 0.5, min(direct, mass * below**0.5)
    alone = rest / farthest
    return (top, rest, min(top, alone)) if k else (0.0, rest, alone)


def _radii(points: PointProducts, sides: _Sides, rows: Tensor, slack: Tensor) -> Tensor:
    """rho for the points at `rows`, the best over the splits; 0 where A <= B."""
    p, inner = sides.p, points.inner[rows]
    power, slope = relu_power_with_slope(inner, p)
    for_it = (power * sides.a.clamp(min=0.0)).sum(1).clamp(min=0.0) ** (1.0 / p)
    other = (relu_power(inner, p) * (-sides.a).clamp(min=0.0)).sum(1) ** (1.0 / p)
    safe = for_it.clamp(min=1e-300)
    weight = sides.a.clamp(min=0.0) * slope / (p * safe ** (p - 1.0)).unsqueeze(1)
    square = (weight * (weight @ points.gram)).sum(1).clamp(min=0.0)
    # What rounding may hide of it: see `move.blur`.
    length = (square + points.form.rounding * weight.sum(1) ** 2).sqrt()
    gap = for_it - other - TERMS * (for_it + other)
    highest = inner.masked_fill(sides.a >= 0, -torch.inf).amax(1)
    silent = (-highest - TERMS * points.square[rows].sqrt()).clamp(min=0.0)
    silent = torch.where(silent.isfinite(), silent, 0.0)  # inf where no neuron is against
    alone, best = length.clamp(min=1e-300), torch.zeros_like(for_it)
    for split in sides.splits:
        inside = torch.linalg.vector_norm(weight @ split.basis, dim=1)
        outside = ((length**2 - inside**2).clamp(min=0.0) + ROUNDING * length**2).sqrt()
        fall = ((inside + split.top) ** 2 + (outside + split.rest) ** 2).sqrt().clamp(min=1e-300)
        gain = split.quiet * silent
        # A - B >= k gives A^p - B^p >= k A^(p-1), and A is at least A_low on the ball.
        low = (for_it - length * torch.minimum((gap + gain) / fall, gap / alone)).clamp(min=0.0)
        lost = torch.where(slack > 0, slack / low.clamp(min=1e-300) ** (p - 1.0), 0.0)
        found = torch.minimum((gap - lost + gain) / fall, (gap - lost) / alone)
        best = torch.maximum(best, found)
    return best.clamp(min=0.0) * (1.0 - SAFE)
