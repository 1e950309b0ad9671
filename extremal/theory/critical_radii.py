"""Critical radii: where the classifiers break when there is no noise, and what can't be beaten."""

from __future__ import annotations

import math

from extremal.theory._check import integer, number

OPTIMAL_RADIUS = math.sqrt(2.0) / 2.0
"""Half the distance between two centres: no classifier keeps every subclass at this l2 radius."""


def average_radius(positive: int, negative: int) -> float:
    """Return the largest l2 radius below which F reads every centre correctly, 1/sqrt(K).

    From a centre mu_k of a class with K_own centres the two lines that bound the class are at
    1/sqrt(K) and 1/sqrt(K_own), the first always nearer. Min & Vidal 2024, Remark 2.
    """
    total = integer("positive", positive, minimum=1) + integer("negative", negative, minimum=1)
    return 1.0 / math.sqrt(total)


def stretch(count: int, p: float) -> float:
    """Return max ||v||_p / ||v||_2 over R^count: count^(1/p - 1/2) for p <= 2 and 1 for p >= 2."""
    count = integer("count", count, minimum=1)
    p = number("p", p, minimum=1.0)
    return float(count ** max(1.0 / p - 0.5, 0.0))


def subclass_radius(opposing: int, p: float) -> float:
    """Return the l2 radius below which F^(p) reads a centre correctly against `opposing` others.

    r_c = 1 / sqrt(1 + K_opp^(2/p - 1)) for 1 <= p <= 2, and sqrt(2)/2 for p >= 2.

    The nearest error has 1 - a = ||b||_p, a taken from the sample's own centre and b put on the
    opposing ones; min a^2 + ||b||_2^2 with ||b||_p <= l ||b||_2, l = `stretch`, is 1/(1 + l^2).
    The class's own other centres don't enter: attacking them can't lower F^(p). They do with noise,
    to the sample's advantage. A mixture's classes have K_opp = K2 and K1: for p < 2 they differ.
    """
    opposing = integer("opposing", opposing, minimum=1)
    return 1.0 / math.hypot(1.0, stretch(opposing, p))


def unavoidable_error(positive: int, negative: int, radius: float) -> float:
    """Return a robust error that no classifier can beat at an l2 radius, whatever the noise.

    min(K1, K2)/K from radius sqrt(2)/2 on, and 0 (no statement) below. Pair each centre of the
    smaller class with one of the other: mu_k + eps and mu_l + eps are sqrt(2) apart for every eps,
    and their midpoint can have one sign only. A constant classifier reaches it. Min & Vidal 2025
    (poster): sqrt(2)/2 is the largest robustness without loss of clean accuracy.
    """
    smaller = min(
        integer("positive", positive, minimum=1), integer("negative", negative, minimum=1)
    )
    radius = number("radius", radius, minimum=0.0)
    return smaller / (positive + negative) if radius >= OPTIMAL_RADIUS else 0.0
