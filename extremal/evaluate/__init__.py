"""Attack and certificate together: robust accuracy between two numbers, and whether to trust them.

The package's `evaluate` is the function, by the name of this part.
"""

from extremal.evaluate.bracket import evaluate
from extremal.evaluate.curve import Gap, RobustnessCurve
from extremal.evaluate.health import HealthWarning
from extremal.evaluate.robustness import BracketViolation, Robustness, check_bracket

__all__ = [
    "BracketViolation",
    "Gap",
    "HealthWarning",
    "Robustness",
    "RobustnessCurve",
    "check_bracket",
    "evaluate",
]
