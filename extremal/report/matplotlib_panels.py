"""The flat panels in matplotlib: curves, bars, colour maps, and the place of a missing one.

Each function draws one panel into given axes and returns how many rows of mark labels stand above
the axes, which the panel's title has to clear. Panels over names instead of numbers have points
with bars, since nothing lies between two names.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from extremal.report.panel_style import (
    CURVE_COLOURS,
    CURVE_MARKERS,
    GREY_COLOUR,
    GRID_COLOUR,
    INK_COLOUR,
    LINE_DASHES,
    MOST_MARKED_POINTS,
    Panel,
    diverging,
    fences,
    has_band,
    literal_text,
    marks_of,
    missing_reason,
    mosaic,
    numbers,
    picture_rows,
    wrapped,
    x_values,
)

# The gap between the points of two series at one name, where names are 1 apart.
LARGEST_SERIES_GAP = 0.16
# The width of a letter of a tick label, at most, in its size of 8 points.
LETTER_WIDTH_EM = 0.6


def draw_points(axes: Axes, panel: Panel, colours: Sequence[str], width: float) -> int:
    """Draw means as points, with bars from minimum to maximum, side by side at each name.

    `width` is that of the axes in inches. Points of a series that is not solid are hollow.
    """
    if "y" in panel["log"]:
        axes.set_yscale("log", nonpositive="mask")
    names = list(dict.fromkeys(str(name) for series in panel["series"] for name in series["x"]))
    count = len(panel["series"])
    gap = min(LARGEST_SERIES_GAP, 0.7 / max(count, 1))
    for index, (series, colour) in enumerate(zip(panel["series"], colours, strict=True)):
        shift = gap * (index - (count - 1) / 2)
        x = [names.index(str(name)) + shift for name in series["x"]]
        if has_band(series):
            ends = numbers(series["low"]), numbers(series["high"])
            axes.vlines(x, *ends, color=colour, linewidth=1.3, zorder=2)
        axes.plot(
            x,
            numbers(series["y"]),
            linestyle="none",
            color=colour,
            marker=CURVE_MARKERS[index % len(CURVE_MARKERS)],
            markersize=5.0,
            markerfacecolor=colour if series["style"] == "solid" else "white",
            label=literal_text(series["label"]),
            zorder=3,
        )
    _name(axes, names, width)
    axes.set_xlabel(literal_text(panel["xlabel"]))
    axes.set_ylabel(literal_text(panel["ylabel"]))
    return 0


def _name(axes: Axes, names: Sequence[str], width: float) -> None:
    """Write the names below the axes, broken into lines that do not touch, or else slanted."""
    letters = max(1, int(width * 72 / max(len(names), 1) / (LETTER_WIDTH_EM * 8.0)) - 1)
    lines = [textwrap.wrap(name, letters, break_long_words=False) or [""] for name in names]
    shown = ["\n".join(parts) for parts in lines]
    slant: dict[str, Any] = {}
    if max((len(part) for parts in lines for part in parts), default=0) > letters:
        shown, slant = list(names), {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.grid(False, axis="x")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), list(map(literal_text, shown)), **slant)
    axes.tick_params(axis="x", length=0)


# The size of the label of a mark.
MARK_LABEL_POINTS = 7.5


def draw_line(axes: Axes, panel: Panel, colours: Sequence[str], width: float) -> int:
    """Draw curves with bands from minimum to maximum, and labelled dashed vertical marks.

    Where a panel's points are not joined they are of names, and drawn by `draw_points`.
    """
    if not panel.get("joined", True):
        return draw_points(axes, panel, colours, width)
    if "x" in panel["log"]:
        axes.set_xscale("log", nonpositive="mask")
    if "y" in panel["log"]:
        axes.set_yscale("log", nonpositive="mask")
    for index, (series, colour) in enumerate(zip(panel["series"], colours, strict=True)):
        _curve(axes, series, colour, CURVE_MARKERS[index % len(CURVE_MARKERS)])
    _label(axes, panel)
    axes.margins(x=0.03)
    for axis in (axes.xaxis, axes.yaxis):
        plain_decades(axis)
    return _marks(axes, marks_of(panel), width)


def _curve(axes: Axes, series: Mapping[str, Any], colour: str, marker: str) -> None:
    x, y = x_values(series["x"]), numbers(series["y"])
    if has_band(series):
        low, high = numbers(series["low"]), numbers(series["high"])
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
    axes.plot(
        x,
        y,
        color=colour,
        linestyle=LINE_DASHES[series["style"]],
        marker=marker if len(x) <= MOST_MARKED_POINTS else None,
        markeredgecolor="white",
        markeredgewidth=0.4,
        label=literal_text(series["label"]),
        zorder=3,
    )


def _marks(axes: Axes, marks: Sequence[Mapping[str, Any]], width: float) -> int:
    """Draw the marks, with labels above the frame, where neither curve nor legend can be."""
    for mark in marks:
        axes.axvline(mark["at"], color=INK_COLOUR, linestyle=(0, (4, 3)), linewidth=0.9, zorder=1.5)
    spots = [_place(axes, mark["at"]) for mark in marks]
    rows = _label_rows([str(mark["label"]) for mark in marks], spots, width)
    for mark, place, row in zip(marks, spots, rows, strict=True):
        axes.annotate(
            literal_text(mark["label"]),
            (place, 1.0),
            xycoords="axes fraction",
            xytext=(0, 2 + row * (MARK_LABEL_POINTS + 2.5)),
            textcoords="offset points",
            ha="left" if place < 0.15 else "right" if place > 0.85 else "center",
            va="bottom",
            fontsize=MARK_LABEL_POINTS,
            annotation_clip=False,
        )
    return max(rows, default=-1) + 1


def plain_decades(axis: Axis) -> None:
    """On a logarithmic axis of few decades, write 0.02, 0.05, 0.1 instead of powers of ten."""
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log" and high / low < 300:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 50 else (1, 3)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def _place(axes: Axes, at: float) -> float:
    """Where along the axes a value of x lies, from 0 to 1."""
    low, high = axes.get_xlim()
    if axes.get_xscale() == "log":
        low, high, at = math.log(low), math.log(high), math.log(at)
    return (at - low) / (high - low)


def _label_rows(labels: Sequence[str], spots: Sequence[float], width: float) -> list[int]:
    """The row of each label: the lowest in which it does not touch another one."""
    ends: list[list[tuple[float, float]]] = []
    rows = [0] * len(labels)
    for k in sorted(range(len(labels)), key=lambda k: spots[k]):
        half = 0.5 * (len(labels[k]) + 1.5) * 0.58 * MARK_LABEL_POINTS / 72 / width
        centre = min(max(spots[k], half), 1 - half)
        free = (all(abs(centre - other) >= half + space for other, space in row) for row in ends)
        rows[k] = next((number for number, good in enumerate(free) if good), len(ends))
        if rows[k] == len(ends):
            ends.append([])
        ends[rows[k]].append((centre, half))
    return rows


def draw_bars(axes: Axes, panel: Panel) -> int:
    """Draw a list as bars numbered from 1."""
    heights = numbers(panel["y"])
    few = len(heights) <= 40
    axes.bar(
        range(1, len(heights) + 1),
        heights,
        width=0.8 if few else 1.0,
        color=CURVE_COLOURS[0],
        linewidth=0,
    )
    axes.set_xlim(0.4, len(heights) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    if any(height < 0 for height in heights):
        axes.axhline(0.0, color=INK_COLOUR, linewidth=0.7)
    _label(axes, panel)
    return 0


def draw_heat(axes: Axes, panel: Panel, width: float) -> int:
    """Draw an array with white at zero, equal colours for equal magnitudes, and a colour bar."""
    z = np.array([numbers(row) for row in panel["z"]], dtype=float)
    low, high = float(panel["low"]), float(panel["high"])
    reach = max(abs(low), abs(high))
    rows, columns = z.shape
    image = axes.imshow(
        np.ma.masked_invalid(z),
        cmap=diverging(),
        norm=Normalize(-reach, reach),
        aspect="auto",
        extent=(0.5, columns + 0.5, rows + 0.5, 0.5),
    )
    axes.grid(False)
    axes.yaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    # An inset, because a bar beside the axes would widen the gap after the whole column.
    inset = axes.inset_axes((1.02, 0.0, 0.035, 1.0))
    bar = axes.figure.colorbar(image, cax=inset, ticks=sorted({low, 0.0, high}))
    bar.ax.set_ylim(low, high)
    bar.ax.tick_params(pad=1.5, length=2, labelsize=7)
    bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    bar.outline.set_linewidth(0.5)
    _column_ticks(axes, panel["columns"], columns, width)
    if panel.get("rows") is not None:
        axes.set_yticks(range(1, rows + 1), [literal_text(name) for name in panel["rows"]])
    for (left, top), (right, bottom) in fences(panel):
        axes.plot((left, right), (top, bottom), color=INK_COLOUR, linewidth=1.8, clip_on=False)
    _label(axes, panel)
    return 0


def _column_ticks(axes: Axes, names: Sequence[Any] | None, count: int, width: float) -> None:
    """Label every column if the names fit: flat, else slanted, else every second one, and so on."""
    if names is None:
        return
    room = 0.75 * width * 72 / count  # points for a column
    flat = max(len(str(name)) for name in names) * 0.62 * 8.0 <= room
    step = 1 if flat else max(1, math.ceil(9.0 / room))
    slant: dict[str, Any] = (
        {} if flat else {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    )
    shown = [literal_text(name) for name in names[::step]]
    axes.set_xticks(range(1, count + 1, step), shown, **slant)


def draw_pictures(axes: Axes, panel: Panel) -> int:
    """Draw rows of images, with square pixels and the rows' names."""
    axes.imshow(mosaic(panel), interpolation="nearest", aspect="equal")
    axes.set_xticks([])
    axes.set_yticks(*picture_rows(panel))
    axes.tick_params(length=0)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return 0


def draw_missing(axes: Axes, panel: Panel, width: float) -> int:
    """Say, in the panel's place, that there is no result and why."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=GRID_COLOUR, linestyle="--")
    axes.text(
        0.5,
        0.5,
        wrapped(missing_reason(panel), 0.8 * width, 9.0),
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=GREY_COLOUR,
    )
    return 0


def _label(axes: Axes, panel: Panel) -> None:
    axes.set_xlabel(literal_text(panel["xlabel"]))
    axes.set_ylabel(literal_text(panel["ylabel"]))
