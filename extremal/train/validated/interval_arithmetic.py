"""Arrays of intervals [mid - rad, mid + rad] in float64 whose radii include all rounding.

Every operation returns intervals that contain the exact result for all numbers in its operands
(Rump 1999, "Fast and parallel interval arithmetic"). It rests on two assumptions: + - * / and sqrt
are rounded to nearest, apart from numbers below 1e-307 that may be flushed to zero, and numpy's
exp, expm1 and log are right to four units in the last place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The largest relative error of one rounded operation.
_UNIT = 2.0**-53
# A radius is found in at most 16 rounded operations on numbers >= 0; this factor covers 32.
_RADIUS_FACTOR = 1.0 + 2.0**-48
# More than all that numbers below 1e-307, lost in a sum of up to a million of them, can amount to.
_LOST_BELOW = 1e-300
# The assumed relative error of exp, expm1 and log: four units in the last place.
_FUNCTION_ERROR = 2.0**-50


def _outward(radius: Array) -> Array:
    return radius * _RADIUS_FACTOR + _LOST_BELOW


@dataclass(frozen=True, eq=False)
class IntervalArray:
    """Intervals [mid - rad, mid + rad], two arrays of one shape; plain arrays are exact numbers."""

    mid: Array
    rad: Array

    # Else an array on the left of an operator would take the intervals apart.
    __array_ufunc__ = None

    @classmethod
    def between(cls, low: Any, high: Any) -> IntervalArray:
        """The smallest intervals that hold all numbers from `low` to `high`."""
        low, high = np.asarray(low, float), np.asarray(high, float)
        mid = 0.5 * low + 0.5 * high
        return cls(mid, _outward(np.maximum(high - mid, mid - low)))

    @property
    def high(self) -> Array:
        """Numbers that are not below any in the intervals."""
        return np.nextafter(self.mid + self.rad, np.inf) + _LOST_BELOW

    @property
    def low(self) -> Array:
        """Numbers that are not above any in the intervals."""
        return np.nextafter(self.mid - self.rad, -np.inf) - _LOST_BELOW

    @property
    def size(self) -> Array:
        """Numbers that are not below any absolute value in the intervals."""
        return np.nextafter(np.abs(self.mid) + self.rad, np.inf) + _LOST_BELOW

    def __getitem__(self, key: Any) -> IntervalArray:
        return IntervalArray(self.mid[key], self.rad[key])

    def __neg__(self) -> IntervalArray:
        return IntervalArray(-self.mid, self.rad)

    def __add__(self, other: Any) -> IntervalArray:
        other = intervals(other)
        mid = self.mid + other.mid
        return IntervalArray(mid, _outward(self.rad + other.rad + _UNIT * np.abs(mid)))

    def __sub__(self, other: Any) -> IntervalArray:
        return self + -intervals(other)

    def __rsub__(self, other: Any) -> IntervalArray:
        return -self + other

    def __mul__(self, other: Any) -> IntervalArray:
        other = intervals(other)
        mid = self.mid * other.mid
        rad = np.abs(self.mid) * other.rad + self.rad * (np.abs(other.mid) + other.rad)
        return IntervalArray(mid, _outward(rad + _UNIT * np.abs(mid)))

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, number: Any) -> IntervalArray:
        """Over exact numbers that are not zero."""
        mid = self.mid / number
        return IntervalArray(mid, _outward(self.rad / np.abs(number) + _UNIT * np.abs(mid)))

    def sum(self, axis: int) -> IntervalArray:
        """Sums along an axis, in whatever order numpy adds."""
        error = 2.0 * self.mid.shape[axis] * _UNIT
        rad = self.rad.sum(axis) + error * np.abs(self.mid).sum(axis)
        return IntervalArray(self.mid.sum(axis), _outward(rad * (1.0 + error)))

    def exp(self) -> IntervalArray:
        """exp, entry by entry."""
        mid = np.exp(self.mid)
        wide = np.expm1(self.rad) * (1.0 + 4.0 * _FUNCTION_ERROR)
        return IntervalArray(mid, _outward((mid + _LOST_BELOW) * (wide + 2.0 * _FUNCTION_ERROR)))

    def log(self) -> IntervalArray:
        """log, entry by entry, of intervals above 0."""
        ends = np.log(self.low), np.log(self.high)
        slack = [4.0 * _FUNCTION_ERROR * np.abs(end) + _LOST_BELOW for end in ends]
        return IntervalArray.between(ends[0] - slack[0], ends[1] + slack[1])

    def sqrt(self) -> IntervalArray:
        """The root, entry by entry, of intervals that end at or above 0."""
        low, high = np.sqrt(np.maximum(self.low, 0.0)), np.sqrt(self.high)
        return IntervalArray.between(np.nextafter(low, 0.0), np.nextafter(high, np.inf))

    def inverse(self) -> IntervalArray:
        """1 over intervals above 0."""
        low, high = 1.0 / self.high, 1.0 / self.low
        return IntervalArray.between(np.nextafter(low, 0.0), np.nextafter(high, np.inf))

    def relu(self) -> IntervalArray:
        """max(0, .), entry by entry; intervals that are not cut stay as they are."""
        cut = IntervalArray.between(np.maximum(self.low, 0.0), np.maximum(self.high, 0.0))
        whole = self.low >= 0.0
        return IntervalArray(np.where(whole, self.mid, cut.mid), np.where(whole, self.rad, cut.rad))


def intervals(value: Any) -> IntervalArray:
    """Intervals as they are, and numbers or arrays as intervals of no width."""
    if isinstance(value, IntervalArray):
        return value
    mid = np.asarray(value, dtype=float)
    return IntervalArray(mid, np.zeros_like(mid))
