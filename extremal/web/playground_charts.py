"""The playground's flat drawings: training over time, robust accuracy, the plane of two centres."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from extremal.measure import cosines
from extremal.theory import OPTIMAL_RADIUS, average_radius
from extremal.web.playground_settings import PLANE_REACH, PlaygroundSettings
from extremal.web.playground_training import (
    FIRST_TIME,
    DecisionRegions,
    RadiusBrackets,
    TrainedNetwork,
)
from extremal.web.theme import (
    AVERAGE_COLOUR,
    POWER_COLOURS,
    Figure,
    Theme,
    power_note,
    subscript,
    themed,
)

# The last radius of the curve of robust accuracy.
LAST_RADIUS = 1.0


def draw_time(flows: Sequence[TrainedNetwork], theme: Theme) -> Figure:
    """Loss, cosines and lengths over log time, with the phases; one p, or two to compare.

    Cosines are medians over the neurons that dominate at the end: with the nearest class average,
    and with the nearest centre.
    """
    data: list[dict[str, Any]] = []
    for index, trained in enumerate(flows):
        data += _over_time(trained, index, several=len(flows) > 1)
    layout: dict[str, Any] = {
        "xaxis": {"type": "log", "title": _axis_title("flow time"), "anchor": "y3", "dtick": 1},
        "yaxis": {"domain": [0.7, 1.0], "type": "log", "title": _axis_title("loss")},
        "yaxis2": {"domain": [0.36, 0.66], "title": _axis_title("cosine"), "range": [-0.05, 1.06]},
        "yaxis3": {"domain": [0.0, 0.3], "type": "log", "title": _axis_title("‖w‖")},
        "margin": {"l": 76, "r": 10, "t": 24, "b": 100},
        "legend": {"orientation": "h", "y": -0.16, "yanchor": "top"},
        "hovermode": "x unified",
        "uirevision": "time",
    }
    for name in ("yaxis", "yaxis3"):
        layout[name] |= {"exponentformat": "power", "dtick": 1 if name == "yaxis" else 2}
    layout["shapes"], layout["annotations"] = _phases(flows[0], theme, several=len(flows) > 1)
    # The browser moves this one, which is the last, with the time control.
    end = float(flows[0].run.times[-1])
    layout["shapes"].append(_cursor(end, theme))
    return themed({"data": data, "layout": layout}, theme)


def _over_time(trained: TrainedNetwork, index: int, *, several: bool) -> list[dict[str, Any]]:
    run, colour = trained.run, POWER_COLOURS[index]
    times = [max(time, FIRST_TIME / 2.0) for time in run.times.tolist()]
    weights = run.snapshots["neurons"].double()[:, trained.follows.neurons]  # (frames, m, dim)
    lengths = torch.linalg.vector_norm(weights, dim=-1)
    power = f"p = {trained.setup.p:g}"

    def curve(name: str, values: Tensor, axis: str, **more: Any) -> dict[str, Any]:
        line = {"color": more.pop("color", colour), "width": 2, **more.pop("line", {})}
        shown = [_digits(value) for value in values.tolist()]
        words = {"name": name, "hovertemplate": "%{y:.3g}", "showlegend": index == 0}
        base = {"type": "scatter", "mode": "lines", "x": times, "y": shown, "yaxis": axis}
        return {**base, **words, "line": line, **more}

    found = [curve(power if several else "loss", run.values["loss"], "y", showlegend=True)]
    for name, rows, dash in _references(trained):
        middle = torch.stack([cosines(frame, rows).amax(1).median() for frame in weights])
        tint = AVERAGE_COLOUR if name == "average" and not several else colour
        words = f"cosine, nearest {name}"
        found.append(curve(words, middle, "y2", color=tint, line={"dash": dash}))
    found.append(curve("longest ‖w‖", lengths.amax(1), "y3"))
    found.append(curve("median ‖w‖", lengths.median(1).values, "y3", line={"dash": "dot"}))
    return found


def _references(trained: TrainedNetwork) -> list[tuple[str, Tensor, str]]:
    mixture = trained.mixture
    averages = torch.stack([mixture.average(1), mixture.average(-1)])
    return [("average", averages, "dash"), ("centre", mixture.centers, "solid")]


def _axis_title(words: str) -> dict[str, Any]:
    """The title of an axis, clear of the numbers along it."""
    return {"text": words, "standoff": 8}


def _phases(
    trained: TrainedNetwork, theme: Theme, *, several: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Bands for the two phases of the (first) flow, and their names above; of several, whose."""
    phases, end = trained.run.info["phases"], float(trained.run.times[-1])
    turn, fit = float(phases["alignment ends"]), float(phases["fitting starts"])
    bands = (
        ("alignment", FIRST_TIME / 2.0, turn, AVERAGE_COLOUR),
        ("fitting", fit, end, theme.soft),
    )
    shapes, notes = [], []
    for name, left, right, colour in bands:
        if right <= left:
            continue
        ends = {"x0": left, "x1": right, "y0": 0, "y1": 1, "yref": "paper", "xref": "x"}
        fill = {"fillcolor": colour, "opacity": 0.12, "line": {"width": 0}, "layer": "below"}
        shapes.append({"type": "rect", **ends, **fill})
        middle = (math.log10(left) + math.log10(right)) / 2.0
        place = {"x": middle, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom"}
        words = f"{name}, p = {trained.setup.p:g}" if several else name
        small = {"size": theme.text - 1}
        notes.append({**place, "text": words, "showarrow": False, "font": small})
    return shapes, notes


def _cursor(at: float, theme: Theme) -> dict[str, Any]:
    ends = {"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "xref": "x"}
    return {"type": "line", **ends, "line": {"color": theme.ink, "width": 1.5}}


def draw_curve(answers: Sequence[RadiusBrackets], theme: Theme) -> Figure:
    """Robust accuracy against the l2 radius, from attacks and from certificates, with the marks."""
    data: list[dict[str, Any]] = []
    for index, answer in enumerate(answers):
        name = f"p = {answer.trained.setup.p:g}"
        colour = POWER_COLOURS[index]
        upper, lower = robust_curve(answer.attacked), robust_curve(answer.certified)
        steps = {"shape": "hv", "color": colour, "width": 2.5}
        base = {"type": "scatter", "mode": "lines", "hovertemplate": "%{y:.2f} at %{x:.3f}"}
        data.append({**base, **upper, "name": f"attack, {name}", "line": steps})
        dashed = {**steps, "dash": "dash", "width": 1.5}
        fill = {"fill": "tonexty", "fillcolor": _faint(colour)}
        data.append({**base, **lower, "name": f"certificate, {name}", "line": dashed, **fill})
    shapes, notes = _marks(answers[0].trained.setup, theme)
    layout = {
        "xaxis": {"title": _axis_title("l2 radius"), "range": [0, LAST_RADIUS], "zeroline": False},
        "yaxis": {"title": _axis_title("robust accuracy"), "range": [0, 1.02], "zeroline": False},
        "margin": {"l": 64, "r": 12, "t": 30, "b": 100},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top"},
        "shapes": shapes,
        "annotations": notes,
        "uirevision": "curve",
    }
    return themed({"data": data, "layout": layout}, theme)


def robust_curve(radii: Tensor) -> dict[str, list[float]]:
    """The share of points whose radius is above each radius, as a step function to LAST_RADIUS."""
    known = sorted(radius for radius in radii.tolist() if 0.0 < radius < LAST_RADIUS)
    total = len(radii)
    above = float((radii > 0).double().mean())
    left = int((radii >= LAST_RADIUS).sum())
    shares = [(len(known) - k - 1 + left) / total for k in range(len(known))]
    x = [0.0, *(round(radius, 5) for radius in known), LAST_RADIUS]
    return {"x": x, "y": [above, *shares, left / total]}


def _marks(
    setup: PlaygroundSettings, theme: Theme
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    average = average_radius(setup.positive, setup.negative)
    marks = [(average, f"1/√{setup.count}", "right"), (OPTIMAL_RADIUS, "√2/2", "left")]
    shapes = [
        {
            "type": "line",
            **{"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"},
            "line": {"color": theme.soft, "dash": "dot", "width": 1.5},
        }
        for at, _, _ in marks
    ]
    notes = [
        {
            **{"x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": anchor},
            "text": text,
            "showarrow": False,
        }
        for at, text, anchor in marks
    ]
    return shapes, notes


def draw_plane(found: DecisionRegions, p: float, theme: Theme) -> Figure:
    """Where the network says + and where -, with the point, its attack and its certified disc."""
    axis = [round(value, 4) for value in found.axis.tolist()]
    probe = found.probe
    signs = found.values.sign().tolist()
    shade = [[0.0, theme.negative], [0.5, theme.paper], [1.0, theme.positive]]
    heat = {
        "type": "heatmap",
        **{"x": axis, "y": axis, "z": signs, "zmin": -1, "zmax": 1, "showscale": False},
        "colorscale": shade,
        "customdata": [[_digits(value) for value in row] for row in found.values.tolist()],
        "hovertemplate": "(%{x:.2f}, %{y:.2f}): f = %{customdata:.3g}<extra></extra>",
    }
    edge = {
        "type": "contour",
        **{"x": axis, "y": axis, "z": found.values.tolist(), "showscale": False},
        "contours": {"start": 0, "end": 0, "size": 1, "coloring": "none"},
        "line": {"color": theme.ink, "width": 1.5},
        "hoverinfo": "skip",
    }
    names = [f"μ{subscript(probe.first)}", f"μ{subscript(probe.second)}"]
    marks = {
        "type": "scatter",
        "mode": "markers+text",
        **{"x": [1.0, 0.0], "y": [0.0, 1.0], "text": names, "textposition": "top right"},
        "marker": {"symbol": "diamond", "size": 9, "color": theme.ink},
        "hoverinfo": "skip",
    }
    data = [heat, edge, marks, *_struck(found, theme)]
    square = {
        "range": [-PLANE_REACH, PLANE_REACH],
        "zeroline": True,
        "zerolinecolor": theme.grid,
        "nticks": 7,
    }
    layout = {
        "xaxis": {**square, "title": _axis_title(f"along {names[0]}"), "constrain": "domain"},
        "yaxis": {**square, "title": _axis_title(f"along {names[1]}"), "scaleanchor": "x"},
        "margin": {"l": 64, "r": 8, "t": 8, "b": 54},
        "showlegend": False,
        "shapes": _discs(found, theme),
        "annotations": [power_note(p, theme)],
        "clickmode": "event",
        "dragmode": False,
        "uirevision": "plane",
    }
    return themed({"data": data, "layout": layout}, theme)


def _struck(found: DecisionRegions, theme: Theme) -> list[dict[str, Any]]:
    """The point, and where the attack lands as seen in the plane."""
    at = (found.probe.across, found.probe.up)
    dot = {"color": theme.ink, "size": 11, "symbol": "circle", "line": {"color": theme.paper}}
    point = {"type": "scatter", "mode": "markers", "x": [at[0]], "y": [at[1]], "marker": dot}
    traces = [{**point, "hovertemplate": "the point<extra></extra>"}]
    if found.landed is not None:
        end = found.landed
        way = {"x": [at[0], end[0]], "y": [at[1], end[1]], "mode": "lines+markers"}
        marker = {"symbol": ["circle", "x"], "size": [1, 11], "color": theme.ink}
        look_of_way = {"line": {"color": theme.ink, "width": 2}, "marker": marker}
        words = {"hovertemplate": "the smallest attack, seen in the plane<extra></extra>"}
        traces.append({"type": "scatter", **way, **look_of_way, **words})
    return traces


def _discs(found: DecisionRegions, theme: Theme) -> list[dict[str, Any]]:
    """The certified ball cut by the plane, filled, and the attack's radius, dotted."""
    discs = []
    for radius, line in (
        (found.certified, {"color": AVERAGE_COLOUR, "width": 2}),
        (found.radius, {"color": theme.ink, "width": 1.5, "dash": "dot"}),
    ):
        if 0.0 < radius < math.inf:
            x, y = found.probe.across, found.probe.up
            ends = {"x0": x - radius, "x1": x + radius, "y0": y - radius, "y1": y + radius}
            discs.append({"type": "circle", **ends, "line": line})
    if discs and found.certified > 0.0:
        discs[0] |= {"fillcolor": AVERAGE_COLOUR, "opacity": 0.35}
    return discs


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _digits(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
