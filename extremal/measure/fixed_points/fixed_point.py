"""One fixed point of the alignment flow, exact and examined.

Stability of a fixed point: the largest eigenvalues of the Hessian of s g on the sphere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.measure.fixed_points.alignment_field import AlignmentField, flow_to_rest
from extremal.measure.fixed_points.newton_on_sphere import (
    TOUCH,
    exact_rest_on_kinks,
    polish,
    residual,
)

_DENSE = 400  # up to this dimension Hessians are formed, above it block Krylov spaces are
_BLOCK, _DEPTH = 8, 7


def spectrum(field: AlignmentField, u: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of the Hessian of s g on the sphere at u (d,), falling, and the first's vector.

    On the tangent space at a fixed point u it is P (s H) P - p s g P, H = p(p-1) sum_i q_i
    relu(<x_i,u>)^(p-2) x_i x_i^T: the ambient curvature less the slope <s G, u> = p s g along u.
    All d - 1 of them are found up to dimension 400, above it the eight largest, as the Ritz values
    of a block Krylov space (eight vectors, seven products with H each): lower bounds, close where
    they stand apart from the rest.
    """
    row, s = u[None], sign.reshape(1)
    t = row @ field.x.T
    radial = (field.pull(t, s) * row).sum()
    weights = sign * field.curvature(t, s)[0] * field.q
    x, weights = field.x[weights != 0], weights[weights != 0]
    dense = len(u) <= _DENSE
    if dense:
        plane = torch.linalg.svd(row).Vh[1:]  # (d - 1, d), across u
        shrunk = plane @ x.T
        matrix = (shrunk * weights) @ shrunk.T
    else:
        plane, matrix = _krylov(x, weights, row)
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    values = values.flip(0) - radial
    top = vectors[:, -1] @ plane if len(values) else torch.zeros_like(u)
    return values if dense else values[:_BLOCK], top


def _krylov(x: Tensor, weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis (b, d) of a block Krylov space of P H P across u (1, d), and H in it."""
    seed = torch.Generator().manual_seed(0)  # any block will do: the result does not show it
    block = torch.randn(_BLOCK, u.shape[1], generator=seed, dtype=u.dtype)
    basis, images = u, []
    for _ in range(_DEPTH):
        for _ in range(2):
            block = block - (block @ basis.T) @ basis
        basis = torch.cat([basis, torch.linalg.qr(block.T).Q.T])
        block = ((basis[-_BLOCK:] @ x.T) * weights) @ x
        images.append(block)
    return basis[1:], torch.cat(images) @ basis[1:].T


_EXACT, _AWAY = 1e-6, 0.05  # a residual that is good enough, a way that is too long for Newton
_TRIALS, _STEPS = 3, 1000


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A fixed point u (d,) of neurons of one sign.

    `eigenvalues` fall; there are as many as are known, at most dim - 1. `way` (d,) is the vector of
    the largest. `kinks` opposing samples hold it at <x_i, u> = 0; it touches that of `touching`
    own samples from outside.
    """

    u: Tensor
    sign: Tensor
    growth: float
    eigenvalues: Tensor
    way: Tensor
    kinks: int
    touching: int
    residual: float
    p: float

    def stable(self, flat: float) -> bool:
        """Whether no eigenvalue is positive beyond flat p |s g|."""
        return not bool((self.eigenvalues > flat * self.p * abs(self.growth)).any())

    def flats(self, flat: float) -> int:
        """How many eigenvalues are zero to within flat p |s g|."""
        return int((self.eigenvalues.abs() <= flat * self.p * abs(self.growth)).sum())


def examine(
    field: AlignmentField, u: Tensor, sign: Tensor, dim: int, tolerance: float
) -> FixedPoint:
    """The fixed point near u (d,), and its eigenvalues in all `dim` coordinates of the data.

    d may be smaller than dim: coordinates outside of the span add eigenvalues -p s g. For p = 1
    every direction across u that keeps opposing samples on their kinks has -s g, the others -inf.

    For p < 2 a fixed point may vanish as the kinks get sharp. Then the neuron is followed further,
    with kinks of a tenth of the width, and so on.
    """
    point = _examine(field, u, sign, dim)
    for _ in range(_TRIALS if field.p < 2.0 else 0):
        if point.residual <= _EXACT and float(torch.linalg.vector_norm(point.u - u)) <= _AWAY:
            break
        field = field.narrowed(0.1 * field.width)
        u = flow_to_rest(field, u[None], sign.reshape(1), 0.3 * tolerance, _STEPS).u[0]
        point = _examine(field, u, sign, dim)
    return point


def _examine(field: AlignmentField, u: Tensor, sign: Tensor, dim: int) -> FixedPoint:
    """The same, with own samples that are not active at u left out for as long as they stay so.

    For p < 2 a neuron may come to rest at <x_i, u> = 0 of own samples (s q_i > 0) from the side
    where they are not active. The point attracts an open set of starts, and yet the least push to
    the other side leads away at once: it has an eigenvalue +inf for each of these samples.
    """
    if field.p >= 2.0:
        return _exact(field, u, sign, dim)
    asleep = (sign * field.q > 0) & (field.x @ u <= 0)
    point = _exact(replace(field, q=torch.where(asleep, 0.0, field.q)), u, sign, dim)
    t = field.x @ point.u
    if bool((t[asleep] > TOUCH * field.scale).any()):
        return _exact(field, u, sign, dim)
    touched = torch.nonzero(asleep & (t >= -TOUCH * field.scale))[:, 0]
    values = point.eigenvalues
    count = min(int(torch.linalg.matrix_rank(field.x[touched])), len(values)) if len(touched) else 0
    values = torch.cat([torch.full_like(values[:count], torch.inf), values])[: len(values)]
    return replace(point, eigenvalues=values, touching=len(touched))


def _exact(field: AlignmentField, u: Tensor, sign: Tensor, dim: int) -> FixedPoint:
    field, u = polish(field, u, sign)
    left, kinks, way = residual(field, u, sign), 0, torch.zeros_like(u)
    if field.p > 1.0:
        growth = float(field.growth(u[None], sign.reshape(1)))
        values, way = spectrum(field, u, sign)
        outside = torch.full((dim - len(u),), -field.p * growth, dtype=u.dtype)
        values = torch.cat([values, outside]).sort(descending=True).values
        return FixedPoint(u, sign, growth, values, way, kinks, 0, left, field.p)
    rest = exact_rest_on_kinks(field, u, sign)
    if rest is not None:
        u, kinks, left = rest.u, rest.kinks, rest.residual
    growth = float(sign * (torch.relu(field.x @ u) @ field.q))
    values = torch.full((dim - 1,), -growth, dtype=u.dtype)
    values[max(dim - 1 - kinks, 0) :] = -torch.inf
    if growth < 0:  # every way off that keeps the samples on their kinks is as good
        held = field.x[((field.x @ u).abs() <= TOUCH * field.scale) & (sign * field.q < 0)]
        way = torch.linalg.svd(torch.cat([u[None], held])).Vh[-1]
    return FixedPoint(u, sign, growth, values, way, kinks, 0, left, field.p)
