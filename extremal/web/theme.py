"""How the explorer's drawings look: plotly figures as plain dictionaries, in the colours of day.

The browser repaints a figure for the night and for its size of text (assets/answers.js): it swaps
each colour of `DAY` for that of `NIGHT` with the same name. So a switch of the theme asks the
server nothing, and a drawing is on the right paper while another is computed.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

Figure = dict[str, Any]
# The colour of class +.
POSITIVE_COLOUR = "#0072b2"
# The colour of class -.
NEGATIVE_COLOUR = "#d55e00"
# The colour of class averages, and of certified balls.
AVERAGE_COLOUR = "#009e73"
# Colours of the first p and of the second, which are no classes.
POWER_COLOURS = ("#8f62d0", "#a87900")
# Marks along the curves of the second p, so that colour alone does not tell it from the first.
SECOND_MARKS = {"symbol": "diamond-open", "size": 8, "maxdisplayed": 9, "line": {"width": 1.5}}
# Pixels of text that figures and their margins are made for; the browser scales both.
TEXT_PIXELS = 13
# Fonts that are there on every machine.
FONT_FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'
# Where nothing is painted, the page is seen.
NO_PAPER = "rgba(0,0,0,0)"


@dataclass(frozen=True)
class Theme:
    """Colours that are not those of the data."""

    ink: str
    soft: str
    grid: str
    paper: str
    positive: str  # regions where the network says +
    negative: str


# The colours that the server draws with.
DAY = Theme("#1c1f23", "#5b636b", "#e3e6ea", "#ffffff", "#cfe3f1", "#f7dcc9")
# The colours that the browser puts in their place by night.
NIGHT = Theme("#e8eaed", "#a3abb4", "#30363d", "#171b1f", "#123850", "#4f2a12")


def looks() -> dict[str, Any]:
    """What the browser needs to repaint a figure: both themes, and the usual size of text."""
    return {"light": asdict(DAY), "dark": asdict(NIGHT), "text": TEXT_PIXELS}


def themed(figure: Figure) -> Figure:
    """A copy of a figure with ink and grid of the day, on no paper of its own."""
    made = copy.deepcopy(figure)
    layout = made["layout"]
    layout |= {
        "autosize": True,
        "paper_bgcolor": NO_PAPER,
        "plot_bgcolor": NO_PAPER,
        "font": {"color": DAY.ink, "size": TEXT_PIXELS, "family": FONT_FAMILY},
        "hoverlabel": {"font": {"family": FONT_FAMILY}},
        "modebar": {"bgcolor": NO_PAPER, "color": DAY.soft, "activecolor": DAY.ink},
    }
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            axis |= {"gridcolor": DAY.grid, "linecolor": DAY.soft, "tickcolor": DAY.soft}
    for name in ("xaxis", "yaxis", "zaxis"):
        if name in layout.get("scene", {}):
            layout["scene"][name] |= {"gridcolor": DAY.grid, "color": DAY.soft}
    return made


def subscript(number: int) -> str:
    """A number in subscript digits."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def power_note(p: float, **place: Any) -> dict[str, Any]:
    """The p of a drawing, in its upper left corner or at a place of its own."""
    corner = {"x": 0.02, "y": 0.98, "xref": "paper", "yref": "paper", "xanchor": "left"}
    return {
        **corner,
        "yanchor": "top",
        "text": f"<b>p = {p:g}</b>",
        "showarrow": False,
        "font": {"size": TEXT_PIXELS + 2},
        **place,
    }


def empty_figure() -> Figure:
    """A figure with nothing in it."""
    return themed(
        {"data": [], "layout": {"xaxis": {"visible": False}, "yaxis": {"visible": False}}}
    )
