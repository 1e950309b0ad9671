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

Rounding of the network as it runs may move each <z, u_j> by t_j. By Minkowski's inequality A falls
by at most (sum_own a_j t_j^p)^(1/p) for that, and B rises by as much of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import PointProducts
from extremal.models import LowestGaps, TwoLayerForm, relu_power, relu_power_with_slope

# Sizes of T that are tried, besides the number of large eigenvalues.
TOP_SIZES = (0, 1, 2, 4, 8, 16)
# An eigenvalue is large from this share of the largest one on.
LARGE_EIGENVALUE_SHARE = 1e-3
# The rounding of squares that are differences or eigenvalues, as a share of them.
SQUARE_ROUNDING_SHARE = 1e-12
# A radius is taken smaller by this share, for what rounding may hide.
RADIUS_ROUNDING_SHARE = 1e-7
# A - B is taken smaller by this share of A + B, for what rounding may hide.
GAP_ROUNDING_SHARE = 1e-9


class NeuronClusters:
    """A network's pairs of outputs, each prepared when a point first needs it."""

    def __init__(self, form: TwoLayerForm, gram: Tensor, lowest: LowestGaps | None = None) -> None:
        self._form, self._gram, self._lowest = form, gram, lowest
        self._pairs: dict[tuple[int, int], _OutputPair] = {}

    def radii(self, points: PointProducts, own: Tensor, foreign: Tensor, slack: Tensor) -> Tensor:
        """Radii (n,) in the data's units for correctly classified points; 0 with biases.

        `own` (n,) is each point's best own output, `foreign` (n, C) the outputs to hold against,
        `slack` (n,) by how much another network's margin may be smaller.
        """
        form = self._form
        result = torch.full_like(points.squared_norm, torch.inf)
        if form.offsets is not None:
            return torch.zeros_like(result)
        norm = points.squared_norm.sqrt()
        if self._lowest is not None:
            slack = slack + 2.0 * self._lowest.rounding.floor.max()
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
                radii = _pair_radii(points, self._pair(mine, target), rows, lost[rows])
                result[rows] = torch.minimum(result[rows], torch.minimum(radii, norm[rows]))
        return result / points.stretch

    def _pair(self, mine: int, target: int) -> _OutputPair:
        if (mine, target) not in self._pairs:
            a = self._form.weights[mine] - self._form.weights[target]
            if self._lowest is not None:
                pair = (torch.tensor([place], device=a.device) for place in (mine, target))
                a = self._lowest.weights(*pair)[0].squeeze(0)
            self._pairs[mine, target] = _output_pair(a, self._gram, self._form.p)
        return self._pairs[mine, target]


@dataclass(frozen=True, eq=False)
class _OutputPair:
    """A pair of outputs: the neurons' weights, and ways to split what stands against."""

    a: Tensor  # (h,): own weights less the target's
    p: float
    splits: tuple[_Split, ...]


@dataclass(frozen=True, eq=False)
class _Split:
    """The top eigenvectors T, and what B(d) is at most."""

    basis: Tensor  # (h, k): the neurons' inner products with T
    top: float  # l
    rest: float  # l_R
    gain_per_silence: float  # min(l, l_R/eta): what each unit of silence is worth


def _output_pair(a: Tensor, gram: Tensor, p: float) -> _OutputPair:
    """The pair of outputs whose difference has the weights a (h,)."""
    against = torch.nonzero(a < 0).squeeze(1)
    if len(against) == 0:
        return _OutputPair(a, p, (_Split(torch.zeros_like(a)[:, None], 0.0, 0.0, 0.0),))
    c = -a[against]
    root = c.sqrt()
    inside = gram[against][:, against]
    values, vectors = torch.linalg.eigh(root[:, None] * inside * root)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    large = int((values > LARGE_EIGENVALUE_SHARE * values[0]).sum())
    splits = []
    for k in sorted({min(k, large) for k in (*TOP_SIZES, large)}):
        scale = root[:, None] * vectors[:, :k] / values[:k].sqrt()
        basis = gram[:, against] @ scale  # <u_j, b_i> for each neuron and top eigenvector
        splits.append(_Split(basis, *_gains(c, values, k, basis[against], p)))
    return _OutputPair(a, p, tuple(splits))


def _gains(
    c: Tensor, values: Tensor, k: int, inside: Tensor, p: float
) -> tuple[float, float, float]:
    """l, l_R and min(l, l_R/eta) for the top k eigenvectors."""
    eta = ((1.0 - (inside**2).sum(1)).clamp(min=0.0) + SQUARE_ROUNDING_SHARE).sqrt()
    direct = float((c * eta**p).sum()) ** (1.0 / p)
    below = float(values[k]) if k < len(values) else 0.0
    below = below + SQUARE_ROUNDING_SHARE * float(values[0])
    farthest = float(eta.max())
    if p >= 2.0:
        top = float(values[0]) ** (1.0 / p)
        rest = min(direct, (farthest ** (p - 2.0) * below) ** (1.0 / p))
    else:
        mass = float(c.sum()) ** (1.0 / p - 0.5)
        top, rest = mass * float(values[0]) ** 0.5, min(direct, mass * below**0.5)
    alone = rest / farthest
    return (top, rest, min(top, alone)) if k else (0.0, rest, alone)


def _pair_radii(points: PointProducts, pair: _OutputPair, rows: Tensor, slack: Tensor) -> Tensor:
    """rho for the points at `rows`, the best over the splits; 0 where A <= B."""
    p, inner = pair.p, points.neuron_products[rows]
    shift = _shift(points, rows)
    power, slope = relu_power_with_slope(inner, p)
    own_side = (power * pair.a.clamp(min=0.0)).sum(1).clamp(min=0.0) ** (1.0 / p)
    other_side = (relu_power(inner, p) * (-pair.a).clamp(min=0.0)).sum(1) ** (1.0 / p)
    safe = own_side.clamp(min=1e-300)
    weight = pair.a.clamp(min=0.0) * slope / (p * safe ** (p - 1.0)).unsqueeze(1)
    square = (weight * (weight @ points.gram)).sum(1).clamp(min=0.0)
    # What rounding may hide of it: see `l2_problem.rounding_loss`.
    length = (square + points.form.rounding * weight.sum(1) ** 2).sqrt()
    gap = own_side - other_side - GAP_ROUNDING_SHARE * (own_side + other_side)
    if shift is not None:
        sides = (pair.a.clamp(min=0.0), (-pair.a).clamp(min=0.0))
        gap = gap - sum((side * shift**p).sum(1) ** (1.0 / p) for side in sides)
        inner = inner + shift
    highest = inner.masked_fill(pair.a >= 0, -torch.inf).amax(1)
    silent = (-highest - GAP_ROUNDING_SHARE * points.squared_norm[rows].sqrt()).clamp(min=0.0)
    silent = torch.where(silent.isfinite(), silent, 0.0)  # inf where no neuron is against
    alone, best = length.clamp(min=1e-300), torch.zeros_like(own_side)
    for split in pair.splits:
        inside = torch.linalg.vector_norm(weight @ split.basis, dim=1)
        outside = (length**2 - inside**2).clamp(min=0.0)
        outside = (outside + SQUARE_ROUNDING_SHARE * length**2).sqrt()
        fall = ((inside + split.top) ** 2 + (outside + split.rest) ** 2).sqrt().clamp(min=1e-300)
        gain = split.gain_per_silence * silent
        # A - B >= k gives A^p - B^p >= k A^(p-1), and A is at least A_low on the ball.
        low = (own_side - length * torch.minimum((gap + gain) / fall, gap / alone)).clamp(min=0.0)
        lost = torch.where(slack > 0, slack / low.clamp(min=1e-300) ** (p - 1.0), 0.0)
        found = torch.minimum((gap - lost + gain) / fall, (gap - lost) / alone)
        best = torch.maximum(best, found)
    return best.clamp(min=0.0) * (1.0 - RADIUS_ROUNDING_SHARE)


def _shift(points: PointProducts, rows: Tensor) -> Tensor | None:
    """How far rounding may move pre-activations (m, h) in balls that end at the centre."""
    if points.lowest is None:
        return None
    norm = points.squared_norm[rows].sqrt()
    lost = points.lowest.lost(2.0 * norm, 2.0 * norm, 0.0)
    return points.lowest.reach(points.product_sizes[rows] + norm.unsqueeze(1), lost)
