"""Panels over names instead of numbers: points with bars, since nothing lies between two names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from extremal.report.panel_style import MARKERS, Panel, has_band, numbers, plain

_GAP = 0.16  # between the points of two series at one name; names are 1 apart
_EM = 0.6  # of a letter of a tick label, at most, in its size of 8 points


def draw_points(axes: Axes, panel: Panel, colours: Sequence[str], width: float) -> int:
    """Draw means as points, with bars from minimum to maximum, side by side at each name.

    `width` is that of the axes in inches. Points of a series that is not solid are hollow.
    """
    if "y" in panel["log"]:
        axes.set_yscale("log", nonpositive="mask")
    names = list(dict.fromkeys(str(name) for series in panel["series"] for name in series["x"]))
    count = len(panel["series"])
    gap = min(_GAP, 0.7 / max(count, 1))
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
            marker=MARKERS[index % len(MARKERS)],
            markersize=5.0,
            markerfacecolor=colour if series["style"] == "solid" else "white",
            label=plain(series["label"]),
            zorder=3,
        )
    _name(axes, names, width)
    axes.set_xlabel(plain(panel["xlabel"]))
    axes.set_ylabel(plain(panel["ylabel"]))
    return 0


def _name(axes: Axes, names: Sequence[str], width: float) -> None:
    """Write the names below the axes, broken into lines that do not touch, or else slanted."""
    letters = max(1, int(width * 72 / max(len(names), 1) / (_EM * 8.0)) - 1)
    lines = [textwrap.wrap(name, letters, break_long_words=False) or [""] for name in names]
    shown = ["\n".join(parts) for parts in lines]
    slant: dict[str, Any] = {}
    if max((len(part) for parts in lines for part in parts), default=0) > letters:
        shown, slant = list(names), {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.grid(False, axis="x")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), list(map(plain, shown)), **slant)
    axes.tick_params(axis="x", length=0)
