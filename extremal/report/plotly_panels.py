"""The same panels for plotly, as plain dictionaries: {"data": [...], "layout": {...}}.

`plotly.graph_objects.Figure(figure)` takes each of them; the page writes them as JSON. Text is
escaped, because plotly reads some HTML tags in it. Colours of paper, ink and grid are left to the
page, which knows whether it is light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from extremal.report.matplotlib_scenes import points_of
from extremal.report.panel_style import (
    CLOUD_COLOURS,
    CURVE_COLOURS,
    DIVERGING_COLOURS,
    GREY_COLOUR,
    INK_COLOUR,
    MOST_MARKED_POINTS,
    Panel,
    curve_colours,
    fences,
    has_band,
    marks_of,
    missing_reason,
    mosaic,
    numbers,
    panels_of,
    picture_rows,
    x_values,
)


def cloud_traces(cloud: Mapping[str, Any], dim: int) -> list[dict[str, Any]]:
    """The plotly traces of one cloud: points, rays with dots at their ends, or arrows."""
    points = points_of(cloud, dim)
    colour = CLOUD_COLOURS[cloud["colour"]]
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


Figure = dict[str, Any]
# A legend that stands below a panel.
LEGEND_BELOW = {
    "orientation": "h",
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "itemsizing": "constant",
}
# How plotly writes the style of a line.
PLOTLY_DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot"}
# Symbols of curves in their order, as like matplotlib's as plotly has them.
PLOTLY_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")


def plotly_figures(summary: Mapping[str, Any]) -> list[Figure]:
    """One plotly figure for each panel of a summary."""
    panels = panels_of(summary)
    return [
        _figure(panel, shades) for panel, shades in zip(panels, curve_colours(panels), strict=True)
    ]


def _figure(panel: Panel, shades: Sequence[str]) -> Figure:
    kind = panel["kind"]
    if kind == "line":
        return _line(panel, shades)
    kinds = {"bars": _bars, "heat": _heat, "scene": _scene, "pictures": _pictures}
    return {**kinds, "missing": _missing}[kind](panel)


def _line(panel: Panel, shades: Sequence[str]) -> Figure:
    data: list[dict[str, Any]] = []
    joined = panel.get("joined", True)
    for index, (series, colour) in enumerate(zip(panel["series"], shades, strict=True)):
        if joined and has_band(series):
            data += _band(series, colour)
        curve = _curve(series, colour, PLOTLY_SYMBOLS[index % len(PLOTLY_SYMBOLS)])
        data.append(curve if joined else curve | _points(series, colour))
    layout = _axes(panel)
    if not joined:
        layout["scattermode"] = "group"
    for letter in panel["log"]:
        layout[f"{letter}axis"] |= {"type": "log", **_decades(panel, letter)}
    marks = marks_of(panel)
    layout["shapes"] = [_mark_line(mark) for mark in marks]
    layout["annotations"] = _mark_labels(marks, logarithmic="x" in panel["log"])
    layout["margin"]["t"] = 14 + 15 * len(marks)
    return {"data": data, "layout": layout}


def _decades(panel: Panel, letter: str) -> dict[str, Any]:
    """Ticks at 0.02, 0.05, 0.1 ... on an axis of few decades, and at powers of ten on others."""
    lists = [x_values(series[letter]) for series in panel["series"]]
    values = [v for values in lists for v in values if isinstance(v, float) and v > 0]
    if not values or max(values) / min(values) > 300:
        return {"dtick": 1, "exponentformat": "power"}
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ticks = [float(f"{d}e{k}") for k in range(low, high + 1) for d in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _curve(series: Mapping[str, Any], colour: str, symbol: str) -> dict[str, Any]:
    count = len(series["x"])
    return {
        "type": "scatter",
        "name": escape(series["label"]),
        "legendgroup": series["label"],
        "x": _places(series["x"]),
        "y": _json(series["y"]),
        "mode": "lines+markers" if count <= MOST_MARKED_POINTS else "lines",
        "line": {"color": colour, "dash": PLOTLY_DASHES[series["style"]], "width": 2},
        "marker": {"symbol": symbol, "size": 6},
        "showlegend": bool(series["label"]),
    }


def _points(series: Mapping[str, Any], colour: str) -> dict[str, Any]:
    """What makes a curve points side by side, with bars from minimum to maximum."""
    look: dict[str, Any] = {"mode": "markers", "offsetgroup": series["label"]}
    if series["style"] != "solid":
        look["marker"] = {"symbol": "circle-open", "size": 8, "color": colour}
    if not has_band(series):
        return look
    lists = (numbers(series[name]) for name in ("low", "y", "high"))
    rows = list(zip(*lists, strict=True))
    below, above = ([b - a for a, b, _ in rows], [c - b for _, b, c in rows])
    ends = {"array": _json(above), "arrayminus": _json(below), "color": colour}
    return {**look, "error_y": {"type": "data", "symmetric": False, **ends}}


def _band(series: Mapping[str, Any], colour: str) -> list[dict[str, Any]]:
    """Two invisible curves with the room between them filled."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    edge = {
        "type": "scatter",
        "x": _places(series["x"]),
        "mode": "lines",
        "line": {"width": 0, "color": colour},
        "legendgroup": series["label"],
        "showlegend": False,
        "hoverinfo": "skip",
    }
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"}
    return [{**edge, "y": _json(series["low"])}, {**edge, **fill, "y": _json(series["high"])}]


def _mark_line(mark: Mapping[str, Any]) -> dict[str, Any]:
    ends = {"x0": mark["at"], "x1": mark["at"], "y0": 0, "y1": 1}
    look = {"color": GREY_COLOUR, "dash": "dash", "width": 1.5}
    return {"type": "line", "xref": "x", "yref": "paper", **ends, "line": look}


def _mark_labels(marks: Sequence[Mapping[str, Any]], logarithmic: bool) -> list[dict[str, Any]]:
    """Labels above the frame, each in a row of its own, where nothing else is drawn."""
    return [
        {
            "x": math.log10(mark["at"]) if logarithmic else mark["at"],
            "xref": "x",
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "yshift": 15 * row,
            "text": escape(mark["label"]),
            "showarrow": False,
            "font": {"size": 12},
        }
        for row, mark in enumerate(marks)
    ]


def _bars(panel: Panel) -> Figure:
    heights = _json(panel["y"])
    x_values = list(range(1, len(heights) + 1))
    bar = {"type": "bar", "x": x_values, "y": heights, "marker": {"color": CURVE_COLOURS[0]}}
    layout = _axes(panel)
    layout["bargap"] = 0.2 if len(heights) <= 40 else 0.0
    return {"data": [{**bar, "showlegend": False}], "layout": layout}


def _heat(panel: Panel) -> Figure:
    low, high = float(panel["low"]), float(panel["high"])
    reach = max(abs(low), abs(high))
    steps = len(DIVERGING_COLOURS) - 1
    z = [_json(row) for row in panel["z"]]
    count = len(z[0]) if z else 0
    heat = {
        "type": "heatmap",
        "z": z,
        "x": list(range(1, count + 1)),
        "y": list(range(1, len(z) + 1)),
        "zmin": -reach,
        "zmax": reach,
        "colorscale": [[k / steps, colour] for k, colour in enumerate(DIVERGING_COLOURS)],
        "colorbar": {"thickness": 12, "tickvals": sorted({low, 0.0, high}), "outlinewidth": 0},
    }
    layout = _axes(panel)
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}
    layout["xaxis"] |= {"showgrid": False}
    if panel["columns"] is not None:
        names = [escape(str(name)) for name in panel["columns"]]
        layout["xaxis"] |= {"tickvals": heat["x"], "ticktext": names}
        heat |= {"customdata": [names] * len(z)}
        heat |= {"hovertemplate": "%{customdata}, row %{y}: %{z:.3f}<extra></extra>"}
    if panel.get("rows") is not None:
        labels = [escape(str(name)) for name in panel["rows"]]
        layout["yaxis"] |= {"tickvals": heat["y"], "ticktext": labels}
    pen = {"color": INK_COLOUR, "width": 2}
    layout["shapes"] = [
        {"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "line": pen}
        for (x0, y0), (x1, y1) in fences(panel)
    ]
    return {"data": [heat], "layout": layout}


def _scene(panel: Panel) -> Figure:
    dim = int(panel["dim"])
    data = [trace for cloud in panel["clouds"] for trace in cloud_traces(cloud, dim)]
    layout = _axes({"xlabel": "", "ylabel": ""})
    layout["showlegend"] = True
    if dim == 2:
        layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
        return {"data": data, "layout": layout}
    axis = {"title": {"text": ""}, "nticks": 4, "showbackground": False}
    layout["scene"] = {f"{name}axis": dict(axis) for name in "xyz"}
    camera = {"eye": {"x": 1.5, "y": 1.25, "z": 0.8}, "center": {"x": 0, "y": 0, "z": -0.15}}
    layout["scene"] |= {"aspectmode": "data", "camera": camera}
    layout["margin"] = {"l": 0, "r": 0, "t": 0, "b": 40}
    del layout["xaxis"], layout["yaxis"]
    return {"data": data, "layout": layout}


def _pictures(panel: Panel) -> Figure:
    image = {"type": "image", "z": mosaic(panel).tolist(), "hoverinfo": "skip"}
    layout = _axes({"xlabel": "", "ylabel": ""})
    middles, names = picture_rows(panel)
    layout["xaxis"] |= {"showticklabels": False, "ticks": "", "showgrid": False}
    layout["yaxis"] |= {"tickvals": middles, "ticktext": [escape(name) for name in names]}
    layout["yaxis"] |= {"ticks": "", "showgrid": False, "scaleanchor": "x"}
    return {"data": [image], "layout": layout}


def _missing(panel: Panel) -> Figure:
    layout = _axes({"xlabel": "", "ylabel": ""})
    for axis in ("xaxis", "yaxis"):
        layout[axis] |= {"visible": False}
    note = {"text": escape(missing_reason(panel)), "showarrow": False, "font": {"size": 14}}
    layout["annotations"] = [{**note, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}]
    return {"data": [], "layout": layout}


def _axes(panel: Panel) -> dict[str, Any]:
    """The layout that every panel has, with axis titles."""
    axis = {"automargin": True, "zeroline": False, "ticks": "outside"}
    return {
        "xaxis": {**axis, "title": {"text": escape(panel["xlabel"])}},
        "yaxis": {**axis, "title": {"text": escape(panel["ylabel"])}},
        "margin": {"l": 50, "r": 12, "t": 14, "b": 44},
        "legend": dict(LEGEND_BELOW),
        "hovermode": "closest",
    }


def _places(values: Sequence[Any]) -> list[Any]:
    found = x_values(values)
    return [escape(place) if isinstance(place, str) else _null(place) for place in found]


def _json(values: Any) -> list[float | None]:
    """Numbers for JSON: null where there is none."""
    return [_null(value) for value in numbers(values)]


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value
