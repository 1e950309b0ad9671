"""A proven bound on how far a chain of Taylor polynomials is from the true gradient flow.

Let e be the true solution minus the polynomials, and hold |e_u|, |e_r|, |e_lam| of each neuron as a
vector of 3h numbers >= 0. As long as none exceeds the tube's radius, its derivative is at most

    bound' = B bound + residual,

where B holds bounds over the tube: on the diagonal the logarithmic norm of a neuron's own
linearisation, elsewhere norms. `residual` bounds what the polynomials miss of the equation. Both
are found with intervals; a line above the solution of this linear system is checked part by part.

Directions are unit vectors, so <u, e_u> is of second order: e_u counts as tangential, and what it
has along u is at most (defect of |u|^2 + |e_u|^2) / 2 and passes through `radial` columns.
"""

from __future__ import annotations

import numpy as np

from extremal.train.validated.flow_tube import (
    PARTS,
    SUM_ERROR,
    FlowTube,
    above,
    flow_tube,
    norm,
)
from extremal.train.validated.interval_arithmetic import Array, IntervalArray, intervals
from extremal.train.validated.residual_bound import (
    jumps_between,
    off_sphere,
    polynomial_residual,
    switch_residual,
)
from extremal.train.validated.taylor_solution import FlowEquation, TaylorPieces

# Pieces for which B is found at a time, which bounds the memory.
_PIECES_PER_BLOCK = 32
# The slope of the line that is tried exceeds the one needed by this share of what it is made of.
_SLOPE_MARGIN = 1e-9
# Slopes that are tried: each is nearer to one that suffices by the share of an error in a part.
_SLOPE_ROUNDS = 60


def error_bound(
    equation: FlowEquation, pieces: TaylorPieces, first: Array, radius: float
) -> tuple[Array, int]:
    """Bounds (3, h) on |e_u|, |e_r|, |e_lam| at the end of as many pieces as could be proven.

    `first` bounds them at the start; `radius` is the tube's, the largest error that may occur.
    """
    jumps, bound, proven = jumps_between(pieces), first.reshape(-1), first
    with np.errstate(all="ignore"):  # what overflows or is not a number fails the check
        for k in range(len(pieces.length)):
            if k % _PIECES_PER_BLOCK == 0:
                block = pieces.cut(k, k + _PIECES_PER_BLOCK)
                matrix, residual = comparison_system(equation, block, radius)
            bound, time = above(bound + jumps[k]), pieces.length[k] / PARTS
            for part in range(PARTS):
                at, start = (k % _PIECES_PER_BLOCK, part), bound
                bound = _advance(matrix[at], residual[at], start, time)
                if not np.all(np.maximum(start, bound) <= radius):
                    return proven, k
            proven = bound.reshape(first.shape)
    return proven, len(pieces.length)


def comparison_system(
    equation: FlowEquation, pieces: TaylorPieces, radius: float
) -> tuple[Array, Array]:
    """B (k, parts, 3h, 3h) and the residual (k, parts, 3h) of each part of each piece."""
    tube = flow_tube(equation, pieces, radius)
    matrix, radial = _comparison(equation, tube)
    count, width = len(pieces.length), tube.r.mid.shape[-1]
    off = np.repeat(off_sphere(pieces), PARTS, 0)
    missed = np.repeat(polynomial_residual(equation, pieces), PARTS, 0)
    switched = switch_residual(equation, pieces, tube)
    residual = above(missed + switched + 0.5 * np.einsum("bij,bj->bi", radial, off))
    matrix[..., :width] = _upper(matrix[..., :width] + above(0.5 * radius * radial))
    return matrix.reshape(count, PARTS, 3 * width, -1), residual.reshape(count, PARTS, -1)


def _upper(sums: Array) -> Array:
    """Upper bounds on numbers of any sign, each rounded a few times without cancelling."""
    return sums + SUM_ERROR * np.abs(sums) + 1e-300


def _advance(matrix: Array, residual: Array, bound: Array, time: float) -> Array:
    """The end of a line above all solutions of bound' <= matrix bound + residual, or infinity."""
    sizes, slope = np.abs(matrix), matrix @ bound + residual
    first = slope
    for _ in range(_SLOPE_ROUNDS):
        end, reach = bound + time * slope, bound + time * np.abs(slope)
        made_of = sizes @ reach + residual
        # Along a line the right-hand side is a line: what holds at both ends holds between them.
        needed = np.maximum(first, matrix @ end + residual) + SUM_ERROR * made_of
        if np.all(slope >= needed):
            return end + SUM_ERROR * reach + 1e-300
        slope = needed + _SLOPE_MARGIN * made_of
    return np.full_like(bound, np.inf)


def _comparison(equation: FlowEquation, tube: FlowTube) -> tuple[Array, Array]:
    """B (b, 3h, 3h) for tangential errors of directions, and `radial` (b, 3h, h)."""
    p, width = equation.p, tube.r.mid.shape[-1]
    q, r, r_left = tube.q[:, None], tube.r, 1.0 - tube.r * tube.r
    top, slope = tube.powers[p], tube.powers[p - 1]
    turning = norm(tube.pull - tube.u * (tube.g * float(p))[..., None])  # |G - p g u|
    # How a change of q_i moves (u, r, lam) of neuron j, and how those of neuron k change q_i.
    to_u = above(p * r.size[..., None] * slope.size * norm(tube.across))
    to_r, to_lam = r_left[..., None] * top, r[..., None] * top
    from_u = above(p * q.size * tube.c.size[..., None] * slope.size)
    tangential, along = above(from_u * norm(tube.across)), above(from_u * tube.s.size)
    from_r = -(q * top * tube.scale[..., None])
    from_lam = q * top * tube.c[..., None] * -2.0

    def through(receive: Array, send: Array) -> Array:
        return above(np.einsum("bji,bki->bjk", receive, send))

    def own(values: Array) -> Array:
        return values[..., None] * np.eye(width)

    def signed(receive: IntervalArray, send: IntervalArray) -> IntervalArray:
        return (receive[:, :, None] * send[:, None]).sum(-1)

    def diagonal(block: IntervalArray) -> Array:
        return np.where(np.eye(width) > 0, block.high, block.size)

    eye = intervals(np.eye(width))
    rr = diagonal(signed(to_r, from_r) + (r * tube.g * -2.0)[..., None] * eye)
    rl = signed(to_r, from_lam).size
    lr = (signed(to_lam, from_r) + tube.g[..., None] * eye).size
    ll = diagonal(signed(to_lam, from_lam))
    across_u = through(to_u, tangential) * (1.0 - np.eye(width)) + own(_own_growth(equation, tube))
    columns_u = [
        across_u,
        through(to_r.size, tangential) + own(r_left.size * turning),
        through(to_lam.size, tangential) + own(r.size * turning),
    ]
    columns_r = [through(to_u, from_r.size) + own(turning), rr, lr]
    columns_l = [through(to_u, from_lam.size), rl, ll]
    blocks = [np.concatenate(column, 1) for column in (columns_u, columns_r, columns_l)]
    g_size = p * tube.g.size
    radial = [
        through(to_u, along) + own(4.0 * p * r.size * norm(tube.pull)),
        through(to_r.size, along) + own(r_left.size * g_size),
        through(to_lam.size, along) + own(r.size * g_size),
    ]
    return _upper(np.concatenate(blocks, 2)), above(np.concatenate(radial, 1))


def _own_growth(equation: FlowEquation, tube: FlowTube) -> Array:
    """The logarithmic norm (b, h) of a neuron's own turning, on the tangent space.

    The largest eigenvalue of r P (H - p^2 c sum_i |q_i| relu^(2p-2) x x^T) P - p g r, where H is
    the derivative of G, by Gershgorin's circles in the basis of approximate eigenvectors.
    """
    p, y, dim = equation.p, equation.y, equation.x.shape[1]
    q, low, slope = tube.q[:, None], tube.powers[p - 2], tube.powers[p - 1]
    weight = q * low * (y * p * (p - 1.0)) * tube.r[..., None]
    weight = weight - q * slope * slope * float(p * p) * (tube.r * tube.c)[..., None]
    z = tube.across
    form = (weight[..., None, None] * z[..., None, :] * z[..., None]).sum(2)
    form = form - (tube.g * tube.r * float(p))[..., None, None] * np.eye(dim)
    symmetric = 0.5 * (form.mid + np.swapaxes(form.mid, -1, -2))
    basis = np.linalg.eigh(np.nan_to_num(symmetric, posinf=0.0, neginf=0.0))[1]
    turned = (form[..., None] * basis[..., None, :, :]).sum(-2)  # form @ basis
    turned = (intervals(np.swapaxes(basis, -1, -2))[..., None] * turned[..., None, :, :]).sum(-2)
    diagonal = np.eye(dim) > 0
    circles = np.where(diagonal, turned.high, turned.size)
    growth = (circles.sum(-1) + SUM_ERROR * np.abs(circles).sum(-1)).max(-1)
    gram = (intervals(np.swapaxes(basis, -1, -2))[..., None] * basis[..., None, :, :]).sum(-2)
    skew = (gram - np.eye(dim)).size.sum(-1).max(-1)
    return np.where(skew < 0.5, growth + (2.0 * skew + SUM_ERROR) * np.abs(growth), np.inf)
