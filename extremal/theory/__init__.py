"""The papers' theorems as functions of their numbers, independent of the rest of the package.

Names follow the classifiers: `average_*` is about F (neurons at the class averages), `subclass_*`
about F^(p) (neurons at the subclass centres), both in Min & Vidal 2024, eq. 2 and 3; `averaged_*`
and `decoupled_*` are about networks with biases in Li et al. 2025. Parameters:
`dim` D, `positive` K1, `negative` K2, `spread` alpha. Each function says where its statement is
printed, and where it differs from what is true.
"""

from extremal.theory.accuracy_bounds import average_clean_bound, subclass_clean_bound
from extremal.theory.alignment_drift import (
    average_drift,
    average_drift_sign,
    center_drift,
    center_drift_floor,
    power_product,
)
from extremal.theory.averaging import averaged_radius, averaging_scale, decoupled_radius
from extremal.theory.bound import Bound
from extremal.theory.classifier_accuracy import average_accuracy, average_error
from extremal.theory.concentration import subclass_accuracy_lower, subclass_accuracy_upper
from extremal.theory.critical_radii import (
    OPTIMAL_RADIUS,
    average_radius,
    subclass_radius,
    unavoidable_error,
)
from extremal.theory.early_phase import (
    AlignmentError,
    SmallNorms,
    alignment_error,
    alignment_scale,
    slope_gap,
    small_norms,
)
from extremal.theory.onset import growth_rate, onset_time
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
from extremal.theory.robust import (
    average_attack_bound,
    average_robust_bound,
    subclass_attack_bound,
    subclass_robust_bound,
)
from extremal.theory.tails import TAIL_CONSTANT, tail_bound, tail_probability
from extremal.theory.vector_field import cosine_drift, field, projected_field

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
    "power_product",
    "projected_field",
    "ratio_lipschitz",
    "ratio_radius",
    "slope_gap",
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
