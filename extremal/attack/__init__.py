"""Attacks: where they may go, how they search, and the re-check of whatever they return."""

from extremal.attack.adapters.autoattack import auto_attack
from extremal.attack.adapters.foolbox import foolbox_attack
from extremal.attack.adapters.unit_box import as_module, class_labels
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    CLEAN_NAME,
    AttackResult,
    AttackViolation,
    check_points,
    verified,
    worst,
)
from extremal.attack.auto_pgd import apgd
from extremal.attack.ball import NORMS, Ball
from extremal.attack.ensemble import AccuracyCurve, Attack, accuracy_curve, minimal, run
from extremal.attack.fab import boundary
from extremal.attack.gradient_free_search import random_search
from extremal.attack.mixture_rays import (
    average_direction,
    center_directions,
    known_clusters,
    mixture_attack,
    ray_attack,
)
from extremal.attack.projected_gradient_descent import Guided, guided, pgd, published_pgd, radii_pgd
from extremal.attack.surrogate import surrogate_network
from extremal.attack.two_layer.frank_wolfe import linear_steps
from extremal.attack.two_layer.minimal_perturbation import shortest

__all__ = [
    "ATTACK_BATCH_POINTS",
    "CLEAN_NAME",
    "NORMS",
    "AccuracyCurve",
    "Attack",
    "AttackResult",
    "AttackViolation",
    "Ball",
    "Guided",
    "accuracy_curve",
    "apgd",
    "as_module",
    "auto_attack",
    "average_direction",
    "boundary",
    "center_directions",
    "check_points",
    "class_labels",
    "foolbox_attack",
    "guided",
    "known_clusters",
    "linear_steps",
    "minimal",
    "mixture_attack",
    "pgd",
    "published_pgd",
    "radii_pgd",
    "random_search",
    "ray_attack",
    "run",
    "shortest",
    "surrogate_network",
    "verified",
    "worst",
]
