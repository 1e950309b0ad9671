"""What the equation of a flow is made of, as intervals over parts of time and a tube of states.

Also the sums and lengths from which bounds are made in floating point, rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from extremal.train.validated.interval_arithmetic import Array, IntervalArray, intervals
from extremal.train.validated.taylor_solution import FlowEquation, TaylorPieces

# Parts of a piece with intervals of their own, a power of two so that their ends are exact numbers.
PARTS = 16
# Sums of up to a thousand numbers >= 0, each a product of a few, are right to this share.
SUM_ERROR = 1e-12
# Coordinates below this may vanish when they are squared; it is added to every length.
_LEAST_LENGTH = 1e-150


@dataclass(frozen=True, eq=False)
class FlowTube:
    """What the equation is made of, over each part of a piece and all states within the tube."""

    u: IntervalArray  # (b, h, dim)
    r: IntervalArray  # (b, h)
    scale: IntervalArray  # (b, h), e^(2 lam)
    c: IntervalArray  # (b, h), contributions
    s: IntervalArray  # (b, h, n), <x_i, u_j>
    powers: list[IntervalArray]  # relu^0 .. relu^p of s
    q: IntervalArray  # (b, n), y_i q_i > 0
    g: IntervalArray  # (b, h)
    pull: IntervalArray  # (b, h, dim), G
    across: IntervalArray  # (b, h, n, dim), x_i - s_ji u_j


def flow_tube(equation: FlowEquation, pieces: TaylorPieces, radius: float) -> FlowTube:
    """The intervals for all states within `radius` of the polynomials."""
    x, y, p = equation.x, equation.y, equation.p
    around = IntervalArray(np.zeros(()), np.full((), radius))
    u, r, lam = (
        _flat(values([*map(intervals, series)], parts()) + around)
        for series in (pieces.u, pieces.r, pieces.lam)
    )
    scale = (lam * 2.0).exp()
    s = (u[:, :, None] * x).sum(-1)
    on = IntervalArray.between(1.0 * (s.low > 0), 1.0 * (s.high > 0))
    powers = [on, s.relu()]
    for _ in range(p - 1):
        powers.append(powers[-1] * powers[1])
    c = r * scale
    f = (c[..., None] * powers[p]).sum(-2)
    q = (f * -y).exp() / len(y)
    g = ((q * y)[:, None] * powers[p]).sum(-1)
    pull = (((q * y)[:, None] * powers[p - 1])[..., None] * x).sum(-2) * float(p)
    across = x - s[..., None] * u[:, :, None]
    return FlowTube(u, r, scale, c, s, powers, q, g, pull, across)


def _flat(value: IntervalArray) -> IntervalArray:
    """Pieces and their parts along one axis."""
    return IntervalArray(
        value.mid.reshape(-1, *value.mid.shape[2:]), value.rad.reshape(-1, *value.rad.shape[2:])
    )


def values(series: list[IntervalArray], moment: IntervalArray) -> IntervalArray:
    """Series with coefficients (k, ...) at moments (p,): (k, p, ...)."""
    moment = moment[(None, slice(None), *[None] * (series[0].mid.ndim - 1))]
    value = series[-1][:, None]
    for coefficient in series[-2::-1]:
        value = value * moment + coefficient[:, None]
    return value


def parts() -> IntervalArray:
    """The parts of a piece, as intervals of its moments."""
    ends = np.arange(PARTS + 1) / PARTS
    return IntervalArray.between(ends[:-1], ends[1:])


def above(sums: Array) -> Array:
    """Upper bounds on sums >= 0 that were found in floating point."""
    return sums * (1.0 + SUM_ERROR) + 1e-300


def length(sizes: Array) -> Array:
    """Upper bounds on the lengths of vectors whose entries are at most `sizes`."""
    return above(np.sqrt(np.square(sizes).sum(-1))) + _LEAST_LENGTH


def norm(vectors: IntervalArray) -> Array:
    """Upper bounds on lengths along the last axis."""
    return length(vectors.size)
