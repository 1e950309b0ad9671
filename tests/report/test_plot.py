"""`plot` draws what the package returns, and says what it can draw when it gets something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from extremal.report import plot
from extremal.train import Trajectory
from tests.report.examples import line_panel


def trajectory(times: torch.Tensor, **values: torch.Tensor) -> Trajectory:
    return Trajectory(times=times, values=values)


def spaced(first: float, last: float, zero: bool) -> torch.Tensor:
    steps = torch.logspace(np.log10(first), np.log10(last), 9, dtype=torch.float64)
    return torch.cat([torch.zeros(1), steps]) if zero else steps


def test_a_summary_is_drawn(summary: dict[str, Any]) -> None:
    summary["panels"] = [line_panel()]
    figure = plot(summary)
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_title(loc="left") == line_panel()["title"]


def test_loss_and_accuracy_come_first() -> None:
    times = torch.arange(5.0)
    figure = plot(trajectory(times, norm=times, accuracy=times / 4, loss=torch.exp(-times)))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["loss", "accuracy", "norm"]
    loss, accuracy, norm = figure.axes
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear", "linear"]
    np.testing.assert_array_equal(loss.lines[0].get_xdata(), times)
    np.testing.assert_allclose(loss.lines[0].get_ydata(), torch.exp(-times))
    np.testing.assert_array_equal(norm.lines[0].get_ydata(), times)
    assert accuracy.get_ylim()[1] == pytest.approx(1.02)


@pytest.mark.parametrize(
    ("first", "last", "zero", "scale"),
    [
        (1.0, 50.0, True, "linear"),
        (1.0, 1e4, False, "log"),
        (1.0, 1e4, True, "symlog"),
    ],
)
def test_time_is_logarithmic_over_two_decades(
    first: float, last: float, zero: bool, scale: str
) -> None:
    times = spaced(first, last, zero)
    axes = plot(trajectory(times, loss=torch.ones(len(times)))).axes[0]
    assert axes.get_xscale() == scale
    assert len(axes.lines[0].get_xdata()) == len(times)
    assert axes.get_xlim()[0] <= times[0]


def test_vectors_are_thin_lines_and_matrices_their_largest_entries() -> None:
    times = torch.arange(4.0)
    vectors = torch.arange(12.0).reshape(4, 3)
    matrices = torch.stack([vectors, vectors - 1, -vectors], dim=-1)  # (4, 3, 3)
    figure = plot(trajectory(times, vectors=vectors, matrices=matrices))
    for axes in figure.axes:
        segments = axes.collections[0].get_segments()
        assert len(segments) == 3
        for line, entries in zip(segments, vectors.T, strict=True):
            np.testing.assert_array_equal(line, np.stack([times, entries], axis=1))


def test_very_many_lines_are_thinned_and_the_title_says_so() -> None:
    axes = plot(trajectory(torch.arange(3.0), norms=torch.rand(3, 2000))).axes[0]
    assert len(axes.collections[0].get_segments()) == 300
    assert axes.get_title(loc="left") == "norms (300 of 2000)"


def test_a_loss_that_vanishes_is_masked() -> None:
    loss = torch.tensor([1.0, 0.1, 0.0])
    figure = plot(trajectory(torch.arange(3.0), loss=loss))
    figure.draw_without_rendering()
    assert figure.axes[0].get_yscale() == "log"
    flat = plot(trajectory(torch.arange(3.0), loss=torch.zeros(3)))
    assert flat.axes[0].get_yscale() == "linear"


def test_one_recorded_time_is_a_point() -> None:
    line = plot(trajectory(torch.zeros(1), loss=torch.ones(1))).axes[0].lines[0]
    assert line.get_marker() == "o"


@pytest.mark.parametrize("other", [3, "figure-2", None, [1, 2]])
def test_other_things_are_refused_by_name(other: object) -> None:
    with pytest.raises(TypeError, match=r"summary \(a dict\) or a Trajectory, got"):
        plot(other)


def test_trajectories_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"values\['loss'\] must have 3 rows"):
        plot(trajectory(torch.arange(3.0), loss=torch.ones(2)))
    with pytest.raises(ValueError, match="trajectory must have recorded values"):
        plot(trajectory(torch.arange(3.0)))
    with pytest.raises(ValueError, match="trajectory must have recorded times"):
        plot(trajectory(torch.zeros(0), loss=torch.zeros(0)))
