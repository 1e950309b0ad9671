"""The static figure of a summary, as a paper would print it: a grid of lettered panels."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from extremal._check import choice, require
from extremal._files import write_whole
from extremal.report.legends import place_legends, settle
from extremal.report.matplotlib_panels import (
    MARK_LABEL_POINTS,
    draw_bars,
    draw_heat,
    draw_line,
    draw_missing,
    draw_pictures,
)
from extremal.report.matplotlib_scenes import draw_scene
from extremal.report.panel_style import (
    MATPLOTLIB_SETTINGS,
    Panel,
    curve_colours,
    headings,
    panels_of,
    wrapped,
)

# Kinds of panels that a summary may hold.
PANEL_KINDS = ("line", "bars", "heat", "scene", "pictures", "missing")
# A panel's width with its labels, by the number of columns of the figure.
PANEL_WIDTHS_INCHES = {1: 5.6, 2: 4.3}
# A panel's width where there are only scenes, which are square.
SCENE_PANEL_INCHES = 3.1
# The height of a panel's axes, by the number of columns of the figure.
AXES_HEIGHTS_INCHES = {1: 2.8, 2: 2.4}
# Fine enough for print, and for a screen at twice the size.
DOTS_PER_INCH = 200


def draw(summary: Mapping[str, Any]) -> Figure:
    """Draw the panels of a summary in a grid of `summary["columns"]` columns.

    The figure belongs to no window and to no global state: `figure.savefig(path)` writes it.
    """
    panels = checked_panels(summary)
    columns = min(int(summary["columns"]), len(panels))
    square = all(panel["kind"] == "scene" for panel in panels)
    width = SCENE_PANEL_INCHES if square and columns > 1 else PANEL_WIDTHS_INCHES.get(columns, 3.5)
    height = AXES_HEIGHTS_INCHES.get(columns, 2.05)
    heights = [
        max(2.6 if panel["kind"] == "scene" else height for panel in panels[k : k + columns])
        for k in range(0, len(panels), columns)
    ]
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure, places = lay_out(len(panels), columns, width, heights)
        curves, scenes = _fill(figure, places, panels, width)
        fit_height(figure, heights)
        place_legends(figure, curves, scenes)
        fit_height(figure, heights)
    return figure


def lay_out(
    count: int, columns: int, width: float, heights: Sequence[float]
) -> tuple[Figure, list[Any]]:
    """An empty figure, and the places of `count` panels in a grid."""
    figure = Figure(figsize=(width * columns, 1.4 * sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    return figure, [grid[divmod(k, columns)] for k in range(count)]


def checked_panels(summary: Mapping[str, Any]) -> list[Panel]:
    """Return the panels, if the summary has what a drawing needs."""
    good = isinstance(summary, Mapping) and {"panels", "columns", "title"} <= set(summary)
    require(good, "summary", "hold title, panels and columns", summary)
    columns = summary["columns"]
    require(isinstance(columns, int) and columns >= 1, "columns", "be an integer >= 1", columns)
    for panel in panels_of(summary):
        choice("kind of a panel", panel.get("kind"), PANEL_KINDS)
    return panels_of(summary)


def _fill(
    figure: Figure, places: Sequence[Any], panels: Sequence[Panel], width: float
) -> tuple[list[Axes], list[Axes]]:
    """Draw and title each panel; return the axes of the scenes apart from the others."""
    curves: list[Axes] = []
    scenes: list[Axes] = []
    items = zip(places, panels, headings(panels), curve_colours(panels), strict=True)
    for place, panel, heading, shades in items:
        space = panel["kind"] == "scene" and int(panel["dim"]) == 3
        axes = figure.add_subplot(place, projection="3d" if space else None)
        rows = _draw_panel(axes, panel, shades, 0.8 * width)
        pad = 6.0 + rows * (MARK_LABEL_POINTS + 2.5)
        axes.set_title(wrapped(heading, 0.84 * width, 9.5), loc="left", pad=pad)
        (scenes if panel["kind"] == "scene" else curves).append(axes)
    return curves, scenes


def fit_height(figure: Figure, heights: Sequence[float]) -> None:
    """Make the figure so high that the axes of each row have their height.

    Titles over several lines, labels of marks, slanted ticks and legends then cost paper, not plot.
    """
    settle(figure)
    inner = 0.0
    for row in range(len(heights)):
        axes = next(axes for axes in figure.axes if _row(axes) == row)
        inner += axes.get_position(original=True).height * figure.get_figheight()
    figure.set_figheight(figure.get_figheight() - inner + sum(heights))


def _row(axes: Axes) -> int | None:
    position = axes.get_subplotspec()
    return None if position is None else int(position.rowspan.start)


def _draw_panel(axes: Axes, panel: Panel, shades: Sequence[str], width: float) -> int:
    kind = panel["kind"]
    if kind == "line":
        return draw_line(axes, panel, shades, width)
    if kind in ("heat", "missing"):
        return {"heat": draw_heat, "missing": draw_missing}[kind](axes, panel, width)
    return {"bars": draw_bars, "scene": draw_scene, "pictures": draw_pictures}[kind](axes, panel)


def png_bytes(summary: Mapping[str, Any]) -> bytes:
    """The figure as a PNG: the same bytes for the same summary and the same matplotlib."""
    return figure_bytes(draw(summary), "png")


def pdf_bytes(summary: Mapping[str, Any]) -> bytes:
    """The figure as a PDF, without a date."""
    return figure_bytes(draw(summary), "pdf", str(summary["title"]))


def save_figure(summary: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write `figure.png` and `figure.pdf` into a folder, each whole or not at all."""
    figure = draw(summary)
    png, pdf = Path(folder) / "figure.png", Path(folder) / "figure.pdf"
    write_whole(png, figure_bytes(figure, "png"), make_folders=True)
    write_whole(pdf, figure_bytes(figure, "pdf", str(summary["title"])), make_folders=True)
    return [png, pdf]


def figure_bytes(figure: Figure, form: Literal["png", "pdf"], title: str | None = None) -> bytes:
    """A figure as a file without a date and a program's name; a PDF may have a title."""
    metadata = {"Software": None} if form == "png" else {"Title": title, "CreationDate": None}
    target = io.BytesIO()
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure.savefig(target, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return target.getvalue()
