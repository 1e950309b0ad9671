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

**Rounding** of the network as it runs costs at most (1 + k) (S + t P)^p - S^p, where every <z, u_j>
is off by at most t and every term by a share k, with S = (sum m_j relu(<z, u_j>)^p)^(1/p) and
P = (sum m_j)^(1/p) over all neurons, m_j their weights for both outputs: Minkowski's inequality.
With h = (1 + k) (1 + t P / A)^p - 1 that is at most h S^p, since S >= A, and S^p is at most
A^p + B^p + (sum m_j - sum |a_j|) ||z + d||^p. So B counts ((1 + h) / (1 - h))^(1/p) times.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import PointProducts
from extremal.models import ShallowRounding, TwoLayerForm, relu_power, relu_power_with_slope

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

    def __init__(self, form: TwoLayerForm, gram: Tensor, rounding: ShallowRounding) -> None:
        self._form, self._gram, self._rounding = form, gram, rounding
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
                radii = _pair_radii(
                    points, self._pair(mine, target), rows, lost[rows], self._rounding
                )
                result[rows] = torch.minimum(result[rows], torch.minimum(radii, norm[rows]))
        return result / points.stretch

    def _pair(self, mine: int, target: int) -> _OutputPair:
        if (mine, target) not in self._pairs:
            a = self._form.weights[mine] - self._form.weights[target]
            sizes = self._rounding.form.weights[[mine, target]].abs().sum()
            self._pairs[mine, target] = _output_pair(a, self._gram, self._form.p, float(sizes))
        return self._pairs[mine, target]


@dataclass(frozen=True, eq=False)
class _OutputPair:
    """A pair of outputs: the neurons' weights, and ways to split what stands against."""

    a: Tensor  # (h,): own weights less the target's
    p: float
    sizes: float  # sum m_j: the sizes of both outputs' weights, of the network itself
    splits: tuple[_Split, ...]


@dataclass(frozen=True, eq=False)
class _Split:
    """The top eigenvectors T, and what B(d) is at most."""

    basis: Tensor  # (h, k): the neurons' inner products with T
    top: float  # l
    rest: float  # l_R
    gain_per_silence: float  # min(l, l_R/eta): what each unit of silence is worth


def _output_pair(a: Tensor, gram: Tensor, p: float, sizes: float) -> _OutputPair:
    """The pair of outputs whose difference has the weights a (h,)."""
    against = torch.nonzero(a < 0).squeeze(1)
    if len(against) == 0:
        return _OutputPair(a, p, sizes, (_Split(torch.zeros_like(a)[:, None], 0.0, 0.0, 0.0),))
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
    return _OutputPair(a, p, sizes, tuple(splits))


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


def _pair_radii(
    points: PointProducts,
    pair: _OutputPair,
    rows: Tensor,
    slack: Tensor,
    rounding: ShallowRounding,
) -> Tensor:
    """rho for the points at `rows`, the best over the splits; 0 where A <= B."""
    p, inner = pair.p, points.neuron_products[rows]
    power, slope = relu_power_with_slope(inner, p)
    own_side = (power * pair.a.clamp(min=0.0)).sum(1).clamp(min=0.0) ** (1.0 / p)
    other_side = (relu_power(inner, p) * (-pair.a).clamp(min=0.0)).sum(1) ** (1.0 / p)
    safe = own_side.clamp(min=1e-300)
    weight = pair.a.clamp(min=0.0) * slope / (p * safe ** (p - 1.0)).unsqueeze(1)
    square = (weight * (weight @ points.gram)).sum(1).clamp(min=0.0)
    # What rounding may hide of it: see `l2_problem.rounding_loss`.
    length = (square + points.form.rounding * weight.sum(1) ** 2).sqrt()
    gap = own_side - other_side - GAP_ROUNDING_SHARE * (own_side + other_side)
    highest = inner.masked_fill(pair.a >= 0, -torch.inf).amax(1)
    silent = (-highest - GAP_ROUNDING_SHARE * points.squared_norm[rows].sqrt()).clamp(min=0.0)
    silent = torch.where(silent.isfinite(), silent, 0.0)  # inf where no neuron is against
    alone, best = length.clamp(min=1e-300), torch.zeros_like(own_side)
    for split in pair.splits:
        inside = torch.linalg.vector_norm(weight @ split.basis, dim=1)
        outside = (length**2 - inside**2).clamp(min=0.0)
        outside = (outside + SQUARE_ROUNDING_SHARE * length**2).sqrt()
        fall = _fall(inside, split.top, outside, split.rest)
        gain = split.gain_per_silence * silent
        # A - B >= k gives A^p - B^p >= k A^(p-1), and A is at least A_low on the ball.
        far = torch.minimum((gap + gain) / fall, gap / alone).clamp(min=0.0)
        low = (own_side - length * far).clamp(min=1e-300)
        most = points.squared_norm[rows].sqrt() + far
        louder, error = _rounding_of_pair(points, pair, slack, low, most, rounding)
        left = gap - (louder - 1.0) * other_side - error / low ** (p - 1.0)
        fall = _fall(inside, louder * split.top, outside, louder * split.rest)
        found = torch.minimum((left + gain) / fall, left / alone)
        best = torch.maximum(best, found.nan_to_num(nan=0.0))
    return best.clamp(min=0.0) * (1.0 - RADIUS_ROUNDING_SHARE)


def _fall(inside: Tensor, top: Tensor | float, outside: Tensor, rest: Tensor | float) -> Tensor:
    """How fast A - B falls at most with each unit of a perturbation, (m,)."""
    return ((inside + top) ** 2 + (outside + rest) ** 2).sqrt().clamp(min=1e-300)


def _rounding_of_pair(
    points: PointProducts,
    pair: _OutputPair,
    slack: Tensor,
    low: Tensor,
    most: Tensor,
    rounding: ShallowRounding,
) -> tuple[Tensor, Tensor]:
    """How much louder B counts for rounding, (m,), and what A^p - B^p must exceed besides, (m,).

    In balls in which A is at least `low` (m,), and ||z + d|| at most `most` (m,).
    """
    p, unit = pair.p, most ** (pair.p * points.form.preparation.normalize)
    shift, share, flushed = rounding.of_activations(most, unit)
    h = (1.0 + share) * (1.0 + shift * pair.sizes ** (1.0 / p) / low) ** p - 1.0
    known = h < 1.0
    h = torch.where(known, h, 0.0)
    left = max(pair.sizes - float(pair.a.abs().sum()), 0.0) * most**p
    louder = ((1.0 + h) / (1.0 - h)) ** (1.0 / p)
    error = (slack + h * (slack + left) + flushed) / (1.0 - h)
    return louder, torch.where(known, error, torch.inf)
