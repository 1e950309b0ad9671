"""The distance between classifiers, up to scale: found by search, by the paper's way, bounded."""

from extremal.measure.classifier_distance.distance_between import (
    Distance,
    Supremum,
    distance,
    supremum,
)

__all__ = ["Distance", "Supremum", "distance", "supremum"]
