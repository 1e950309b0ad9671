"""The exact accuracy of F, clean and attacked: a bivariate normal probability.

Only a = <mu_+, x> and b = <mu_-, x> enter F. A sample of the positive class is read correctly where
sqrt(K1) a > sqrt(K2) relu(b) and a > 0: a wedge between two lines, with unit normals mu_+ and
d_0 = (sqrt(K1) mu_+ - sqrt(K2) mu_-)/sqrt(K), whose correlation is sqrt(K1/K). Outside a convex
wedge is the union of two half-planes, so the distance to it is the smaller of two distances.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from extremal.theory._check import choice, number
from extremal.theory.statements import Mixture, mixture

_FAR = 40.0  # exp(-_FAR^2 / 2) is 0 in double precision
_POINTS = 256  # of the quadrature, in one standard deviation of Z2 given Z1


def average_error(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    radius: float = 0.0,
    attack: Literal["worst", "d0"] = "worst",
) -> float:
    """Return the exact probability that F is wrong at `radius`, accurate relative to itself.

    For a class of K_own centres and s = alpha/sqrt(D) it is P(Z1 < -h or Z2 < -k), with standard
    normal Z1, Z2 of correlation sqrt(K_own/K), k = (1/sqrt(K) - r)/s and

    - "worst": h = (1/sqrt(K_own) - r)/s, the best attack of size r (r = 0: clean samples);
    - "d0":    h = (1/sqrt(K_own) - r sqrt(K_own/K))/s, the step of Min & Vidal 2024, Theorem 1.

    The two classes are weighted by their shares. For K1 = K2 = 1 it is also the error of F^(p) for
    every p, which then has the same sign as F.
    """
    wedges = _wedges(mixture(dim, positive, negative, spread), radius, attack)
    error = sum(
        share * (0.5 * math.erfc(h / math.sqrt(2.0)) + _beyond(-h, k, overlap))
        for share, h, k, overlap in wedges
    )
    return min(error, 1.0)


def average_accuracy(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    radius: float = 0.0,
    attack: Literal["worst", "d0"] = "worst",
) -> float:
    """Return the exact accuracy of F at `radius`, 1 - `average_error`, accurate relative to itself.

    P(Z1 > -h, Z2 > -k), computed without the subtraction: far beyond 1/sqrt(K) it is tiny.
    """
    wedges = _wedges(mixture(dim, positive, negative, spread), radius, attack)
    accuracy = sum(share * _beyond(-h, -k, -overlap) for share, h, k, overlap in wedges)
    return min(accuracy, 1.0)


def _wedges(mix: Mixture, radius: float, attack: str) -> list[tuple[float, float, float, float]]:
    """Each class as (share, h, k, correlation)."""
    radius = number("radius", radius, minimum=0.0)
    choice("attack", attack, ("worst", "d0"))
    wedges = []
    for own, _, share in mix.classes:
        overlap = math.sqrt(own / mix.total)
        toward = radius * (overlap if attack == "d0" else 1.0)
        h = (1.0 / math.sqrt(own) - toward) / mix.deviation
        k = (1.0 / math.sqrt(mix.total) - radius) / mix.deviation
        wedges.append((share, h, k, overlap))
    return wedges


def _beyond(start: float, k: float, correlation: float) -> float:
    """P(Z1 > start, Z2 < -k) = int_start phi(z) Q((k + correlation z)/sqrt(1 - correlation^2)) dz.

    The integrand is log-concave with its mode between 0 and -correlation * k, or at the start, and
    falls at least as fast as phi on both sides of it: 12 beyond them nothing is left.
    """
    mode = max(-_FAR, min(_FAR, -correlation * k))
    low = max(start, min(0.0, mode) - 12.0)
    high = max(low, 0.0, mode) + 12.0
    rest = math.sqrt(1.0 - correlation**2)
    steps = 2 * math.ceil(0.5 * _POINTS * (high - low) / rest)
    z = torch.linspace(low, high, steps + 1, dtype=torch.float64)
    values = torch.exp(-0.5 * z**2) * torch.erfc((k + correlation * z) / (rest * math.sqrt(2.0)))
    # Simpson's rule: 4 on the odd points, 2 on the even ones, 1 at the ends.
    total = 4.0 * values[1::2].sum() + 2.0 * values[2:-1:2].sum() + values[0] + values[-1]
    return float(total) * (high - low) / (6.0 * steps * math.sqrt(2.0 * math.pi))
