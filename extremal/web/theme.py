"""How the explorer's drawings look, by day and by night: plotly figures as plain dictionaries."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from extremal import _check
from extremal.web.playground_settings import whole

Figure = dict[str, Any]
# The colour of class +.
POSITIVE_COLOUR = "#0072b2"
# The colour of class -.
NEGATIVE_COLOUR = "#d55e00"
# The colour of class averages, and of certified balls.
AVERAGE_COLOUR = "#009e73"
# Colours of the first p and of the second, which are no classes.
POWER_COLOURS = ("#8f62d0", "#a87900")
# Pixels of text where the page does not say.
USUAL_TEXT_PIXELS = 13
# Fonts that are there on every machine.
FONT_FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'


@dataclass(frozen=True)
class Theme:
    """Colours that are not those of the data."""

    ink: str
    soft: str
    grid: str
    paper: str
    positive: str  # regions where the network says +, and their darker tone far from the edge
    negative: str
    text: int = USUAL_TEXT_PIXELS  # pixels; margins are made for the usual size and grow with it


# The themes by day and by night.
NAMED_THEMES = {
    "light": Theme("#1c1f23", "#5b636b", "#e3e6ea", "#ffffff", "#cfe3f1", "#f7dcc9"),
    "dark": Theme("#e8eaed", "#a3abb4", "#30363d", "#171b1f", "#123850", "#4f2a12"),
}


def read_theme(asked: object) -> Theme:
    """The theme of a name, or of a mapping with a name and the size of the page's text."""
    name, size = asked, USUAL_TEXT_PIXELS
    if isinstance(asked, Mapping):
        name, size = asked.get("name"), asked.get("text", USUAL_TEXT_PIXELS)
    _check.choice("theme", name, NAMED_THEMES)
    return replace(NAMED_THEMES[str(name)], text=whole("text", size, 10, 30))


def themed(figure: Figure, theme: Theme) -> Figure:
    """A copy of a figure with the theme's ink and grid, on no paper of its own."""
    made = copy.deepcopy(figure)
    layout = made["layout"]
    layout |= {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": theme.ink, "size": theme.text, "family": FONT_FAMILY},
        "hoverlabel": {"font": {"family": FONT_FAMILY}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": theme.soft, "activecolor": theme.ink},
    }
    margin = layout.get("margin", {})
    layout["margin"] = {
        side: round(wide * theme.text / USUAL_TEXT_PIXELS) for side, wide in margin.items()
    }
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            axis |= {"gridcolor": theme.grid, "linecolor": theme.soft, "tickcolor": theme.soft}
    for name in ("xaxis", "yaxis", "zaxis"):
        if name in layout.get("scene", {}):
            layout["scene"][name] |= {"gridcolor": theme.grid, "color": theme.soft}
    return made


def subscript(number: int) -> str:
    """A number in subscript digits."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def power_note(p: float, theme: Theme) -> dict[str, Any]:
    """The p of a drawing, in its upper left corner."""
    place = {"x": 0.02, "y": 0.98, "xref": "paper", "yref": "paper", "yanchor": "top"}
    return {
        **place,
        "text": f"<b>p = {p:g}</b>",
        "showarrow": False,
        "font": {"size": theme.text + 2},
    }


def empty_figure(words: str) -> Figure:
    """A figure with nothing but a sentence in it."""
    note = {"text": words, "showarrow": False, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    hidden = {"visible": False}
    return {"data": [], "layout": {"xaxis": dict(hidden), "yaxis": hidden, "annotations": [note]}}
