"""One name to draw what the package returns: a summary, a training run, an evaluation.

The picture of an evaluation shows where robust accuracy lies, at every radius. Pairs of points,
such as the closest ones of different classes, are drawn as images side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from extremal import _check
from extremal._check import require
from extremal._files import write_whole
from extremal.data import as_picture
from extremal.evaluate import Robustness
from extremal.report.figure import (
    AXES_HEIGHTS_INCHES,
    PANEL_WIDTHS_INCHES,
    draw,
    figure_bytes,
    fit_height,
    lay_out,
)
from extremal.report.matplotlib_panels import plain_decades
from extremal.report.panel_style import (
    CURVE_COLOURS,
    GREY_COLOUR,
    MATPLOTLIB_SETTINGS,
    literal_text,
)
from extremal.train import Trajectory

# The axis ends this many times the largest radius, so that the last step is seen.
AXIS_END_OVER_LARGEST_RADIUS = 1.05


def draw_robustness(result: Robustness, marks: Mapping[str, float] | None = None) -> Figure:
    """Certified and attacked accuracy against the radius, and the band between them.

    Robust accuracy lies in the band. Every step of both curves is drawn, since each point has its
    own radii. Without a certificate there is the attacked curve alone, and no band. `marks` are
    reference radii with their names, drawn as dotted lines.
    """
    _check.instance("result", result, Robustness, "be a Robustness")
    named = {name: _check.number("marks", at, minimum=0.0) for name, at in (marks or {}).items()}
    radii = _radii(result, named)
    curve = result.curve(radii.tolist())
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure, (place,) = lay_out(1, 1, PANEL_WIDTHS_INCHES[1], [AXES_HEIGHTS_INCHES[1]])
        axes = figure.add_subplot(place)
        at, high = radii.numpy(), curve.attacked.numpy()
        if result.certified:
            low = curve.certified.numpy()
            axes.fill_between(at, low, high, color=CURVE_COLOURS[0], alpha=0.2, linewidth=0.0)
            axes.plot(at, low, color=CURVE_COLOURS[0], label="certified")
        axes.plot(at, high, color=CURVE_COLOURS[1], linestyle="--", label="attacked")
        _dress(axes, result, float(radii[-1]), named)
        fit_height(figure, [AXES_HEIGHTS_INCHES[1]])
    return figure


def save_robustness(result: Robustness, folder: str | Path) -> list[Path]:
    """Write `robustness.json`, `.png` and `.pdf` into a folder, each whole or not at all."""
    figure = draw_robustness(result)
    paths = [Path(folder) / f"robustness.{kind}" for kind in ("json", "png", "pdf")]
    contents = (result.to_json().encode(), figure_bytes(figure, "png"), figure_bytes(figure, "pdf"))
    for path, content in zip(paths, contents, strict=True):
        write_whole(path, content, make_folders=True)
    return paths


def _radii(result: Robustness, named: Mapping[str, float]) -> Tensor:
    """Radii from 0 on: those at which a curve steps, each with its neighbour on the other side."""
    steps = torch.cat([result.lower, result.upper, torch.tensor([0.0], dtype=torch.float64)])
    steps = steps[steps.isfinite()]
    after = torch.nextafter(steps, torch.tensor(torch.inf, dtype=torch.float64))
    before = torch.nextafter(steps, torch.zeros_like(steps))
    top = max([float(steps.max()), *named.values()]) or 1.0
    ends = torch.tensor([AXIS_END_OVER_LARGEST_RADIUS * top], dtype=torch.float64)
    radii: Tensor = torch.cat([steps, after, before, ends]).unique()
    return radii


def _dress(axes: Axes, result: Robustness, last: float, named: Mapping[str, float]) -> None:
    for name, at in named.items():
        axes.axvline(at, color=GREY_COLOUR, linestyle=":", linewidth=1.0)
        left = at > 0.6 * last
        axes.annotate(
            literal_text(name),
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if left else 3, -3),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=8.0,
            color=GREY_COLOUR,
        )
    axes.set_xlim(0.0, last)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"{result.norm} radius")
    axes.set_ylabel("accuracy")
    axes.set_title(f"robust accuracy on {len(result)} points")
    axes.legend(loc="lower left")


# The side of an image.
PICTURE_INCHES = 1.1
# Pairs of images that stand side by side.
PAIRS_IN_A_ROW = 4


def draw_pairs(one: Tensor, two: Tensor, titles: Sequence[tuple[str, str]]) -> Figure:
    """Points one (m, dim) and two (m, dim) in [0, 1], each pair side by side under its titles."""
    _check.matrix("one", one)
    _check.matrix("two", two, columns=one.shape[1])
    same = len(one) == len(two) == len(titles)
    _check.require(same, "titles", f"be a pair for each of {len(one)} pairs", len(titles))
    across = min(PAIRS_IN_A_ROW, len(one))
    rows = -(-len(one) // across)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(2 * across * PICTURE_INCHES, rows * (PICTURE_INCHES + 0.25)))
        for k, (left, right, names) in enumerate(zip(one, two, titles, strict=True)):
            for turn, (x, name) in enumerate(((left, names[0]), (right, names[1]))):
                axes = figure.add_subplot(rows, 2 * across, 2 * k + turn + 1)
                picture = as_picture(x).float().clamp(0.0, 1.0).numpy()
                gray = picture.shape[2] == 1
                shown = picture[:, :, 0] if gray else picture
                axes.imshow(shown, cmap="gray" if gray else None, vmin=0.0, vmax=1.0, aspect="auto")
                axes.set_title(literal_text(name), fontsize=7.0)
                axes.set_axis_off()
        figure.tight_layout(pad=0.4)
    return figure


def save_pairs(
    one: Tensor, two: Tensor, titles: Sequence[tuple[str, str]], path: str | Path
) -> Path:
    """Write `draw_pairs` as a PNG file, whole or not at all."""
    write_whole(path, figure_bytes(draw_pairs(one, two, titles), "png"), make_folders=True)
    return Path(path)


# Lines of a vector's entries; more are thinned evenly, and the title says so.
MOST_LINES = 300
# Recorded values that are drawn before the others.
FIRST_VALUES = ("loss", "accuracy")


@singledispatch
def plot(result: object) -> Figure:
    """Draw a summary (see `draw`), a `Trajectory` or a `Robustness`, as a matplotlib figure.

    A trajectory gives one panel for each recorded value against time: the loss on a logarithmic
    axis, vectors as many thin lines, matrices as their maximum over the last axis. Time is
    logarithmic where it spans more than two decades, and linear below the first positive time. A
    `Robustness` gives the band between certified and attacked accuracy (see `draw_robustness`).
    """
    known = "a Robustness, an experiment's summary (a dict) or a Trajectory"
    raise TypeError(f"result must be {known}, got {type(result).__name__}")


@plot.register(Mapping)
def _plot_summary(result: Mapping[str, Any]) -> Figure:
    return draw(result)


@plot.register(Robustness)
def _plot_robustness(result: Robustness) -> Figure:
    return draw_robustness(result)


@plot.register(Trajectory)
def _plot_trajectory(result: Trajectory) -> Figure:
    require(bool(result.values), "trajectory", "have recorded values", "none")
    require(len(result.times) > 0, "trajectory", "have recorded times", "none")
    values = {name: _lines(name, value, len(result.times)) for name, value in _sorted(result)}
    columns = min(3, len(values))
    width, height = PANEL_WIDTHS_INCHES.get(columns, 3.5), AXES_HEIGHTS_INCHES.get(columns, 2.05)
    heights = [height] * math.ceil(len(values) / columns)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure, places = lay_out(len(values), columns, width, heights)
        for place, (name, lines) in zip(places, values.items(), strict=True):
            _draw_value(figure.add_subplot(place), name, result.times.double().cpu(), lines)
        fit_height(figure, heights)
    return figure


def _sorted(result: Trajectory) -> list[tuple[str, Tensor]]:
    """Loss and accuracy first, then the others as they were recorded."""
    return sorted(
        result.values.items(),
        key=lambda item: FIRST_VALUES.index(item[0]) if item[0] in FIRST_VALUES else 2,
    )


def _lines(name: str, value: Tensor, count: int) -> Tensor:
    """The recorded value as (count, lines)."""
    shaped = value.ndim >= 1 and len(value) == count
    require(shaped, f"values[{name!r}]", f"have {count} rows", f"shape {tuple(value.shape)}")
    lines = value.detach().double().cpu()
    if lines.ndim == 1:
        return lines.unsqueeze(1)
    while lines.ndim > 2:
        lines = lines.amax(dim=-1)
    return lines


def _draw_value(axes: Axes, name: str, times: Tensor, lines: Tensor) -> None:
    total = lines.shape[1]
    if total > MOST_LINES:
        lines = lines[:, torch.linspace(0, total - 1, MOST_LINES).round().long()]
    _scale_time(axes, times)
    if name == "loss" and bool((lines > 0).any()):
        axes.set_yscale("log", nonpositive="mask")
    if lines.shape[1] == 1:
        marker = "o" if len(times) == 1 else None
        axes.plot(times.numpy(), lines[:, 0].numpy(), color=CURVE_COLOURS[0], marker=marker)
    else:
        _draw_many(axes, times, lines)
    if name == "accuracy":
        axes.set_ylim(-0.02, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        plain_decades(axis)
    axes.set_xlabel("time")
    axes.set_title(
        literal_text(name if total <= MOST_LINES else f"{name} ({MOST_LINES} of {total})")
    )


def _draw_many(axes: Axes, times: Tensor, lines: Tensor) -> None:
    segments = [torch.stack([times, line], dim=1).numpy() for line in lines.T]
    thin = max(0.4, 1.2 - lines.shape[1] / 100)
    axes.add_collection(
        LineCollection(segments, colors=CURVE_COLOURS[0], linewidths=thin, alpha=0.5)
    )
    axes.autoscale_view()


def _scale_time(axes: Axes, times: Tensor) -> None:
    """Logarithmic if the positive times span over two decades, with room for time zero."""
    positive = times[times > 0]
    if len(positive) < 2 or positive.max() / positive.min() <= 100:
        return
    if bool((times <= 0).any()):
        axes.set_xscale("symlog", linthresh=float(positive.min()), linscale=0.4)
    else:
        axes.set_xscale("log")
