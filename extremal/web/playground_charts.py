"""The playground's curves: training over time, and robust accuracy against the radius."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from extremal.measure import cosines
from extremal.theory import OPTIMAL_RADIUS, average_radius
from extremal.web.playground_settings import PlaygroundSettings
from extremal.web.playground_training import (
    FIRST_TIME,
    RadiusBrackets,
    TrainedNetwork,
)
from extremal.web.theme import (
    AVERAGE_COLOUR,
    DAY,
    POWER_COLOURS,
    SECOND_MARKS,
    TEXT_PIXELS,
    Figure,
    themed,
)

# The last radius of the curve of robust accuracy.
LAST_RADIUS = 1.0
# The upper end of its axis: above all curves is room for the names of the marks.
TOP = 1.12


def draw_time(flows: Sequence[TrainedNetwork]) -> Figure:
    """Loss, cosines and lengths over log time, with the phases; one p, or two to compare.

    Cosines are medians over the neurons that dominate at the end: with the nearest class average,
    and with the nearest centre. What is drawn is told by the dashes of a curve, whose it is by its
    marks and its colour.
    """
    data: list[dict[str, Any]] = []
    for index, trained in enumerate(flows):
        data += _over_time(trained, index, several=len(flows) > 1)
    layout: dict[str, Any] = {
        "xaxis": {"type": "log", "title": _axis_title("flow time"), "anchor": "y3", "dtick": 1},
        "yaxis": {"domain": [0.7, 1.0], "type": "log", "title": _axis_title("loss")},
        "yaxis2": {"domain": [0.36, 0.66], "title": _axis_title("cosine"), "range": [-0.05, 1.06]},
        "yaxis3": {"domain": [0.0, 0.3], "type": "log", "title": _axis_title("‖w‖")},
        "margin": {"l": 76, "r": 10, "t": 24, "b": 54},
        "showlegend": False,
        "hovermode": "x unified",
        "uirevision": "time",
    }
    for name in ("yaxis", "yaxis3"):
        layout[name] |= {"exponentformat": "power", "dtick": 1 if name == "yaxis" else 2}
    layout["shapes"], layout["annotations"] = _phases(flows[0], several=len(flows) > 1)
    # The browser moves this one, which is the last, with the time control.
    end = float(flows[0].run.times[-1])
    layout["shapes"].append(_cursor(end))
    return themed({"data": data, "layout": layout})


def _over_time(trained: TrainedNetwork, index: int, *, several: bool) -> list[dict[str, Any]]:
    run, power = trained.run, f"p = {trained.setup.p:g}"
    times = [max(time, FIRST_TIME / 2.0) for time in run.times.tolist()]
    weights = run.snapshots["neurons"].double()[:, trained.follows.neurons]  # (frames, m, dim)
    lengths = torch.linalg.vector_norm(weights, dim=-1)

    def curve(name: str, values: Tensor, axis: str, **more: Any) -> dict[str, Any]:
        shown = [_digits(value) for value in values.tolist()]
        words = {"name": f"{power}: {name}" if several else name, "hovertemplate": "%{y:.3g}"}
        place = {"x": times, "y": shown, "yaxis": axis, "legendgroup": power}
        return {"type": "scatter", **place, **words, **_power_look(index, width=2, **more)}

    found = [curve("loss", run.values["loss"], "y")]
    for name, rows, dash in _references(trained):
        middle = torch.stack([cosines(frame, rows).amax(1).median() for frame in weights])
        tint = {"color": AVERAGE_COLOUR} if name == "average" and not several else {}
        found.append(curve(f"to {name}", middle, "y2", dash=dash, **tint))
    found.append(curve("longest w", lengths.amax(1), "y3"))
    found.append(curve("median w", lengths.median(1).values, "y3", dash="dot"))
    return found


def _power_look(index: int, **line: Any) -> dict[str, Any]:
    """Curves of the first p are plain, those of the second have marks, too."""
    colour = {"color": POWER_COLOURS[index], **line}
    if index == 0:
        return {"mode": "lines", "line": colour}
    return {"mode": "lines+markers", "line": colour, "marker": SECOND_MARKS}


def _references(trained: TrainedNetwork) -> list[tuple[str, Tensor, str]]:
    mixture = trained.mixture
    averages = torch.stack([mixture.average(1), mixture.average(-1)])
    return [("average", averages, "dash"), ("centre", mixture.centers, "solid")]


def _axis_title(words: str) -> dict[str, Any]:
    """The title of an axis, clear of the numbers along it."""
    return {"text": words, "standoff": 8}


def _phases(
    trained: TrainedNetwork, *, several: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Bands for the two phases of the (first) flow, and their names above; of several, whose."""
    phases, end = trained.run.info["phases"], float(trained.run.times[-1])
    turn, fit = float(phases["alignment ends"]), float(phases["fitting starts"])
    bands = (
        ("alignment", FIRST_TIME / 2.0, turn, AVERAGE_COLOUR),
        ("fitting", fit, end, DAY.soft),
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
        small = {"size": TEXT_PIXELS - 1}
        notes.append({**place, "text": words, "showarrow": False, "font": small})
    return shapes, notes


def _cursor(at: float) -> dict[str, Any]:
    ends = {"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "xref": "x"}
    return {"type": "line", **ends, "line": {"color": DAY.ink, "width": 1.5}}


def draw_curve(answers: Sequence[RadiusBrackets]) -> Figure:
    """Robust accuracy against the l2 radius, from attacks and from certificates, with the marks.

    Attacks are solid and certificates dashed; the second p has marks beside its colour.
    """
    data: list[dict[str, Any]] = []
    for index, answer in enumerate(answers):
        name = f"p = {answer.trained.setup.p:g}"
        upper, lower = robust_curve(answer.attacked), robust_curve(answer.certified)
        base = {"type": "scatter", "hovertemplate": "%{y:.2f} at %{x:.3f}", "legendgroup": name}
        look = _power_look(index, shape="hv", width=2.5)
        data.append({**base, **upper, "name": f"{name}: attack", **look})
        look = _power_look(index, shape="hv", width=1.5, dash="dash")
        fill = {"fill": "tonexty", "fillcolor": _faint(POWER_COLOURS[index])}
        data.append({**base, **lower, "name": f"{name}: certificate", **look, **fill})
    shapes, notes = _marks(answers[0].trained.setup)
    layout = {
        "xaxis": {"title": _axis_title("l2 radius"), "range": [0, LAST_RADIUS], "zeroline": False},
        "yaxis": {"title": _axis_title("robust accuracy"), "range": [0, TOP], "zeroline": False},
        "margin": {"l": 64, "r": 12, "t": 8, "b": 54},
        "showlegend": False,
        "shapes": shapes,
        "annotations": notes,
        "uirevision": "curve",
    }
    return themed({"data": data, "layout": layout})


def robust_curve(radii: Tensor) -> dict[str, list[float]]:
    """The share of points whose radius is above each radius, as a step function to LAST_RADIUS."""
    known = sorted(radius for radius in radii.tolist() if 0.0 < radius < LAST_RADIUS)
    total = len(radii)
    above = float((radii > 0).double().mean())
    left = int((radii >= LAST_RADIUS).sum())
    shares = [(len(known) - k - 1 + left) / total for k in range(len(known))]
    x = [0.0, *(round(radius, 5) for radius in known), LAST_RADIUS]
    return {"x": x, "y": [above, *shares, left / total]}


def _marks(setup: PlaygroundSettings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    average = average_radius(setup.positive, setup.negative)
    marks = [(average, f"1/√{setup.count}", "right"), (OPTIMAL_RADIUS, "√2/2", "left")]
    shapes = [
        {
            "type": "line",
            **{"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"},
            "line": {"color": DAY.soft, "dash": "dot", "width": 1.5},
        }
        for at, _, _ in marks
    ]
    notes = [
        {
            **{"x": at, "y": TOP, "yanchor": "top", "xanchor": anchor},
            "text": text,
            "showarrow": False,
        }
        for at, text, anchor in marks
    ]
    return shapes, notes


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _digits(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
