"""The papers' theorems as functions of their numbers, independent of the rest of the package.

It shares the checks of arguments with the other parts, and nothing else: their tests rely on it.

Names follow the classifiers: `average_*` is about F (neurons at the class averages), `subclass_*`
about F^(p) (neurons at the subclass centres), both in Min & Vidal 2024, eq. 2 and 3; `averaged_*`
and `decoupled_*` are about networks with biases in Li et al. 2025. Parameters:
`dim` D, `positive` K1, `negative` K2, `spread` alpha. Each function says where its statement is
printed, and where it differs from what is true.
"""

from extremal.theory.accuracy_bounds import (
    TAIL_CONSTANT,
    average_attack_bound,
    average_clean_bound,
    average_robust_bound,
    subclass_attack_bound,
    subclass_clean_bound,
    subclass_robust_bound,
    tail_bound,
    tail_probability,
)
from extremal.theory.alignment_drift import (
    average_drift,
    average_drift_sign,
    center_drift,
    center_drift_floor,
    cosine_drift,
    field,
    projected_field,
)
from extremal.theory.classifier_accuracy import (
    average_accuracy,
    average_error,
    subclass_accuracy_lower,
    subclass_accuracy_upper,
)
from extremal.theory.critical_radii import (
    OPTIMAL_RADIUS,
    average_radius,
    averaged_radius,
    averaging_scale,
    decoupled_radius,
    subclass_radius,
    unavoidable_error,
)
from extremal.theory.early_phase import (
    AlignmentError,
    SmallNorms,
    alignment_error,
    alignment_scale,
    growth_rate,
    onset_time,
    small_norms,
)
from extremal.theory.parameter_counts import (
    Order,
    clean_parameters,
    generalisation_parameters,
    grid_nodes_needed,
    memoriser_parameters,
    ratio_lipschitz,
    ratio_radius,
    training_parameters,
)
from extremal.theory.patch_theorem import (
    PatchAssumptions,
    PatchWindow,
    patch_assumptions,
    patch_window,
)
from extremal.theory.statements import Bound

__all__ = [
    "OPTIMAL_RADIUS",
    "TAIL_CONSTANT",
    "AlignmentError",
    "Bound",
    "Order",
    "PatchAssumptions",
    "PatchWindow",
    "SmallNorms",
    "alignment_error",
    "alignment_scale",
    "average_accuracy",
    "average_attack_bound",
    "average_clean_bound",
    "average_drift",
    "average_drift_sign",
    "average_error",
    "average_radius",
    "average_robust_bound",
    "averaged_radius",
    "averaging_scale",
    "center_drift",
    "center_drift_floor",
    "clean_parameters",
    "cosine_drift",
    "decoupled_radius",
    "field",
    "generalisation_parameters",
    "grid_nodes_needed",
    "growth_rate",
    "memoriser_parameters",
    "onset_time",
    "patch_assumptions",
    "patch_window",
    "projected_field",
    "ratio_lipschitz",
    "ratio_radius",
    "small_norms",
    "subclass_accuracy_lower",
    "subclass_accuracy_upper",
    "subclass_attack_bound",
    "subclass_clean_bound",
    "subclass_radius",
    "subclass_robust_bound",
    "tail_bound",
    "tail_probability",
    "training_parameters",
    "unavoidable_error",
]
