"""Proposition 1 and Theorems 1 and 3: how accurate F and F^(p) are, and where each of them breaks.

F holds below 1/sqrt(K) and breaks above it; F^(p), p >= 2, holds below sqrt(2)/2 and breaks above
it. Versions: "paper" as printed in Min & Vidal 2024, "sharp" the best of this form, proven here.
The constant C of Lemma 3, how far Gaussian noise reaches along one direction, is 1/2 throughout
(`TAIL_CONSTANT`). What the posters print, what the proofs reach and where they slip is in
docs/theory/errata.md.
"""

from __future__ import annotations

import math
from typing import Literal

from extremal._check import choice, integer, number
from extremal.theory.statements import Bound, mixture


def average_attack_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    excess: float,
    version: Literal["paper", "sharp"] = "paper",
) -> Bound:
    """Return an upper bound on the accuracy of F after the step (1 + excess)/sqrt(K) along -y d_0.

    paper: 2 exp(-C D rho^2 / (K alpha^2)), rho = `excess` >= 0
    sharp: a quarter of it, as only P(<d_0, eps> > rho/sqrt(K)) is needed

    with d_0 = (sqrt(K1) mu_+ - sqrt(K2) mu_-)/sqrt(K). Min & Vidal 2024, Theorem 1, eq. 20-25.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `excess`: rho, how far the step goes beyond 1/sqrt(K), in that unit; 0 or more.
    - `version`: which of the bounds above is used, "paper" (the default) or "sharp".
    """
    mix = mixture(dim, positive, negative, spread)
    excess = number("excess", excess, minimum=0.0)
    decay = mix.decay(excess / math.sqrt(mix.total))
    tails = {"paper": 2.0 * decay, "sharp": 0.5 * decay}
    choice("version", version, tails)
    return Bound("upper", tails[version], (1.0 + excess) / math.sqrt(mix.total))


def average_robust_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    slack: float,
    version: Literal["paper", "sharp"] = "paper",
) -> Bound:
    """Return a lower bound on the accuracy of F against all attacks of size (1 - slack)/sqrt(K).

    paper: tail 2 exp(-C D rho^2 / (K alpha^2)), rho = `slack` in [0, 1]
    sharp: tail exp(-C D rho^2 / (K alpha^2)), so the statement is true as printed

    Min & Vidal 2024, Theorem 3 (Appendix C.4). For "sharp": in the plane of mu_+ and mu_- a class
    is a wedge, and an attack of size r crosses one of its two lines, at distances 1/sqrt(K) and
    1/sqrt(K_own) from the centre, only if the noise along that line's normal exceeds rho/sqrt(K);
    each has probability Q(x) <= exp(-x^2/2)/2. `average_accuracy` has the exact value.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `slack`: rho, how far attacks stay below 1/sqrt(K), in that unit; in [0, 1].
    - `version`: which of the tails above is used, "paper" (the default) or "sharp".
    """
    mix = mixture(dim, positive, negative, spread)
    slack = number("slack", slack, minimum=0.0, maximum=1.0)
    margin = slack / math.sqrt(mix.total)
    tails = {"paper": 2.0 * mix.decay(margin), "sharp": mix.decay(margin)}
    choice("version", version, tails)
    return Bound("lower", tails[version], (1.0 - slack) / math.sqrt(mix.total))


def subclass_robust_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    slack: float,
    p: float,
) -> Bound:
    """Return a lower bound on the accuracy of F^(p) against attacks of size (sqrt(2) - slack)/2.

    tail 2 (K+1) exp(-C D delta^2 / (2 K^2 alpha^2)), delta = `slack` in [0, sqrt 2], p >= 2

    Min & Vidal 2024, Theorem 1, eq. 26-38; both posters state it for p > 2 and slack > 0.
    `subclass_accuracy_lower` has an exponent without 1/K^2, and holds for p >= 1 at any radius.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `slack`: delta, twice how far attacks stay below sqrt(2)/2; in [0, sqrt 2].
    - `p`: the power of the pReLU, 2 or more; the bound is the same for each.
    """
    mix = mixture(dim, positive, negative, spread)
    slack = number("slack", slack, minimum=0.0, maximum=math.sqrt(2.0))
    number("p", p, minimum=2.0)
    tail = 2.0 * (mix.total + 1) * mix.decay(slack / (math.sqrt(2.0) * mix.total))
    return Bound("lower", tail, (math.sqrt(2.0) - slack) / 2.0)


def subclass_attack_bound(
    dim: int, positive: int, negative: int, spread: float, excess: float
) -> Bound:
    """Return an upper bound on the accuracy of F^(p) under the best attack of (sqrt(2)+excess)/2.

    4 exp(-C D delta^2 / (8 K^2 alpha^2)), delta = `excess` > 0, for every p >= 1

    Min & Vidal 2024, Theorem 3, eq. 44-49. The last line of its proof is false, and the statement
    holds all the same (docs/theory/errata.md). `subclass_accuracy_upper` has an exponent without
    1/K^2.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `excess`: delta, twice how far the attack goes beyond sqrt(2)/2; above 0.
    """
    mix = mixture(dim, positive, negative, spread)
    excess = number("excess", excess, above=0.0)
    tail = 4.0 * mix.decay(excess / (math.sqrt(8.0) * mix.total))
    return Bound("upper", tail, (math.sqrt(2.0) + excess) / 2.0)


TAIL_CONSTANT = 0.5
"""The C of Lemma 3 and of every bound built on it: exact for Gaussian noise."""


def tail_probability(threshold: float, dim: int, spread: float) -> float:
    """Return P(|<mu, eps>| > t) exactly, eps ~ N(0, alpha^2/D I) and mu a unit vector.

    It is erfc(t sqrt(D) / (alpha sqrt(2))), accurate relative to itself far into the tail.

    Arguments:

    - `threshold`: t, 0 or more.
    - `dim`: D, the number of coordinates of a point; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    """
    return math.erfc(_standard(threshold, dim, spread) / math.sqrt(2.0))


def tail_bound(threshold: float, dim: int, spread: float) -> float:
    """Return the bound 2 exp(-C D t^2 / alpha^2) on P(|<mu, eps>| > t), with C = 1/2.

    Min & Vidal 2024, Lemma 3, eq. 10, where C is "some constant". For Gaussians 1/2 is the largest
    that holds for all t, and then the factor 2 is not needed: Q(x) <= exp(-x^2/2)/2 for x >= 0
    gives exp(-C D t^2 / alpha^2). The bound says nothing where it is 1 or more.

    Arguments:

    - `threshold`: t, 0 or more.
    - `dim`: D, the number of coordinates of a point; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    """
    return 2.0 * math.exp(-TAIL_CONSTANT * _standard(threshold, dim, spread) ** 2)


def _standard(threshold: float, dim: int, spread: float) -> float:
    number("threshold", threshold, minimum=0.0)
    number("spread", spread, above=0.0)
    return threshold * math.sqrt(integer("dim", dim, minimum=1)) / spread


def average_clean_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    version: Literal["paper", "sharp"] = "paper",
) -> Bound:
    """Return a lower bound on the clean accuracy of F (`dim` D, K1, K2, `spread` alpha).

    paper: tail 4 exp(-C D / (4 alpha^2 K)), Min & Vidal 2024, Proposition 1
    sharp: tail exp(-C D / (alpha^2 K)), `average_robust_bound` at radius 0

    `average_accuracy` has the exact value.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `version`: which of the tails above is used, "paper" (the default) or "sharp".
    """
    mix = mixture(dim, positive, negative, spread)
    tails = {
        "paper": 4.0 * mix.decay(0.5 / math.sqrt(mix.total)),
        "sharp": mix.decay(1.0 / math.sqrt(mix.total)),
    }
    choice("version", version, tails)
    return Bound("lower", tails[version], 0.0)


def subclass_clean_bound(dim: int, positive: int, negative: int, spread: float) -> Bound:
    """Return a lower bound on the clean accuracy of F^(p), the same one for every p >= 1.

    tail 2 (K+1) exp(-C D / (alpha^2 K^2)), Min & Vidal 2024, Proposition 1

    The poster has K for K^2, which is false for p = 1 and uneven classes (docs/theory/errata.md).
    `subclass_accuracy_lower` knows p and is closer wherever this bound says anything.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    """
    mix = mixture(dim, positive, negative, spread)
    tail = 2.0 * (mix.total + 1) * mix.decay(1.0 / mix.total)
    return Bound("lower", tail, 0.0)
