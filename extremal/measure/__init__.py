"""What a network has learned: directions, contributions, margins, distances."""

from extremal.measure.accuracies import accuracy, accuracy_by_group
from extremal.measure.distances import Distance, distance
from extremal.measure.neurons import (
    Following,
    balancedness,
    contributions,
    cosines,
    following,
    stable_rank,
)

__all__ = [
    "Distance",
    "Following",
    "accuracy",
    "accuracy_by_group",
    "balancedness",
    "contributions",
    "cosines",
    "distance",
    "following",
    "stable_rank",
]
