"""The exact accuracy of F, and our bounds on that of F^(p), at any radius.

The accuracy of F, clean and attacked, is a bivariate normal probability: only a = <mu_+, x> and
b = <mu_-, x> enter F. A sample of the positive class is read correctly where
sqrt(K1) a > sqrt(K2) relu(b) and a > 0: a wedge between two lines, with unit normals mu_+ and
d_0 = (sqrt(K1) mu_+ - sqrt(K2) mu_-)/sqrt(K), whose correlation is sqrt(K1/K). Outside a convex
wedge is the union of two half-planes, so the distance to it is the smaller of two distances.

The bounds on F^(p) hold from both sides, for every p >= 1. Where the papers' union bounds have
D/(K^2 alpha^2) in the exponent, they use concentration: a function of eps ~ N(0, s^2 I),
s = alpha/sqrt(D), with Lipschitz constant l exceeds its mean by t with probability at most
exp(-t^2 / (2 s^2 l^2)). The exponent is then the squared distance to the critical radius over
2 s^2, with K only in a small shift of the mean.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from extremal._check import choice, number
from extremal.theory.critical_radii import stretch, subclass_radius
from extremal.theory.statements import Bound, Mixture, mixture


def subclass_accuracy_lower(
    dim: int, positive: int, negative: int, spread: float, p: float, radius: float = 0.0
) -> Bound:
    """Return a lower bound on the accuracy of F^(p) against every attack of size `radius`.

    tail = sum over classes of share * exp(-(r_c - r - r_c s m)_+^2 / (2 s^2))

    with r_c the class's critical radius (`subclass_radius`) and m >= E ||relu(g)||_p, g standard
    normal with one entry an opposing centre. Proof: if d breaks a sample of centre k, relu(z) >= z
    and the triangle inequality give ||relu(eps)||_p - <mu_k, eps> >= 1 - r/r_c over the opposing
    centres; the left side is 1/r_c-Lipschitz in eps and has mean at most s m.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `p`: the power of the pReLU, 1 or more.
    - `radius`: the l2 size of the attack, 0 or more; 0, the default, is clean accuracy.
    """
    mix = mixture(dim, positive, negative, spread)
    p = number("p", p, minimum=1.0)
    radius = number("radius", radius, minimum=0.0)
    tail = 0.0
    for _, opposing, share in mix.classes:
        critical = subclass_radius(opposing, p)
        shift = critical * mix.deviation * _mean_norm(opposing, p)
        tail += share * mix.decay(max(critical - radius - shift, 0.0))
    return Bound("lower", tail, radius)


def subclass_accuracy_upper(
    dim: int, positive: int, negative: int, spread: float, p: float, radius: float
) -> Bound:
    """Return an upper bound on the accuracy of F^(p) under the best attack of size `radius`.

    tail = sum over classes of share * exp(-gap_+^2 / (2 s^2 (l_own^2 + l^2))),
    gap  = r r_c l^2 - E relu(1 - r r_c + s g) - s m

    with l = `stretch` of the opposing centres, r_c = 1/sqrt(1 + l^2), l_own that of the class's own
    centres and m >= E ||relu(g)||_p over the own centres but the sample's. Proof: the step takes
    r r_c from the sample's centre and shares r r_c l among the opposing ones (p < 2) or gives it to
    one (p >= 2); the sample survives only if the own outputs' l_p norm exceeds the opposing ones',
    and the difference is sqrt(l_own^2 + l^2)-Lipschitz with mean at most -gap.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `p`: the power of the pReLU, 1 or more.
    - `radius`: the l2 size of the attack, 0 or more.
    """
    mix = mixture(dim, positive, negative, spread)
    p = number("p", p, minimum=1.0)
    radius = number("radius", radius, minimum=0.0)
    tail = 0.0
    for own, opposing, share in mix.classes:
        taken = radius * subclass_radius(opposing, p)
        kept = _mean_relu(1.0 - taken, mix) + mix.deviation * _mean_norm(own - 1, p)
        gap = max(taken * stretch(opposing, p) ** 2 - kept, 0.0)
        tail += share * mix.decay(gap / math.hypot(stretch(own, p), stretch(opposing, p)))
    return Bound("upper", tail, radius)


def _mean_norm(count: int, p: float) -> float:
    """An upper bound on E ||relu(g)||_p for `count` standard normals: q <= p, and Jensen."""
    orders = {1.0, p, min(p, 2.0)}
    return min(float((count * _relu_moment(q)) ** (1.0 / q)) for q in orders)


def _relu_moment(p: float) -> float:
    """E relu(g)^p = 2^(p/2 - 1) Gamma((p + 1)/2) / sqrt(pi)."""
    log_moment = (p / 2.0 - 1.0) * math.log(2.0) + math.lgamma((p + 1.0) / 2.0)
    return math.exp(log_moment) / math.sqrt(math.pi)


def _mean_relu(mean: float, mix: Mixture) -> float:
    """E relu(mean + s g) = mean Phi(mean/s) + s phi(mean/s)."""
    ratio = mean / mix.deviation
    density = math.exp(-0.5 * ratio**2) / math.sqrt(2.0 * math.pi)
    return mean * 0.5 * math.erfc(-ratio / math.sqrt(2.0)) + mix.deviation * density


# So many deviations away from 0 nothing is left: exp(-40^2 / 2) is 0 in double precision.
_LARGEST_MODE = 40.0
# The quadrature has so many points in one standard deviation of Z2 given Z1.
_POINTS_PER_DEVIATION = 256


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

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `radius`: the l2 size of the attack, 0 or more; 0, the default, is the clean error.
    - `attack`: "worst" (the default), the best attack of that size, or "d0", the step of Theorem 1.
    """
    wedges = _wedges(mixture(dim, positive, negative, spread), radius, attack)
    error = sum(
        share * (0.5 * math.erfc(h / math.sqrt(2.0)) + _bivariate_tail(-h, k, overlap))
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

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `radius`: the l2 size of the attack, 0 or more; 0, the default, is clean accuracy.
    - `attack`: "worst" (the default), the best attack of that size, or "d0", the step of Theorem 1.
    """
    wedges = _wedges(mixture(dim, positive, negative, spread), radius, attack)
    accuracy = sum(share * _bivariate_tail(-h, -k, -overlap) for share, h, k, overlap in wedges)
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


def _bivariate_tail(start: float, k: float, correlation: float) -> float:
    """P(Z1 > start, Z2 < -k) = int_start phi(z) Q((k + correlation z)/sqrt(1 - correlation^2)) dz.

    The integrand is log-concave with its mode between 0 and -correlation * k, or at the start, and
    falls at least as fast as phi on both sides of it: 12 beyond them nothing is left.
    """
    mode = max(-_LARGEST_MODE, min(_LARGEST_MODE, -correlation * k))
    low = max(start, min(0.0, mode) - 12.0)
    high = max(low, 0.0, mode) + 12.0
    rest = math.sqrt(1.0 - correlation**2)
    steps = 2 * math.ceil(0.5 * _POINTS_PER_DEVIATION * (high - low) / rest)
    z = torch.linspace(low, high, steps + 1, dtype=torch.float64)
    values = torch.exp(-0.5 * z**2) * torch.erfc((k + correlation * z) / (rest * math.sqrt(2.0)))
    # Simpson's rule: 4 on the odd points, 2 on the even ones, 1 at the ends.
    total = 4.0 * values[1::2].sum() + 2.0 * values[2:-1:2].sum() + values[0] + values[-1]
    return float(total) * (high - low) / (6.0 * steps * math.sqrt(2.0 * math.pi))
