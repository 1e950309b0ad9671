"""How the explorer's drawings look, by day and by night: plotly figures as plain dictionaries."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from extremal import _check
from extremal.web.playground_settings import whole

Figure = dict[str, Any]
POSITIVE, NEGATIVE, ACCENT = "#0072b2", "#d55e00", "#009e73"  # the classes, their averages
POWERS = ("#8f62d0", "#a87900")  # the first p and the second, which are no classes
TEXT = 13  # pixels, where the page does not say
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'


@dataclass(frozen=True)
class Theme:
    """Colours that are not those of the data."""

    ink: str
    soft: str
    grid: str
    paper: str
    positive: str  # regions where the network says +, and their darker tone far from the edge
    negative: str
    text: int = TEXT  # pixels; margins are made for TEXT and grow with it


THEMES = {
    "light": Theme("#1c1f23", "#5b636b", "#e3e6ea", "#ffffff", "#cfe3f1", "#f7dcc9"),
    "dark": Theme("#e8eaed", "#a3abb4", "#30363d", "#171b1f", "#123850", "#4f2a12"),
}


def theme(asked: object) -> Theme:
    """The theme of a name, or of a mapping with a name and the size of the page's text."""
    name, size = asked, TEXT
    if isinstance(asked, Mapping):
        name, size = asked.get("name"), asked.get("text", TEXT)
    _check.choice("theme", name, THEMES)
    return replace(THEMES[str(name)], text=whole("text", size, 10, 30))


def themed(figure: Figure, look: Theme) -> Figure:
    """A copy of a figure with the theme's ink and grid, on no paper of its own."""
    made = copy.deepcopy(figure)
    layout = made["layout"]
    layout |= {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": look.ink, "size": look.text, "family": FONT},
        "hoverlabel": {"font": {"family": FONT}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": look.soft, "activecolor": look.ink},
    }
    margin = layout.get("margin", {})
    layout["margin"] = {side: round(wide * look.text / TEXT) for side, wide in margin.items()}
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            axis |= {"gridcolor": look.grid, "linecolor": look.soft, "tickcolor": look.soft}
    for name in ("xaxis", "yaxis", "zaxis"):
        if name in layout.get("scene", {}):
            layout["scene"][name] |= {"gridcolor": look.grid, "color": look.soft}
    return made


def subscript(number: int) -> str:
    """A number in subscript digits."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def power_note(p: float, look: Theme) -> dict[str, Any]:
    """The p of a drawing, in its upper left corner."""
    place = {"x": 0.02, "y": 0.98, "xref": "paper", "yref": "paper", "yanchor": "top"}
    return {
        **place,
        "text": f"<b>p = {p:g}</b>",
        "showarrow": False,
        "font": {"size": look.text + 2},
    }


def empty(words: str) -> Figure:
    """A figure with nothing but a sentence in it."""
    note = {"text": words, "showarrow": False, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    hidden = {"visible": False}
    return {"data": [], "layout": {"xaxis": dict(hidden), "yaxis": hidden, "annotations": [note]}}
