"""The band between certified and attacked accuracy, drawn step by step."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from extremal.evaluate import Robustness
from extremal.report import draw_robustness, plot, save_robustness


def made(certified: bool = True) -> Robustness:
    lower = torch.tensor([0.5, 0.2, 0.9, 0.0], dtype=torch.float64)
    upper = torch.tensor([0.6, 0.4, math.inf, 0.0], dtype=torch.float64)
    return Robustness(
        lower if certified else 0.0 * lower,
        upper,
        norm="linf",
        box=None,
        certified=certified,
        boxed=False,
        attack=("a", "a", "", "clean"),
        certificate=("b", "b", "b", "") if certified else ("",) * 4,
    )


def value_at(line, radius: float) -> float:
    x, y = line.get_data()
    return float(y[np.searchsorted(x, radius)])


def test_plot_draws_both_curves_and_the_band_between() -> None:
    figure = plot(made())
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    low, high = axes.lines
    assert [low.get_label(), high.get_label()] == ["certified", "attacked"]
    assert [value_at(low, r) for r in (0.0, 0.2, 0.21, 0.5, 0.51, 0.9, 0.91)] == [
        0.75, 0.75, 0.5, 0.5, 0.25, 0.25, 0.0,
    ]  # fmt: skip
    assert [value_at(high, r) for r in (0.0, 0.39, 0.4, 0.6, 0.94)] == [0.75, 0.75, 0.5, 0.25, 0.25]
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert path.contains_point((0.55, 0.4))  # between the two
    assert not path.contains_point((0.55, 0.2))
    assert not path.contains_point((0.55, 0.6))
    assert axes.get_xlabel() == "linf radius"
    assert axes.get_xlim() == pytest.approx((0.0, 0.945))


def test_steps_are_upright_not_slanted() -> None:
    low, _ = plot(made()).axes[0].lines
    x, y = low.get_data()
    moved = np.flatnonzero(np.diff(y))
    assert len(moved) == 3
    assert float((x[moved + 1] - x[moved]).max()) < 1e-12


def test_without_a_certificate_there_is_no_band() -> None:
    (axes,) = plot(made(certified=False)).axes
    assert [line.get_label() for line in axes.lines] == ["attacked"]
    assert not axes.collections


def test_marks_are_named_lines_within_the_axis() -> None:
    (axes,) = draw_robustness(made(), {"1/sqrt(K)": 0.3, "far $": 2.0}).axes
    assert [line.get_xdata()[0] for line in axes.lines[2:]] == [0.3, 2.0]
    assert [text.get_text() for text in axes.texts] == ["1/sqrt(K)", r"far \$"]
    assert axes.get_xlim()[1] > 2.0
    axes.figure.draw_without_rendering()
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.x1 <= axes.bbox.x1
    with pytest.raises(ValueError, match="marks must be a finite number >= 0, got -1"):
        draw_robustness(made(), {"a": -1.0})


def test_all_misclassified_is_drawn_as_zero() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    nothing = Robustness(zero, zero, "l2", None, True, False, ("clean",) * 3, ("",) * 3)
    low, high = plot(nothing).axes[0].lines
    assert not low.get_ydata().any()
    assert not high.get_ydata().any()


def test_files_are_written_and_repeat(tmp_path) -> None:
    first, second = (save_robustness(made(), tmp_path / name) for name in ("a/b", "c"))
    assert [path.name for path in first] == [
        "robustness.json",
        "robustness.png",
        "robustness.pdf",
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert json.loads(first[0].read_text())["upper"][2] is None
    assert first[1].read_bytes().startswith(b"\x89PNG")
