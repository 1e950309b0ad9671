"""Bounds on the accuracy of F^(p) at any radius, from both sides, for every p >= 1.

Ours, where the papers' union bounds have D/(K^2 alpha^2) in the exponent: a function of
eps ~ N(0, s^2 I), s = alpha/sqrt(D), with Lipschitz constant l exceeds its mean by t with
probability at most exp(-t^2 / (2 s^2 l^2)). The exponent is then the squared distance to the
critical radius over 2 s^2, with K only in a small shift of the mean.
"""

from __future__ import annotations

import math

from extremal.theory._check import number
from extremal.theory.bound import Bound
from extremal.theory.critical_radii import stretch, subclass_radius
from extremal.theory.statements import Mixture, mixture


def subclass_accuracy_lower(
    dim: int, positive: int, negative: int, spread: float, p: float, radius: float = 0.0
) -> Bound:
    """Return a lower bound on the accuracy of F^(p) against every attack of size `radius`.

    tail = sum over classes of share * exp(-(r_c - r - r_c s m)_+^2 / (2 s^2))

    with r_c the class's critical radius (`subclass_radius`) and m >= E ||relu(g)||_p, g standard
    normal with one entry an opposing centre. Proof: if d breaks a sample of centre k, relu(z) >= z
    and the triangle inequality give ||relu(eps)||_p - <mu_k, eps> >= 1 - r/r_c over the opposing
    centres; the left side is 1/r_c-Lipschitz in eps and has mean at most s m.
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
