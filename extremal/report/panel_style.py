"""How every drawing looks: colours, type sizes, letters, and the text that goes into them.

The first colours are those of Okabe and Ito without yellow and black, which readers with any of the
common colour deficiencies tell apart, and which hold on a white page and on a dark one; panels with
more curves have some others besides. All text is plain: a dollar sign is a dollar sign, because the
HTML page sets no mathematics.
"""

from __future__ import annotations

import base64
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex

Panel = Mapping[str, Any]

# The colour of text, axes and marks.
INK_COLOUR = "#222222"
# The colour of what stays behind, such as reference lines.
GREY_COLOUR = "#7a7a7a"
# The colour of grid lines and frames.
GRID_COLOUR = "#e3e3e3"
# Colours of curves in their order: those of Okabe and Ito, and grey.
CURVE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", GREY_COLOUR)
# Colours of curves for panels with more of them.
EXTRA_CURVE_COLOURS = ("#7b3fc4", "#8c564b", "#9a9a00", "#d6246e", "#ef8a80", "#1f4e9e", "#4caf50")
# Markers of curves in their order.
CURVE_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Colours of the clouds of a scene, by what a cloud stands for.
CLOUD_COLOURS = {
    "positive": "#0072b2",
    "negative": "#d55e00",
    "neutral": GREY_COLOUR,
    "accent": "#009e73",
}
# Colours from below zero, vermilion, through white to above zero, blue.
DIVERGING_COLOURS = ("#8c2d04", "#d55e00", "#f0a868", "#f7f7f7", "#86bfe0", "#0072b2", "#08406b")
# How matplotlib writes the style of a line.
LINE_DASHES = {"solid": "-", "dashed": "--", "dotted": ":"}
# Points of a curve that have markers; with more, markers would hide it.
MOST_MARKED_POINTS = 25

# Settings of matplotlib for every figure.
MATPLOTLIB_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK_COLOUR,
    "axes.labelcolor": INK_COLOUR,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.8,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": INK_COLOUR,
    "ytick.color": INK_COLOUR,
    "text.color": INK_COLOUR,
    "legend.fontsize": 8.0,
    "legend.frameon": True,
    "legend.framealpha": 0.9,
    "legend.edgecolor": GRID_COLOUR,
    "legend.fancybox": False,
    "legend.handlelength": 2.4,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.constrained_layout.w_pad": 0.07,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.wspace": 0.03,
    "figure.constrained_layout.hspace": 0.04,
    "savefig.bbox": None,
    "savefig.pad_inches": 0.05,
    "pdf.fonttype": 42,
}


def letter(index: int) -> str:
    """The letter of a panel: a ... z, then aa, ab, ..."""
    first, last = divmod(index, 26)
    return (letter(first - 1) if first else "") + chr(ord("a") + last)


def literal_text(text: object) -> str:
    """Text that matplotlib sets as it stands, dollar signs included."""
    return str(text).replace("$", r"\$")


def wrapped(text: object, inches: float, points: float) -> str:
    """Plain text broken into lines that fit a width, at about 0.56 em a character."""
    width = max(12, int(inches * 72 / (0.56 * points)))
    return literal_text(textwrap.fill(str(text), width))


def numbers(values: Iterable[Any] | None) -> list[float]:
    """A list of floats with NaN where a value is null or infinite, so that nothing is drawn there.

    No list at all is an empty one.
    """
    if values is None:
        return []
    floats = (math.nan if value is None else float(value) for value in values)
    return [value if math.isfinite(value) else math.nan for value in floats]


def x_values(values: Sequence[Any]) -> list[float] | list[str]:
    """Values of x: numbers, or names if one of them is no number."""
    if all(value is None or isinstance(value, int | float) for value in values):
        return numbers(values)
    return [str(value) for value in values]


def panels_of(summary: Mapping[str, Any]) -> list[Panel]:
    """The panels of a summary, each with something to draw or of kind "missing"; never none."""
    nothing = {"kind": "missing", "title": "", "reason": "this experiment draws nothing"}
    return [_drawable(panel) for panel in summary["panels"]] or [nothing]


def _drawable(panel: Panel) -> Panel:
    content = {"bars": "y", "heat": "z"}.get(panel.get("kind", ""))
    if content is None or (panel[content] and panel[content][0] != []):
        return panel
    return {"kind": "missing", "title": panel["title"], "reason": "its array is empty"}


def fences(panel: Panel) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Segments between cells of a heat map that are fenced off and those that are not.

    Cell (i, j) reaches from (j + 0.5, i + 0.5) to (j + 1.5, i + 1.5), as (x, y).
    """
    fenced = panel.get("fenced")
    if not fenced:
        return []
    height, width = len(fenced), len(fenced[0])

    def inside(i: int, j: int) -> bool:
        return 0 <= i < height and 0 <= j < width and bool(fenced[i][j])

    lines = []
    for i in range(height + 1):
        for j in range(width + 1):
            corner = (j + 0.5, i + 0.5)
            if j < width and inside(i - 1, j) != inside(i, j):
                lines.append((corner, (j + 1.5, i + 0.5)))
            if i < height and inside(i, j - 1) != inside(i, j):
                lines.append((corner, (j + 0.5, i + 1.5)))
    return lines


def mosaic(panel: Panel) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The images of a "pictures" panel as one (height, width, 3) array, white between them."""
    height, width, channels = panel["shape"]
    rows = [
        [np.frombuffer(base64.b64decode(image), np.uint8) for image in row["images"]]
        for row in panel["rows"]
    ]
    columns = max(map(len, rows))
    whole = np.full((len(rows) * (height + 1) - 1, columns * (width + 1) - 1, 3), 255, np.uint8)
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            top, left = i * (height + 1), j * (width + 1)
            whole[top : top + height, left : left + width] = image.reshape(height, width, channels)
    return whole


def picture_rows(panel: Panel) -> tuple[list[float], list[str]]:
    """Where the middle of each row of a `mosaic` lies, and what the row is called."""
    height = panel["shape"][0]
    middles = [i * (height + 1) + (height - 1) / 2 for i in range(len(panel["rows"]))]
    return middles, [str(row["label"]) for row in panel["rows"]]


def marks_of(panel: Panel) -> list[Mapping[str, Any]]:
    """The marks of a line panel that have a place on its axis."""
    positive = "x" in panel["log"]
    marks = [mark for mark in panel["marks"] if mark["at"] is not None]
    return [mark for mark in marks if mark["at"] > 0 or not positive]


def has_band(series: Mapping[str, Any]) -> bool:
    """Whether a curve is a mean over several trials, with a band from minimum to maximum."""
    return series["n"] > 1 and series["low"] is not None and series["high"] is not None


def headings(panels: Sequence[Panel]) -> list[str]:
    """The panels' titles, with letters where there are several."""
    if len(panels) == 1:
        return [str(panels[0]["title"])]
    return [f"({letter(k)}) {panel['title']}".rstrip() for k, panel in enumerate(panels)]


def curve_colours(panels: Sequence[Panel]) -> list[list[str]]:
    """One colour a curve, for each panel; empty for panels without curves.

    Curves of one thing have one colour in all panels while the colours suffice, and differ by
    their style: "attack, p = 3" and "certificate, p = 3" are both of p = 3. Many values of one
    quantity, and more things than there are colours, get shades from dark to light in their order.
    """
    keys = [_things(panel.get("series", ())) for panel in panels]
    known = list(dict.fromkeys(key for panel in keys for key in panel))
    return [_panel_colours(own, known) for own in keys]


def _things(series: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each curve is of: its label after the last comma, if style tells the others apart.

    Else after the first comma, since a thing's own name may hold some.
    """
    labels = [str(curve["label"]) for curve in series]
    for names in (
        [label.rpartition(", ")[2] for label in labels],
        [label.partition(", ")[2] or label for label in labels],
    ):
        looks = {(name, curve["style"]) for name, curve in zip(names, series, strict=True)}
        if len(looks) == len(series):
            return names
    return labels


def _panel_colours(own: Sequence[str], known: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(own))
    palette = (
        CURVE_COLOURS
        if len(distinct) <= len(CURVE_COLOURS)
        else CURVE_COLOURS + EXTRA_CURVE_COLOURS
    )
    if len(distinct) > len(palette) or (palette != CURVE_COLOURS and _ordered(distinct)):
        shades = matplotlib.colormaps["viridis"]
        last = len(distinct) - 1
        return [to_hex(shades(0.9 * distinct.index(key) / last)) for key in own]
    order = known if len(known) <= len(palette) else distinct
    return [palette[order.index(key)] for key in own]


def _ordered(things: Sequence[str]) -> bool:
    """Whether all are values of one quantity: "p = 1", "p = 1.5", ..."""
    return len({thing.rpartition("= ")[0] for thing in things}) == 1 and all(
        re.fullmatch(r"[-+.\de]+", thing.rpartition("= ")[2]) for thing in things
    )


def diverging() -> LinearSegmentedColormap:
    """Vermilion below zero, white at zero, blue above: the scenes' colours of the two signs."""
    return LinearSegmentedColormap.from_list("signs", DIVERGING_COLOURS, N=257)


def missing_reason(panel: Panel) -> str:
    """What a panel without a result says in its place."""
    return f"Not drawn: {panel.get('reason') or 'no stored result'}."
