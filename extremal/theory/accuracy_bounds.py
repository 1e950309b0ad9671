"""Proposition 1: both classifiers are accurate on clean samples.

Each function has the statement as printed and the versions beside it:

- "paper": Min & Vidal 2024, Proposition 1.
- "poster": the poster of that paper, whose constants differ.
- "proof": what the proof has reached before its last simplification.
- "sharp": the best of this form, proven here.

The constant C is 1/2 throughout (`TAIL_CONSTANT`).

Theorems 1 and 3: where each classifier breaks, from both sides.

F holds below 1/sqrt(K) and breaks above it; F^(p), p >= 2, holds below sqrt(2)/2 and breaks above
it. Versions: "paper" as stated, "proof" what the printed proof supports (repaired where it slips),
"sharp" the best of this form, proven here. The constant C is 1/2 (`TAIL_CONSTANT`).

Lemma 3: how far Gaussian noise reaches along one direction.
"""

from __future__ import annotations

import math
from typing import Literal

from extremal.theory._check import choice, integer, number
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

    with d_0 = (sqrt(K1) mu_+ - sqrt(K2) mu_-)/sqrt(K). Min & Vidal 2024, Theorem 1, eq. 20-25. The
    poster prints the step as +(1 + rho)/sqrt(K) d_0 for all samples: no step that ignores the label
    breaks both classes (F < 0 at mu_k + v and F > 0 at mu_l + v contradict each other).

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
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
    version: Literal["paper", "proof", "sharp"] = "paper",
) -> Bound:
    """Return a lower bound on the accuracy of F against all attacks of size (1 - slack)/sqrt(K).

    paper: tail 2 exp(-C D rho^2 / (K alpha^2)), rho = `slack` in [0, 1]
    proof: tail 4 exp(-C D rho^2 / (4 K alpha^2)), where the printed proof ends (eq. 43)
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
    - `version`: which of the tails above is used, "paper" (the default), "proof" or "sharp".
    """
    mix = mixture(dim, positive, negative, spread)
    slack = number("slack", slack, minimum=0.0, maximum=1.0)
    margin = slack / math.sqrt(mix.total)
    tails = {
        "paper": 2.0 * mix.decay(margin),
        "proof": 4.0 * mix.decay(0.5 * margin),
        "sharp": mix.decay(margin),
    }
    choice("version", version, tails)
    return Bound("lower", tails[version], (1.0 - slack) / math.sqrt(mix.total))


def subclass_robust_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    slack: float,
    p: float,
    version: Literal["paper", "poster", "proof"] = "paper",
) -> Bound:
    """Return a lower bound on the accuracy of F^(p) against attacks of size (sqrt(2) - slack)/2.

    paper:  tail 2 (K+1) exp(-C D delta^2 / (2 K^2 alpha^2)), delta = `slack` in [0, sqrt 2], p >= 2
    poster: the same for p > 2, slack > 0 (both posters, Min & Vidal 2024 and 2025)
    proof:  tail 2 n exp(-C D delta^2 / (2 n^2 alpha^2)), n = max(K1, K2) + 1 <= K

    Min & Vidal 2024, Theorem 1, eq. 26-38. The proof puts P(E_3^c) <= 2 exp(-C D / (4 alpha^2)),
    which is not so: (1 - sqrt(2)/2)^2 = 0.086 < 1/4. E_3 isn't needed: relu(z) >= z holds whatever
    the sign, so a broken sample always has <-mu_k, eps> + ||relu(eps)||_p >= delta / sqrt(2) over
    the opposing centres. Its indices "K_1+1 <= l <= K_2" run to K. `subclass_accuracy_lower` has
    an exponent without 1/K^2, and holds for p >= 1 at any radius.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `p`: the power of the pReLU, 2 or more; the bound is the same for each.
    - `version`: which of the tails above is used, "paper" (the default), "poster" or "proof".
    """
    mix = mixture(dim, positive, negative, spread)
    slack = number("slack", slack, minimum=0.0, maximum=math.sqrt(2.0))
    number("p", p, minimum=2.0)
    terms = max(positive, negative) + 1
    stated = 2.0 * (mix.total + 1) * mix.decay(slack / (math.sqrt(2.0) * mix.total))
    tails = {
        "paper": stated,
        "poster": stated,
        "proof": 2.0 * terms * mix.decay(slack / (math.sqrt(2.0) * terms)),
    }
    choice("version", version, tails)
    if version == "poster":
        number("p", p, above=2.0)
        number("slack", slack, above=0.0)
    return Bound("lower", tails[version], (math.sqrt(2.0) - slack) / 2.0)


def subclass_attack_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    excess: float,
    version: Literal["paper", "proof"] = "paper",
) -> Bound:
    """Return an upper bound on the accuracy of F^(p) under the best attack of (sqrt(2)+excess)/2.

    paper: 4 exp(-C D delta^2 / (8 K^2 alpha^2)), delta = `excess` > 0, for every p >= 1
    proof: 2 n exp(-C D m^2 / (n^2 alpha^2)), n = max(K1, K2) + 1 <= K,
           m = min(delta / sqrt(2), 1/2 + delta / sqrt(8))

    Min & Vidal 2024, Theorem 3, eq. 44-49. The last line of the proof needs a union bound's factor
    K (and a minus sign): P(sum_l |<mu_l, eps>| > t) can exceed P(|<mu_1, eps>| > t/K). The attack
    (mu_opposing - mu_k)/sqrt(2) fails only if sum_l |<mu_l, eps>| > m over the n centres of the
    class and the target, hence "proof". The statement as printed holds all the same where it says
    anything, i.e. for E = C D delta^2 / (8 K^2 alpha^2) > log 4. With s = alpha/sqrt(D),
    delta = 4 K s sqrt(E), and concentration (the sum's means are at most K s / sqrt(2 pi), its
    Lipschitz constants sqrt(K)) bounds the two cases of eq. 47 by exp(-3 K E) and, for
    delta > sqrt(2) only, exp(-0.57 K E): together below 4 exp(-E) for K >= 2.
    `subclass_accuracy_upper` has an exponent without 1/K^2.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `version`: which of the bounds above is used, "paper" (the default) or "proof".
    """
    mix = mixture(dim, positive, negative, spread)
    excess = number("excess", excess, above=0.0)
    terms = max(positive, negative) + 1
    margin = min(excess / math.sqrt(2.0), 0.5 + excess / math.sqrt(8.0))
    tails = {
        "paper": 4.0 * mix.decay(excess / (math.sqrt(8.0) * mix.total)),
        "proof": 2.0 * terms * mix.decay(margin / terms),
    }
    choice("version", version, tails)
    return Bound("upper", tails[version], (math.sqrt(2.0) + excess) / 2.0)


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
    version: Literal["paper", "poster", "proof", "sharp"] = "paper",
) -> Bound:
    """Return a lower bound on the clean accuracy of F (`dim` D, K1, K2, `spread` alpha).

    paper:  tail 4 exp(-C D / (4 alpha^2 K))
    poster: tail 2 exp(-C D / (4 alpha^2 K))
    proof:  tail 2 exp(-C D / (4 alpha^2 K1)) + 2 exp(-C D / (4 alpha^2 K2)), eq. 15, whose last
            "<=" is a ">="
    sharp:  tail exp(-C D / (alpha^2 K)), `average_robust_bound` at radius 0; all others follow
            from it, so the poster's 2 is right as well

    `average_accuracy` has the exact value.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `version`: which of the tails above is used, "paper" (the default), "poster", "proof" or
      "sharp".
    """
    mix = mixture(dim, positive, negative, spread)
    tails = {
        "paper": 4.0 * mix.decay(0.5 / math.sqrt(mix.total)),
        "poster": 2.0 * mix.decay(0.5 / math.sqrt(mix.total)),
        "proof": sum(2.0 * mix.decay(0.5 / math.sqrt(k)) for k in (positive, negative)),
        "sharp": mix.decay(1.0 / math.sqrt(mix.total)),
    }
    choice("version", version, tails)
    return Bound("lower", tails[version], 0.0)


def subclass_clean_bound(
    dim: int,
    positive: int,
    negative: int,
    spread: float,
    version: Literal["paper", "poster", "proof"] = "paper",
) -> Bound:
    """Return a lower bound on the clean accuracy of F^(p), the same one for every p >= 1.

    paper:  tail 2 (K+1) exp(-C D / (alpha^2 K^2))
    poster: tail 2 (K+1) exp(-C D / (alpha^2 K)): K for K^2
    proof:  tail 2 n exp(-C D / (alpha^2 n^2)), n = max(K1, K2) + 1 <= K. A sample of centre k is
            misread only if sum_l relu(<mu_l, eps>) - <mu_k, eps> >= 1 over the opposing l, so a
            class's own other centres and the event E_1 of eq. 17 play no part

    The poster's version is false for p = 1 and uneven classes: with K1 = 1, K2 = 199 and
    alpha/sqrt(D) = 0.0126 half of the positive samples are lost, an error of 0.0025 against a
    tail of 6e-5, because sum_l relu(<mu_l, eps>) has mean K2 alpha / sqrt(2 pi D). It is true for
    p >= 2 wherever it says anything: an error needs ||relu(eps)||_2 over the opposing centres to
    reach 1 + <mu_k, eps>, so a chi-squared variable with at most K degrees of freedom to reach
    D/(2 alpha^2), and Chernoff's bound for that is below the poster's for K >= 3; K = 2 is `F`.
    `subclass_accuracy_lower` knows p and is closer wherever the paper's version says anything.

    Arguments:

    - `dim`: D, the number of coordinates of a point; at least `positive` + `negative`.
    - `positive`: K1, the number of subclasses with label +1; 1 or more.
    - `negative`: K2, the number of subclasses with label -1; 1 or more.
    - `spread`: alpha, the noise's standard deviation times sqrt(dim); above 0.
    - `version`: which of the tails above is used, "paper" (the default), "poster" or "proof".
    """
    mix = mixture(dim, positive, negative, spread)
    terms = max(positive, negative) + 1
    tails = {
        "paper": 2.0 * (mix.total + 1) * mix.decay(1.0 / mix.total),
        "poster": 2.0 * (mix.total + 1) * mix.decay(1.0 / math.sqrt(mix.total)),
        "proof": 2.0 * terms * mix.decay(1.0 / terms),
    }
    choice("version", version, tails)
    return Bound("lower", tails[version], 0.0)
