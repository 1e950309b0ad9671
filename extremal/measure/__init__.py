"""What a network has learned: directions, contributions, margins, distances."""

from extremal.measure.accuracies import accuracy, accuracy_by_group, correct
from extremal.measure.class_separation import Separation, separation
from extremal.measure.classifier_distance import Distance, Supremum, distance, supremum
from extremal.measure.fixed_points import (
    ExtremalDirections,
    UnconvergedWeightsWarning,
    extremal_directions,
)
from extremal.measure.max_margin_kkt import KKT, kkt_residual, normalized_margin
from extremal.measure.nearest_neighbours import SEPARATION_NORMS
from extremal.measure.neuron_alignment import (
    Following,
    PatchFeatures,
    balancedness,
    contributions,
    cosines,
    following,
    patch_features,
    stable_rank,
)
from extremal.measure.representation_inversion import Inversion, invert
from extremal.measure.weight_decomposition import (
    Averaging,
    Decomposition,
    Decoupling,
    averaged_share,
    averaging,
    decompose,
    decoupled_share,
    decoupling,
)

__all__ = [
    "KKT",
    "SEPARATION_NORMS",
    "Averaging",
    "Decomposition",
    "Decoupling",
    "Distance",
    "ExtremalDirections",
    "Following",
    "Inversion",
    "PatchFeatures",
    "Separation",
    "Supremum",
    "UnconvergedWeightsWarning",
    "accuracy",
    "accuracy_by_group",
    "averaged_share",
    "averaging",
    "balancedness",
    "contributions",
    "correct",
    "cosines",
    "decompose",
    "decoupled_share",
    "decoupling",
    "distance",
    "extremal_directions",
    "following",
    "invert",
    "kkt_residual",
    "normalized_margin",
    "patch_features",
    "separation",
    "stable_rank",
    "supremum",
]
