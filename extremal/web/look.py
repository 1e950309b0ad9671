"""How the explorer's drawings look, by day and by night: plotly figures as plain dictionaries."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from extremal import _check

Figure = dict[str, Any]
POSITIVE, NEGATIVE, ACCENT = "#0072b2", "#d55e00", "#009e73"
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


THEMES = {
    "light": Theme("#1c1f23", "#5b636b", "#e3e6ea", "#ffffff", "#cfe3f1", "#f7dcc9"),
    "dark": Theme("#e8eaed", "#a3abb4", "#30363d", "#171b1f", "#123850", "#4f2a12"),
}


def theme(name: object) -> Theme:
    """The theme of that name."""
    _check.choice("theme", name, THEMES)
    return THEMES[str(name)]


def themed(figure: Figure, look: Theme) -> Figure:
    """A copy of a figure with the theme's ink and grid, on no paper of its own."""
    made = copy.deepcopy(figure)
    layout = made["layout"]
    layout |= {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": look.ink, "size": 13, "family": FONT},
        "hoverlabel": {"font": {"family": FONT}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": look.soft, "activecolor": look.ink},
    }
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


def power_note(p: float) -> dict[str, Any]:
    """The p of a drawing, in its upper left corner."""
    place = {"x": 0.02, "y": 0.98, "xref": "paper", "yref": "paper", "yanchor": "top"}
    return {**place, "text": f"<b>p = {p:g}</b>", "showarrow": False, "font": {"size": 15}}


def empty(words: str) -> Figure:
    """A figure with nothing but a sentence in it."""
    note = {"text": words, "showarrow": False, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    hidden = {"visible": False}
    return {"data": [], "layout": {"xaxis": dict(hidden), "yaxis": hidden, "annotations": [note]}}
