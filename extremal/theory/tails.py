"""Lemma 3: how far Gaussian noise reaches along one direction."""

from __future__ import annotations

import math

from extremal.theory._check import integer, number

TAIL_CONSTANT = 0.5
"""The C of Lemma 3 and of every bound built on it: exact for Gaussian noise."""


def tail_probability(threshold: float, dim: int, spread: float) -> float:
    """Return P(|<mu, eps>| > t) exactly, eps ~ N(0, alpha^2/D I) and mu a unit vector.

    It is erfc(t sqrt(D) / (alpha sqrt(2))), accurate relative to itself far into the tail.
    """
    return math.erfc(_standard(threshold, dim, spread) / math.sqrt(2.0))


def tail_bound(threshold: float, dim: int, spread: float) -> float:
    """Return the bound 2 exp(-C D t^2 / alpha^2) on P(|<mu, eps>| > t), with C = 1/2.

    Min & Vidal 2024, Lemma 3, eq. 10, where C is "some constant". For Gaussians 1/2 is the largest
    that holds for all t, and then the factor 2 is not needed: Q(x) <= exp(-x^2/2)/2 for x >= 0
    gives exp(-C D t^2 / alpha^2). The bound says nothing where it is 1 or more.
    """
    return 2.0 * math.exp(-TAIL_CONSTANT * _standard(threshold, dim, spread) ** 2)


def _standard(threshold: float, dim: int, spread: float) -> float:
    number("threshold", threshold, minimum=0.0)
    number("spread", spread, above=0.0)
    return threshold * math.sqrt(integer("dim", dim, minimum=1)) / spread
