"""Clouds of a scene as plotly traces, in the plane and in space."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from extremal.report.matplotlib_scenes import points_of
from extremal.report.panel_style import CLOUDS


def cloud_traces(cloud: Mapping[str, Any], dim: int) -> list[dict[str, Any]]:
    """The plotly traces of one cloud: points, rays with dots at their ends, or arrows."""
    points = points_of(cloud, dim)
    colour = CLOUDS[cloud["colour"]]
    small, wide = (2.5, 7) if dim == 3 else (5, 4)
    trace: dict[str, Any] = {
        "type": "scatter3d" if dim == 3 else "scatter",
        "name": escape(cloud["label"]),
        "legendgroup": cloud["label"],
        "hovertemplate": "(%{x:.3f}, %{y:.3f}" + (", %{z:.3f})" if dim == 3 else ")"),
    }
    dots = {**trace, "mode": "markers", "marker": {"color": colour, "size": small, "opacity": 0.8}}
    if cloud["style"] == "points":
        return [{**dots, **_coordinates(points)}]
    if cloud["style"] == "arrows":
        ends = points + points_of(cloud, dim, "heads")
        lines = {**trace, "mode": "lines", "line": {"color": colour, "width": 1.5}}
        tips = {**dots, "showlegend": False, "marker": _tips(colour, points, ends, dim)}
        return [{**lines, **_segments(points, ends)}, {**tips, **_coordinates(ends)}]
    reference = cloud["colour"] == "accent"
    look = {
        "color": colour,
        "width": wide if reference else 1.5,
        "dash": "dash" if reference else "solid",
    }
    lines = {**trace, "mode": "lines", "line": look, "opacity": 1.0 if reference else 0.6}
    rays = {**lines, **_segments(np.zeros_like(points), points)}
    tips = {**dots, "showlegend": False, **_coordinates(points)}
    if reference:  # in space the neurons may hide a dashed ray, but not its end
        tips["marker"] = {"color": colour, "size": 2 * small, "symbol": "diamond"}
    return [rays, tips]


def _tips(colour: str, starts: Any, ends: Any, dim: int) -> dict[str, Any]:
    """Triangles turned along the arrows in the plane, dots in space."""
    if dim == 3:
        return {"color": colour, "size": 3}
    step = ends - starts
    angles = np.degrees(np.arctan2(step[:, 0], step[:, 1])).tolist()  # clockwise from up
    return {"color": colour, "size": 8, "symbol": "arrow", "angle": angles}


def _coordinates(points: Any) -> dict[str, list[float | None]]:
    return {name: _json(points[:, k]) for k, name in enumerate("xyz"[: points.shape[1]])}


def _segments(starts: Any, ends: Any) -> dict[str, list[float | None]]:
    """Coordinates of separate segments: start, end and a gap for each."""
    gap = [None] * len(starts)
    return {
        name: [
            value
            for step in zip(_json(starts[:, k]), _json(ends[:, k]), gap, strict=True)
            for value in step
        ]
        for k, name in enumerate("xyz"[: starts.shape[1]])
    }


def _json(values: Any) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
