"""Legends that cover nothing: one for the whole figure, one inside each panel, or one below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, ScaledTranslation


def settle(figure: Figure) -> None:
    """Give all axes their places, as drawing would, but faster."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)


def place_legends(figure: Figure, curves: Sequence[Axes], scenes: Sequence[Axes]) -> None:
    """Give the panels their legends.

    Panels with the same two or more entries share one legend below the figure. Else each panel's
    legend stands inside it, unless one of them would cover a curve, a band or a mark: then each
    stands below its panel, so that all look alike.
    """
    shared: dict[str, Artist] = {}
    for group in (curves, scenes):
        labelled = [axes for axes in group if axes.get_legend_handles_labels()[1]]
        entries = {_entries(axes) for axes in labelled}
        if len(labelled) > 1 and len(entries) == 1:
            handles, labels = labelled[0].get_legend_handles_labels()
            shared |= dict(zip(labels, handles, strict=True))
        elif group is scenes:
            _below(figure, labelled)
        else:
            _inside_or_below(figure, labelled)
    if shared:
        columns = _columns(list(shared), figure.get_figwidth())
        handles, labels = list(shared.values()), list(shared)
        place: Any = "outside lower center"
        figure.legend(handles, labels, loc=place, frameon=False, ncols=columns)


def _entries(axes: Axes) -> tuple[tuple[Any, ...], ...]:
    """What a legend of the axes shows: labels, and the look of the lines."""
    handles, labels = axes.get_legend_handles_labels()
    looks = [
        (line.get_color(), line.get_linestyle(), line.get_marker())
        if isinstance(line, Line2D)
        else ()
        for line in handles
    ]
    return tuple(zip(labels, looks, strict=True))


def _inside_or_below(figure: Figure, group: Sequence[Axes]) -> None:
    if not group:
        return
    for axes in group:
        axes.legend(loc="best").get_frame().set_linewidth(0.6)
    settle(figure)
    if any(_covers(axes) for axes in group):
        for axes in group:
            legend = axes.get_legend()
            assert legend is not None
            legend.remove()
        _below(figure, group)


def _below(figure: Figure, group: Sequence[Axes]) -> None:
    for axes in group:
        handles, labels = axes.get_legend_handles_labels()
        position = axes.get_subplotspec()
        assert position is not None
        share = figure.get_figwidth() / position.get_gridspec().ncols
        drop = _depth(axes, figure.dpi) + 4.0
        move = ScaledTranslation(0.0, -drop / 72, figure.dpi_scale_trans)
        axes.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            bbox_transform=axes.transAxes + move,
            ncols=_columns(labels, share),
            frameon=False,
            borderaxespad=0.0,
        )


def _depth(axes: Axes, dpi: float) -> float:
    """How far, in points, ticks and label reach below the axes; slanted ones reach far."""
    box = axes.xaxis.get_tightbbox()
    if box is None:
        return 0.0
    return 72.0 * float(axes.get_window_extent().y0 - box.y0) / dpi


def _columns(labels: Sequence[str], width: float) -> int:
    """How many columns of entries, each as wide as the longest with its handle, fit a width."""
    entry = (max(map(len, labels)) * 0.58 * 8.0 + 38.0) / 72
    return max(1, min(len(labels), int(width / entry)))


def _covers(axes: Axes) -> bool:
    """Whether the legend lies on a curve, a mark or a band."""
    legend = axes.get_legend()
    assert legend is not None
    box: Bbox = legend.get_window_extent()
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    bands = [
        band.get_transform().transform_path(path)
        for band in axes.collections
        for path in band.get_paths()
    ]
    return any(path.intersects_bbox(box, filled=False) for path in lines) or any(
        path.intersects_bbox(box, filled=True) for path in bands
    )
