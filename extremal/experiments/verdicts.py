"""Growth laws fitted to the trials of a record: how fast something grows, and how surely."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extremal._check import require

# 97.5 % quantiles of Student's t by degrees of freedom.
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060)
_NORMAL = 1.959964  # that of the normal distribution
_LEAST = 3  # points that an interval takes


@dataclass(frozen=True)
class Fit:
    """A line by least squares: its slope, the ends of that one's 95 % interval, the rms residual.

    All are NaN where there are fewer than three points, or all at one place.
    """

    slope: float
    low: float
    high: float
    residual: float


def line(x: Sequence[float], y: Sequence[float]) -> Fit:
    """The line through points; its interval is Student's, for errors of one size."""
    require(len(x) == len(y), "y", f"have {len(x)} values", len(y))
    if len(x) < _LEAST or len(set(x)) < 2:
        return Fit(math.nan, math.nan, math.nan, math.nan)
    middle, height = math.fsum(x) / len(x), math.fsum(y) / len(y)
    away = [value - middle for value in x]
    spread = math.fsum(value**2 for value in away)
    slope = math.fsum(a * b for a, b in zip(away, y, strict=True)) / spread
    rest = math.fsum((b - height - slope * a) ** 2 for a, b in zip(away, y, strict=True))
    free = len(x) - 2
    reach = student(free) * math.sqrt(rest / free / spread)
    return Fit(slope, slope - reach, slope + reach, math.sqrt(rest / len(x)))


def exponential(x: Sequence[float], y: Sequence[float]) -> Fit:
    """y = a 2^(slope x): doublings for each step of x; the residual is in doublings."""
    return line(x, _doublings("y", y))


def power(x: Sequence[float], y: Sequence[float]) -> Fit:
    """y = a x^slope; the residual is in doublings."""
    return line(_doublings("x", x), _doublings("y", y))


def lead(x: Sequence[float], y: Sequence[float]) -> Fit:
    """In place of a slope the residual of `exponential` over that of `power`; an interval of none.

    Below 1 the points are nearer to exponential growth than to a power law.
    """
    fast, slow = exponential(x, y).residual, power(x, y).residual
    ratio = fast / slow if slow > 0 else math.nan
    return Fit(ratio, ratio, ratio, fast)


def student(free: int) -> float:
    """The 97.5 % quantile of Student's t: a table, and beyond it the expansion in 1/free.

    Abramowitz & Stegun 26.7.5, to the third order: off by less than 1e-3.
    """
    require(free >= 1, "free", "be at least 1 degree of freedom", free)
    if free <= len(_STUDENT):
        return _STUDENT[free - 1]
    z = _NORMAL
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


def _doublings(name: str, values: Sequence[float]) -> list[float]:
    require(all(value > 0 for value in values), name, "be above 0 for a growth law", values)
    return [math.log2(value) for value in values]


FITS: dict[str, Callable[[Sequence[float], Sequence[float]], Fit]] = {
    "exponential": exponential,
    "power": power,
    "lead": lead,
}
