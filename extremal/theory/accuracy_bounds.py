"""Proposition 1: both classifiers are accurate on clean samples.

Each function has the statement as printed and the versions beside it:

- "paper": Min & Vidal 2024, Proposition 1.
- "poster": the poster of that paper, whose constants differ.
- "proof": what the proof has reached before its last simplification.
- "sharp": the best of this form, proven here.

The constant C is 1/2 throughout (`TAIL_CONSTANT`).
"""

from __future__ import annotations

import math
from typing import Literal

from extremal.theory._check import choice
from extremal.theory.bound import Bound
from extremal.theory.statements import mixture


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
