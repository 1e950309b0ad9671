"""Extremal directions: the fixed points of the alignment flow, and what they predict."""

from extremal.measure.fixed_points.direction_set import (
    ExtremalDirections,
    UnconvergedWeightsWarning,
    extremal_directions,
)

__all__ = ["ExtremalDirections", "UnconvergedWeightsWarning", "extremal_directions"]
