"""What a network has learned: directions, contributions, margins, distances."""

from extremal.measure.accuracies import accuracy, accuracy_by_group, correct
from extremal.measure.decomposition import (
    Averaging,
    Decomposition,
    Decoupling,
    averaged_share,
    averaging,
    decompose,
    decoupled_share,
    decoupling,
)
from extremal.measure.directions import ExtremalDirections, extremal_directions
from extremal.measure.distances import Distance, Supremum, distance, supremum
from extremal.measure.inversion import Inversion, invert
from extremal.measure.margins import KKT, kkt_residual, normalized_margin
from extremal.measure.neurons import (
    Following,
    balancedness,
    contributions,
    cosines,
    following,
    stable_rank,
)
from extremal.measure.patches import PatchFeatures, patch_features
from extremal.measure.separation import Separation, separation

__all__ = [
    "KKT",
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
