"""Theorems 1 and 3: where each classifier breaks, from both sides.

F holds below 1/sqrt(K) and breaks above it; F^(p), p >= 2, holds below sqrt(2)/2 and breaks above
it. Versions: "paper" as stated, "proof" what the printed proof supports (repaired where it slips),
"sharp" the best of this form, proven here. The constant C is 1/2 (`TAIL_CONSTANT`).
"""

from __future__ import annotations

import math
from typing import Literal

from extremal.theory._check import choice, number
from extremal.theory.bound import Bound
from extremal.theory.statements import mixture


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
