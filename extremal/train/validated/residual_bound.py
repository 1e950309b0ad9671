"""What a chain of Taylor polynomials misses of the flow's equation, and of being one solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from extremal.train.validated.flow_tube import (
    PARTS,
    SUM_ERROR,
    FlowTube,
    above,
    length,
    norm,
    parts,
    values,
)
from extremal.train.validated.interval_arithmetic import Array, IntervalArray, intervals
from extremal.train.validated.taylor_solution import (
    ORDER,
    FlowEquation,
    TaylorPieces,
    velocities,
)


def polynomial_residual(equation: FlowEquation, pieces: TaylorPieces) -> Array:
    """Bounds (k, 3h) on x' - F(x) for the polynomials x, with the masks in place of relu.

    By Taylor's theorem: the coefficients below `ORDER` at the start of a piece, and the one of that
    order over the whole piece.
    """
    whole_series = (pieces.u, pieces.r, pieces.lam)
    total: list[Any] = [0.0, 0.0, 0.0]
    thin = [[intervals(one) for one in part] for part in whole_series]
    for m, rates in zip(range(ORDER), velocities(equation, pieces.mask, *thin), strict=False):
        for i, (part, rate) in enumerate(zip(thin, rates, strict=True)):
            time = pieces.length.reshape(-1, *[1] * (rate.mid.ndim - 1))
            total[i] = total[i] + (part[m + 1] * float(m + 1) / time - rate).size
    whole = [[intervals(one) for one in part] for part in whole_series]
    unit = IntervalArray.between(0.0, 1.0)
    for series in whole:  # the expansion about every moment at once, by Horner's scheme
        for m in range(ORDER):
            for j in range(ORDER - 1, m - 1, -1):
                series[j] = series[j] + series[j + 1] * unit
    *_, rates = velocities(equation, pieces.mask, *whole)
    u, r, lam = (above(one + rate.size) for one, rate in zip(total, rates, strict=True))
    return np.concatenate([length(u), r, lam], -1)


def switch_residual(equation: FlowEquation, pieces: TaylorPieces, tube: FlowTube) -> Array:
    """Bounds (b, 3h) on what the masks change in F, where a sample has the other sign."""
    wrong = _wrong_side(equation, pieces)
    p, lengths = equation.p, length(np.abs(equation.x))
    r, q, c = tube.r.size, tube.q.size[:, None], tube.c.size[..., None]
    moved = above((c * wrong**p).sum(-2, keepdims=True))
    q_change = above(q * np.expm1(moved) * (1.0 + SUM_ERROR))
    change = [above((q + q_change) * wrong**k + q_change * tube.powers[k].size) for k in (p, p - 1)]
    g, pull = change[0].sum(-1), p * (change[1] * lengths).sum(-1)
    u = r * (pull + p * g * norm(tube.u))
    return above(above(np.concatenate([u, (1.0 + r * r) * g, r * g], -1)))


def _wrong_side(equation: FlowEquation, pieces: TaylorPieces) -> Array:
    """How far <x_i, u_j> gets to the side that the mask does not say, (b, h, n)."""
    s = [(intervals(one)[..., None, :] * equation.x).sum(-1) for one in pieces.u]
    rates = [one * float(m) for m, one in enumerate(s)][1:]
    ends = intervals(np.arange(PARTS + 1) / PARTS)
    value, rate, end = values(s, parts()), values(rates, parts()), values(s, ends)
    steady = np.abs(rate.mid) > rate.rad
    high = np.where(steady, np.maximum(end.high[:, 1:], end.high[:, :-1]), value.high)
    low = np.where(steady, np.minimum(end.low[:, 1:], end.low[:, :-1]), value.low)
    on = pieces.mask[:, None] > 0
    wrong = np.where(on, np.maximum(-low, 0.0), np.maximum(high, 0.0))
    return wrong.reshape(-1, *wrong.shape[2:])


def off_sphere(pieces: TaylorPieces) -> Array:
    """Bounds (k, h) on | |u|^2 - 1 | for the polynomials u, from the coefficients of |u|^2."""
    u = [intervals(one) for one in pieces.u]
    total = np.zeros(pieces.r.shape[1:])
    for m in range(2 * ORDER + 1):
        pairs = range(max(0, m - ORDER), min(m, ORDER) + 1)
        terms = [(u[i] * u[m - i]).sum(-1) for i in pairs]
        coefficient = sum(terms[1:], start=terms[0])
        total = total + (coefficient - 1.0 if m == 0 else coefficient).size
    return above(total)


def jumps_between(pieces: TaylorPieces) -> Array:
    """Bounds (k, 3h) on how far a piece begins from the end of the one before."""
    jumps = []
    for series in (pieces.u, pieces.r, pieces.lam):
        end = values([*map(intervals, series)], intervals(np.ones(1)))[:, 0]
        gap = (end[:-1] - series[0, 1:]).size
        gap = length(gap) if gap.ndim == 3 else gap
        jumps.append(np.concatenate([np.zeros_like(pieces.r[0, :1]), gap]))
    return np.concatenate(jumps, -1)
