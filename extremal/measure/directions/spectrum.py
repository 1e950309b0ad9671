"""Stability of a fixed point: the largest eigenvalues of the Hessian of s g on the sphere."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.measure.fixed_points.alignment_field import Field

_DENSE = 400  # up to this dimension Hessians are formed, above it block Krylov spaces are
_BLOCK, _DEPTH = 8, 7


def spectrum(field: Field, u: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
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
