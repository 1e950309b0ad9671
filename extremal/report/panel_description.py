"""A panel in words, for readers who do not see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from extremal.report.panel_style import Panel, marks_of, missing_reason, numbers, x_values
from extremal.report.verdict_table import number

# Curves that are described one by one; more are only counted.
MOST_NAMED_CURVES = 12


def describe(panel: Panel) -> str:
    """What a panel shows: its kind, its axes, and where its values begin, end or lie."""
    kinds: dict[str, Callable[[Panel], str]] = {
        "line": _line,
        "bars": _bars,
        "heat": _heat,
        "scene": _scene,
        "pictures": _pictures,
        "missing": missing_reason,
    }
    return kinds[panel["kind"]](panel)


def _line(panel: Panel) -> str:
    if not panel.get("joined", True):
        return _points(panel)
    series = panel["series"]
    text = f"Line chart of {panel['ylabel']} against {panel['xlabel']}, {_count(series, 'curve')}."
    for curve in series[:MOST_NAMED_CURVES]:
        x = [place if isinstance(place, str) else number(place) for place in x_values(curve["x"])]
        y = numbers(curve["y"])
        drawn = [k for k, value in enumerate(y) if not math.isnan(value)]
        if drawn:
            a, b = drawn[0], drawn[-1]
            ends = f"from {number(y[a])} at {x[a]} to {number(y[b])} at {x[b]}"
            text += f" {curve['label']}: {ends}."
    for mark in marks_of(panel):
        text += f" Mark at {number(mark['at'])}: {mark['label']}."
    return text


def _points(panel: Panel) -> str:
    text = f"Points of {panel['ylabel']} by name, {_count(panel['series'], 'kind')}."
    for one in panel["series"][:MOST_NAMED_CURVES]:
        values = zip(one["x"], one["y"], strict=True)
        text += f" {one['label']}: {', '.join(f'{number(y)} for {x}' for x, y in values)}."
    return text


def _bars(panel: Panel) -> str:
    text = f"Bar chart of {panel['ylabel']} by {panel['xlabel']}, {_count(panel['y'], 'bar')}"
    return f"{text}, {_range(numbers(panel['y']))}."


def _heat(panel: Panel) -> str:
    rows = panel["z"]
    values = [value for row in rows for value in numbers(row)]
    text = f"Colour map, {_count(rows, 'row')} ({panel['ylabel']})"
    text = f"{text} by {_count(rows[0], 'column')} ({panel['xlabel']}), {_range(values)}"
    fenced = sum(map(sum, panel.get("fenced") or []))
    return f"{text}; cells fenced off: {fenced}." if panel.get("fenced") else f"{text}."


def _scene(panel: Panel) -> str:
    parts = [
        f"{cloud['label']} ({len(cloud['points'])} {cloud['style']})" for cloud in panel["clouds"]
    ]
    return f"Drawing in {panel['dim']} dimensions: {', '.join(parts)}."


def _pictures(panel: Panel) -> str:
    names = ", ".join(str(row["label"]) for row in panel["rows"])
    height, width, _ = panel["shape"]
    images = _count(panel["rows"][0]["images"], "image")
    return f"Rows of {images} of {height} by {width} pixels: {names}."


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}" + ("" if len(things) == 1 else "s")


def _range(values: Sequence[float]) -> str:
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
        return "no finite value"
    return f"values from {number(min(finite))} to {number(max(finite))}"
