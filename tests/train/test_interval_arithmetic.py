"""Intervals contain the exact results, as found in rational and in 60-digit arithmetic."""

import operator
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from extremal.train.validated.interval_arithmetic import IntervalArray, intervals

# Digits of the reference: far more than the 16 of float64.
mpmath.mp.dps = 60


def drawn(seed, count=300, high=1e3):
    """Intervals of many sizes, from exact numbers to wide ones, and a number in each."""
    rng = np.random.default_rng(seed)
    mid = rng.choice([-1, 1], count) * np.exp(rng.uniform(np.log(1e-9), np.log(high), count))
    rad = np.abs(mid) * rng.choice([0.0, 1e-16, 1e-9, 0.1, 3.0], count)
    at = rng.choice([-1, 0, 1], count)
    inside = [Fraction(m) + int(a) * Fraction(r) for m, r, a in zip(mid, rad, at, strict=True)]
    return IntervalArray(mid, rad), inside


def holds(found, exact):
    """Whether all exact numbers lie in the intervals, as real numbers."""
    pairs = zip(found.mid, found.rad, exact, strict=True)
    return all(abs(Fraction(float(m)) - e) <= Fraction(float(r)) for m, r, e in pairs)


def rational(number):
    """A 60-digit number as a fraction."""
    return Fraction(int(mpmath.floor(number * mpmath.mpf(10) ** 60)), 10**60)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_operations_hold_the_exact_result(name):
    (a, in_a), (b, in_b) = drawn(0), drawn(1)
    apply = getattr(operator, name)
    assert holds(apply(a, b), [apply(s, t) for s, t in zip(in_a, in_b, strict=True)])


def test_numbers_and_arrays_are_exact_on_both_sides():
    a, inside = drawn(2)
    third = np.full(300, 1.0 / 3.0)
    exact = Fraction(1.0 / 3.0)
    assert holds(third * a, [exact * t for t in inside])
    assert holds(third - a, [exact - t for t in inside])
    assert holds(a / 3.0, [t / 3 for t in inside])
    assert holds(-a, [-t for t in inside])


def test_sums_hold_the_exact_sum():
    a, inside = drawn(3, 3000)
    found = IntervalArray(a.mid.reshape(10, 300), a.rad.reshape(10, 300)).sum(1)
    assert holds(found, [sum(inside[300 * i : 300 * (i + 1)]) for i in range(10)])


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "inverse"])
def test_functions_hold_the_exact_result(name):
    a, _ = drawn(4, high=30.0)
    if name != "exp":
        a = IntervalArray(np.abs(a.mid), np.minimum(a.rad, 0.5 * np.abs(a.mid)))
    function = (lambda t: 1 / t) if name == "inverse" else getattr(mpmath, name)
    found = getattr(a, name)()
    for sign in (-1, 0, 1):
        exact = [
            function(mpmath.mpf(m) + sign * mpmath.mpf(r))
            for m, r in zip(a.mid.tolist(), a.rad.tolist(), strict=True)
        ]
        assert holds(found, [rational(one) for one in exact])


def test_intervals_stay_narrow():
    a = intervals(np.linspace(0.1, 20.0, 200))
    for found in (a * a, a.exp(), a.log(), a.sqrt(), a.inverse(), a + a):
        assert (found.rad <= 1e-14 * np.maximum(np.abs(found.mid), 1.0)).all()


def test_a_wide_interval_whose_middle_vanishes_still_has_its_upper_end():
    assert IntervalArray(np.array(-750.0), np.array(700.0)).exp().high >= np.exp(-50.0)


def test_relu_cuts_at_zero():
    a = IntervalArray(np.array([-2.0, 0.5, 3.0]), np.array([1.0, 1.0, 1.0])).relu()
    assert (a.low <= [0.0, 0.0, 2.0]).all()
    assert (a.high >= [0.0, 1.5, 4.0]).all()
    assert (a.high <= [1e-9, 1.5 + 1e-9, 4.0 + 1e-9]).all()
