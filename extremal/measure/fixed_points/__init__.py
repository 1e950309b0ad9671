"""Extremal directions: the fixed points of the alignment flow, and what they predict."""

from extremal.measure.fixed_points.direction_set import ExtremalDirections, extremal_directions

__all__ = ["ExtremalDirections", "extremal_directions"]
