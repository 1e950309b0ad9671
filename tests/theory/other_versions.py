"""Statements that the posters print, and those that the proofs reach before their last step.

Tails of bounds, as docs/theory/errata.md has them; `theory` itself has the papers' statements.
"""

from __future__ import annotations

import math


def decay(margin: float, dim: int, spread: float) -> float:
    """exp(-C D margin^2 / alpha^2) with C = 1/2."""
    return math.exp(-0.5 * dim * (margin / spread) ** 2)


def average_clean(dim: int, positive: int, negative: int, spread: float) -> dict[str, float]:
    """Proposition 1 for F."""
    total = positive + negative
    return {
        "poster": 2 * decay(0.5 / math.sqrt(total), dim, spread),
        "proof": sum(2 * decay(0.5 / math.sqrt(k), dim, spread) for k in (positive, negative)),
    }


def subclass_clean(dim: int, positive: int, negative: int, spread: float) -> dict[str, float]:
    """Proposition 1 for F^(p)."""
    total, terms = positive + negative, max(positive, negative) + 1
    return {
        "poster": 2 * (total + 1) * decay(1 / math.sqrt(total), dim, spread),
        "proof": 2 * terms * decay(1 / terms, dim, spread),
    }


def average_robust(dim: int, positive: int, negative: int, spread: float, slack: float) -> float:
    """Theorem 3 for F, where the printed proof ends, eq. 43."""
    return 4 * decay(0.5 * slack / math.sqrt(positive + negative), dim, spread)


def subclass_robust(dim: int, positive: int, negative: int, spread: float, slack: float) -> float:
    """Theorem 1 for F^(p), with the proof repaired."""
    terms = max(positive, negative) + 1
    return 2 * terms * decay(slack / (math.sqrt(2) * terms), dim, spread)


def subclass_attack(dim: int, positive: int, negative: int, spread: float, excess: float) -> float:
    """Theorem 3 for F^(p), with the proof repaired."""
    terms = max(positive, negative) + 1
    margin = min(excess / math.sqrt(2), 0.5 + excess / math.sqrt(8))
    return 2 * terms * decay(margin / terms, dim, spread)
