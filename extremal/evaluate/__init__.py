"""Attack and certificate together: robust accuracy between two numbers, and whether to trust them.

The package's `evaluate` is the function, by the name of this part.
"""

from extremal.evaluate.evaluation import bracket, evaluate
from extremal.evaluate.health_checks import HealthWarning, output_warnings
from extremal.evaluate.robustness import (
    BracketViolation,
    Robustness,
    box_to_json,
    check_bracket,
    finite_or_none,
)
from extremal.evaluate.robustness_curve import (
    BracketGap,
    RobustnessCurve,
    default_radii,
    share_with_interval,
    wilson_interval,
)

__all__ = [
    "BracketGap",
    "BracketViolation",
    "HealthWarning",
    "Robustness",
    "RobustnessCurve",
    "box_to_json",
    "bracket",
    "check_bracket",
    "default_radii",
    "evaluate",
    "finite_or_none",
    "output_warnings",
    "share_with_interval",
    "wilson_interval",
]
