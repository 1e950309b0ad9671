"""The picture of an evaluation: where robust accuracy lies, at every radius."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from extremal import _check
from extremal._files import write_whole
from extremal.evaluate import Robustness
from extremal.report.figure import DPI, HEIGHTS, WIDTHS, fit, lay_out
from extremal.report.panel_style import CYCLE, GREY, RC, plain

_ROOM = 1.05  # the axis ends this much beyond the largest radius


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
    with matplotlib.rc_context(RC):
        figure, (place,) = lay_out(1, 1, WIDTHS[1], [HEIGHTS[1]])
        axes = figure.add_subplot(place)
        at, high = radii.numpy(), curve.attacked.numpy()
        if result.certified:
            low = curve.certified.numpy()
            axes.fill_between(at, low, high, color=CYCLE[0], alpha=0.2, linewidth=0.0)
            axes.plot(at, low, color=CYCLE[0], label="certified")
        axes.plot(at, high, color=CYCLE[1], linestyle="--", label="attacked")
        _dress(axes, result, float(radii[-1]), named)
        fit(figure, [HEIGHTS[1]])
    return figure


def save_robustness(result: Robustness, folder: str | Path) -> list[Path]:
    """Write `robustness.json`, `.png` and `.pdf` into a folder, each whole or not at all."""
    figure = draw_robustness(result)
    paths = [Path(folder) / f"robustness.{kind}" for kind in ("json", "png", "pdf")]
    write_whole(paths[0], result.to_json().encode(), make_folders=True)
    for path, metadata in zip(paths[1:], ({"Software": None}, {"CreationDate": None}), strict=True):
        target = io.BytesIO()
        with matplotlib.rc_context(RC):
            figure.savefig(target, format=path.suffix[1:], dpi=DPI, metadata=metadata)
        write_whole(path, target.getvalue())
    return paths


def _radii(result: Robustness, named: Mapping[str, float]) -> Tensor:
    """Radii from 0 on: those at which a curve steps, each with its neighbour on the other side."""
    steps = torch.cat([result.lower, result.upper, torch.tensor([0.0], dtype=torch.float64)])
    steps = steps[steps.isfinite()]
    after = torch.nextafter(steps, torch.tensor(torch.inf, dtype=torch.float64))
    before = torch.nextafter(steps, torch.zeros_like(steps))
    top = max([float(steps.max()), *named.values()]) or 1.0
    ends = torch.tensor([_ROOM * top], dtype=torch.float64)
    radii: Tensor = torch.cat([steps, after, before, ends]).unique()
    return radii


def _dress(axes: Axes, result: Robustness, last: float, named: Mapping[str, float]) -> None:
    for name, at in named.items():
        axes.axvline(at, color=GREY, linestyle=":", linewidth=1.0)
        left = at > 0.6 * last
        axes.annotate(
            plain(name),
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if left else 3, -3),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=8.0,
            color=GREY,
        )
    axes.set_xlim(0.0, last)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"{result.norm} radius")
    axes.set_ylabel("accuracy")
    axes.set_title(f"robust accuracy on {len(result)} points")
    axes.legend(loc="lower left")
