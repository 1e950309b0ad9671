"""Gradient flow of a two-layer network as a chain of Taylor polynomials in time.

A neuron is held as its direction u, the ratio r = v/||w|| and the logarithm lam = log ||w||. With
q_i = y_i exp(-y_i f(x_i)) / n, g = sum_i q_i relu(<x_i, u>)^p and
G = p sum_i q_i relu(<x_i, u>)^(p-1) x_i, gradient flow of the mean exponential loss is

    u' = r (G - p g u),    r' = g (1 - r^2),    lam' = r g,    f(x) = sum_j r_j e^(2 lam_j) relu^p,

for balanced and unbalanced neurons alike. Between two moments at which a sample switches a neuron
on or off, all of this is products and exponentials, whose Taylor coefficients follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from extremal.train.validated.interval_arithmetic import Array, IntervalArray, intervals

# The highest power of time in a polynomial; more than 20 gain little in float64.
ORDER = 16
# The last two terms of a polynomial are at most this large, a tenth of the rounding of a step.
_LAST_TERM_SIZE = 1e-17
# The longest step, over the time in which the fastest neuron grows e-fold: B is found for
# sixteenths of a step, in which errors should not change by more than a part.
_LONGEST_STEP_IN_FOLDINGS = 1.0
# Where a sample is at a neuron's boundary, it counts as being where it will be after this time.
_GLANCE_AHEAD = 1e-8
# Halvings of a step that find the moment of a switch to rounding.
_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class FlowEquation:
    """The samples x (n, dim), labels y (n,) and the power p that define a flow."""

    x: Array
    y: Array
    p: int


@dataclass(frozen=True, eq=False)
class TaylorPieces:
    """u (m, k, h, dim), r (m, k, h), lam (m, k, h): polynomials sum_m c_m s^m, s from 0 to 1.

    Piece k lasts `length[k]`; on it the neurons `mask[k]` (h, n) are on.
    """

    length: Array
    mask: Array
    u: Array
    r: Array
    lam: Array

    def cut(self, start: int, end: int) -> TaylorPieces:
        """The pieces from `start` to before `end`."""
        at = slice(start, end)
        series = (self.u[:, at], self.r[:, at], self.lam[:, at])
        return TaylorPieces(self.length[at], self.mask[at], *series)


def convolve(a: list[Any], b: list[Any], k: int, first: Any = ..., second: Any = ...) -> Any:
    """Coefficient k of a product of two series, indexed so that their shapes fit."""
    terms = [a[i][first] * b[k - i][second] for i in range(k + 1)]
    return sum(terms[1:], start=terms[0])


def velocities(equation: FlowEquation, mask: Any, u: Any, r: Any, lam: Any) -> Iterator[Any]:
    """Taylor coefficients of (u', r', lam'), one order after the other.

    Coefficient k needs those of the lists u, r, lam up to k, which the caller may append meanwhile.
    They are arrays, or `IntervalArray`s; leading axes are free. relu is taken as s where `mask`
    (..., h, n) is 1 and as 0 where it is 0.
    """
    x, y, p = equation.x, equation.y, equation.p
    exact = isinstance(u[0], IntervalArray)
    weight = intervals(y) / len(y) if exact else y / len(y)
    row, col = (..., None, slice(None)), (..., None)
    s: list[Any] = []
    powers: list[list[Any]] = [[] for _ in range(p)]  # relu^1 .. relu^p, (..., h, n)
    series: list[list[Any]] = [[] for _ in range(8)]
    scale, c, f, q, g, pull, turn, square = series
    for k in range(ORDER + 1):
        s.append((u[k][row] * x).sum(-1))
        powers[0].append(s[k] * mask)
        for low, power in pairwise(powers):
            power.append(convolve(low, s, k))
        scale.append(_exp_term(scale, [2.0 * one for one in lam[: k + 1]], k))
        c.append(convolve(r, scale, k))
        f.append(convolve(c, powers[-1], k, col).sum(-2) * -y)
        q.append(_exp_term(q, f, k) if k else _exp_term(q, f, 0) * weight)
        g.append(convolve(q, powers[-1], k, row).sum(-1))
        pull.append((convolve(q, powers[-2], k, row)[col] * x).sum(-2) * float(p))
        turn.append(pull[k] - float(p) * convolve(g, u, k, col))
        square.append(convolve(r, r, k))
        yield (
            convolve(r, turn, k, col),
            g[k] - convolve(g, square, k),
            convolve(r, g, k),
        )


def _exp_term(done: list[Any], inner: list[Any], k: int) -> Any:
    """Coefficient k of exp(inner): k e_k = sum_i i inner_i e_(k-i)."""
    if k == 0:
        return inner[0].exp() if isinstance(inner[0], IntervalArray) else np.exp(inner[0])
    terms = [float(i) * inner[i] * done[k - i] for i in range(1, k + 1)]
    return sum(terms[1:], start=terms[0]) / float(k)


def taylor_solution(
    equation: FlowEquation, start: tuple[Array, Array, Array], until: float, most: int
) -> TaylorPieces:
    """The flow from (u, r, lam) to time `until`, in at most so many pieces, by floating point."""
    with np.errstate(all="ignore"):  # a solution that overflows is one that will not be proven
        pieces = _pieces(equation, start, until, most)
    lengths, masks, *parts = zip(*pieces, strict=True)
    return TaylorPieces(np.array(lengths), np.array(masks), *(np.stack(s, 1) for s in parts))


def _pieces(
    equation: FlowEquation, start: tuple[Array, Array, Array], until: float, most: int
) -> list[tuple[Any, ...]]:
    u, r, lam = start
    pieces: list[tuple[Any, ...]] = []
    passed = 0.0
    while passed < until and len(pieces) < most and np.isfinite(u).all():
        mask, series = _series(equation, u, r, lam)
        length = min(_step(series), until - passed)
        length = _until_switch(equation, mask, series[0], length)
        powers = length ** np.arange(ORDER + 1)
        scaled = [part * powers.reshape(-1, *[1] * (part.ndim - 1)) for part in series]
        pieces.append((length, mask, *scaled))
        u, r, lam = (part[::-1].sum(0) for part in scaled)
        u = u / np.linalg.norm(u, axis=-1, keepdims=True)
        passed += length
    return pieces


def _series(equation: FlowEquation, u: Array, r: Array, lam: Array) -> tuple[Array, list[Array]]:
    """Which neurons are on from now, and the coefficients of (u, r, lam) up to `ORDER`."""
    s = u @ equation.x.T
    first = next(velocities(equation, 1.0 * (s > 0), [u], [r], [lam]))
    mask = 1.0 * (s + _GLANCE_AHEAD * (first[0] @ equation.x.T) > 0)
    parts: tuple[list[Array], ...] = ([u], [r], [lam])
    for k, rates in zip(range(ORDER), velocities(equation, mask, *parts), strict=False):
        for part, rate in zip(parts, rates, strict=True):
            part.append(rate / (k + 1))
    return mask, [np.stack(part) for part in parts]


def _step(series: list[Array]) -> float:
    """The longest step on which the last two terms are small."""
    last = [max(float(np.abs(part[k]).max()) for part in series) for k in (-1, -2)]
    growth = max(float(np.abs(series[2][1]).max()), 1e-300)  # |lam'|
    return min(
        (_LAST_TERM_SIZE / max(last[0], 1e-300)) ** (1.0 / ORDER),
        (_LAST_TERM_SIZE / max(last[1], 1e-300)) ** (1.0 / (ORDER - 1)),
        _LONGEST_STEP_IN_FOLDINGS / growth,
    )


def _until_switch(equation: FlowEquation, mask: Array, u: Array, length: float) -> float:
    """The step, cut at the first moment at which a sample passes a neuron's boundary."""
    s = np.einsum("mhd,nd->mhn", u, equation.x)
    powers = np.arange(len(s))
    passing = (np.tensordot(length**powers, s, 1) > 0) != (mask > 0)
    for j, i in zip(*np.nonzero(passing), strict=True):
        low, high = 0.0, length
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            on = float(middle**powers @ s[:, j, i]) > 0
            low, high = (middle, high) if on == (mask[j, i] > 0) else (low, middle)
        length = min(length, max(high, _GLANCE_AHEAD))
    return length
