"""Drawings in the plane and in space in matplotlib: points, rays from the origin, arrows.

Rays in the accent colour are reference directions (such as the centres) and are dashed; all other
rays are many (such as the neurons) and are thin, with a small dot at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import NDArray

from extremal.report.panel_style import CLOUD_COLOURS, GREY_COLOUR, INK_COLOUR, Panel, literal_text

# The view is from the octant where all coordinates are positive.
VIEW_ELEVATION_DEGREES = 24.0
VIEW_AZIMUTH_DEGREES = 38.0
# More points than this are drawn smaller and lighter.
DENSE_CLOUD_POINTS = 150


def draw_scene(axes: Axes, panel: Panel) -> int:
    """Draw the clouds of a panel with the same scale along every axis."""
    dim = int(panel["dim"])
    clouds = [(cloud, points_of(cloud, dim)) for cloud in panel["clouds"]]
    for cloud, points in clouds:
        DRAW_BY_STYLE[cloud["style"]](axes, cloud, points, CLOUD_COLOURS[cloud["colour"]])
    low, high = limits([_reach(cloud, points) for cloud, points in clouds], dim)
    if isinstance(axes, Axes3D):
        set_space(axes, low, high)
    else:
        _plane(axes, low, high)
    return 0


def points_of(cloud: Mapping[str, Any], dim: int, key: str = "points") -> NDArray[np.float64]:
    """A cloud's points (or heads) as an (n, dim) array, n = 0 included."""
    return np.array(cloud[key], dtype=float).reshape(-1, dim)


def limits(clouds: list[NDArray[np.float64]], dim: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The corners of the smallest cube, with a margin, that holds all points and the origin."""
    points = np.concatenate([np.zeros((1, dim)), *clouds])
    points = points[np.isfinite(points).all(axis=1)]
    low, high = points.min(axis=0), points.max(axis=0)
    half = 0.54 * max(float((high - low).max()), 1e-9)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _reach(cloud: Mapping[str, Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    if cloud["style"] != "arrows":
        return points
    return np.concatenate([points, points + points_of(cloud, points.shape[1], "heads")])


def _points(axes: Any, cloud: Mapping[str, Any], points: NDArray[Any], colour: str) -> None:
    many = len(points) > DENSE_CLOUD_POINTS
    axes.scatter(
        *points.T,
        s=7 if many else 14,
        color=colour,
        alpha=0.6 if many else 0.85,
        linewidths=0,
        label=literal_text(cloud["label"]),
        zorder=2,
    )


def _rays(axes: Any, cloud: Mapping[str, Any], points: NDArray[Any], colour: str) -> None:
    segments = np.stack([np.zeros_like(points), points], axis=1)
    reference = cloud["colour"] == "accent"
    look: dict[str, Any] = {
        "colors": colour,
        "linewidths": 1.7 if reference else 0.5,
        "linestyles": "--" if reference else "-",
        "alpha": 1.0 if reference else 0.45,
        "zorder": 4 if reference else 3,
    }
    if isinstance(axes, Axes3D):
        axes.add_collection3d(Line3DCollection(segments, **look))
    else:
        axes.add_collection(LineCollection(list(segments), **look))
    if not reference:
        axes.scatter(*points.T, s=6, color=colour, alpha=0.9, linewidths=0, zorder=3)
    dash = {"linestyle": "--", "linewidth": 1.7} if reference else {"marker": "o", "linewidth": 0.8}
    _entry(axes, cloud, colour, **dash)


def _arrows(axes: Any, cloud: Mapping[str, Any], points: NDArray[Any], colour: str) -> None:
    heads = points_of(cloud, points.shape[1], "heads")
    if isinstance(axes, Axes3D):
        axes.quiver(*points.T, *heads.T, color=colour, linewidth=0.8)
    else:
        look = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "width": 0.005, "zorder": 3}
        axes.quiver(*points.T, *heads.T, color=colour, **look)
    _entry(axes, cloud, colour, marker=">", linewidth=1.0)


def _entry(axes: Any, cloud: Mapping[str, Any], colour: str, **look: Any) -> None:
    """A line that draws nothing and gives the legend its picture of the cloud."""
    nowhere: list[list[float]] = [[]] * (3 if isinstance(axes, Axes3D) else 2)
    axes.plot(*nowhere, color=colour, markersize=3.0, label=literal_text(cloud["label"]), **look)


# What draws a cloud of each style.
DRAW_BY_STYLE = {"points": _points, "rays": _rays, "arrows": _arrows}


def _plane(axes: Axes, low: NDArray[Any], high: NDArray[Any]) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.axhline(0.0, color=GREY_COLOUR, linewidth=0.7, zorder=1)
    axes.axvline(0.0, color=GREY_COLOUR, linewidth=0.7, zorder=1)


def set_space(axes: Axes3D, low: NDArray[Any], high: NDArray[Any]) -> None:
    """Limits, the point of view, quiet panes and the origin of axes in space."""
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect((1, 1, 1), zoom=1.18)
    axes.view_init(elev=VIEW_ELEVATION_DEGREES, azim=VIEW_AZIMUTH_DEGREES)
    for axis, prune in ((axes.xaxis, "upper"), (axes.yaxis, "upper"), (axes.zaxis, None)):
        axis.set_pane_color((0.98, 0.98, 0.98, 1.0))
        axis.line.set_color(GREY_COLOUR)
        axis.set_major_locator(MaxNLocator(nbins=4, prune=prune))
        axis.set_tick_params(labelsize=7, pad=-2, labelcolor=INK_COLOUR)
    axes.scatter(0.0, 0.0, 0.0, s=12, color=INK_COLOUR, zorder=5)
