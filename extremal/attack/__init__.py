"""Attacks: where they may go, how they search, and the re-check of whatever they return."""

from extremal.attack.ball import Ball
from extremal.attack.curve import AccuracyCurve, Attack, accuracy_curve, everything, published
from extremal.attack.directions import along, average_direction, center_directions, structured
from extremal.attack.pgd import pgd, published_pgd
from extremal.attack.recheck import AttackViolation, verified
from extremal.attack.result import AttackResult, worst
from extremal.attack.run import run

__all__ = [
    "AccuracyCurve",
    "Attack",
    "AttackResult",
    "AttackViolation",
    "Ball",
    "accuracy_curve",
    "along",
    "average_direction",
    "center_directions",
    "everything",
    "pgd",
    "published",
    "published_pgd",
    "run",
    "structured",
    "verified",
    "worst",
]
