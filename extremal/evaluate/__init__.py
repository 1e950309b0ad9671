"""Attack and certificate together: robust accuracy between two numbers, and whether to trust them.

The package's `evaluate` is the function, by the name of this part.
"""

from extremal.evaluate.evaluation import evaluate
from extremal.evaluate.health_checks import HealthWarning
from extremal.evaluate.robustness import BracketViolation, Robustness, check_bracket
from extremal.evaluate.robustness_curve import BracketGap, RobustnessCurve

__all__ = [
    "BracketGap",
    "BracketViolation",
    "HealthWarning",
    "Robustness",
    "RobustnessCurve",
    "check_bracket",
    "evaluate",
]
