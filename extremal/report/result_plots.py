"""One name to draw what the package returns: a summary, a training run, an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from extremal._check import require
from extremal.evaluate import Robustness
from extremal.report.figure import HEIGHTS, WIDTHS, draw, fit, lay_out
from extremal.report.matplotlib_panels import plain_decades
from extremal.report.panel_style import CYCLE, RC, plain
from extremal.report.robustness import draw_robustness
from extremal.train import Trajectory

MOST_LINES = 300  # of a vector's entries; more are thinned evenly, and the title says so
FIRST = ("loss", "accuracy")


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
    width, height = WIDTHS.get(columns, 3.5), HEIGHTS.get(columns, 2.05)
    heights = [height] * math.ceil(len(values) / columns)
    with matplotlib.rc_context(RC):
        figure, places = lay_out(len(values), columns, width, heights)
        for place, (name, lines) in zip(places, values.items(), strict=True):
            _draw_value(figure.add_subplot(place), name, result.times.double().cpu(), lines)
        fit(figure, heights)
    return figure


def _sorted(result: Trajectory) -> list[tuple[str, Tensor]]:
    """Loss and accuracy first, then the others as they were recorded."""
    return sorted(
        result.values.items(), key=lambda item: FIRST.index(item[0]) if item[0] in FIRST else 2
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
        axes.plot(times.numpy(), lines[:, 0].numpy(), color=CYCLE[0], marker=marker)
    else:
        _draw_many(axes, times, lines)
    if name == "accuracy":
        axes.set_ylim(-0.02, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        plain_decades(axis)
    axes.set_xlabel("time")
    axes.set_title(plain(name if total <= MOST_LINES else f"{name} ({MOST_LINES} of {total})"))


def _draw_many(axes: Axes, times: Tensor, lines: Tensor) -> None:
    segments = [torch.stack([times, line], dim=1).numpy() for line in lines.T]
    thin = max(0.4, 1.2 - lines.shape[1] / 100)
    axes.add_collection(LineCollection(segments, colors=CYCLE[0], linewidths=thin, alpha=0.5))
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
