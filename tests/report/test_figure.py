"""The static figure: what is drawn, where, and that its bytes depend on nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from extremal.report import draw, save_figure
from extremal.report.panel_style import CURVE_COLOURS, EXTRA_CURVE_COLOURS
from tests.report.helpers_summaries import (
    distance_panel,
    heat_panel,
    line_panel,
    make_summary,
    named_panel,
    pictures_panel,
    plane_panel,
    space_panel,
)

EMPTY = {"kind": "missing", "title": ""}  # beside it a panel is as narrow as in a row of three


def drawn(*panels: dict[str, Any], columns: int = 3) -> Figure:
    return draw({**make_summary(), "panels": list(panels), "columns": columns})


def legend_box(axes: Axes) -> Any:
    legend = axes.get_legend()
    assert legend is not None
    return legend.get_window_extent()


@pytest.fixture(scope="module")
def full() -> Figure:
    figure = draw(make_summary())
    figure.draw_without_rendering()
    return figure


def test_one_lettered_axes_for_each_panel(full: Figure) -> None:
    titles = [axes.get_title(loc="left") for axes in full.axes]
    assert len(titles) == len(make_summary()["panels"])
    assert [title[:3] for title in titles] == [f"({letter})" for letter in "abcdefgh"]


def test_grid_has_the_columns_asked_for(full: Figure) -> None:
    spots = [axes.get_subplotspec() for axes in full.axes]
    assert [(s.rowspan.start, s.colspan.start) for s in spots if s] == [
        divmod(k, 3) for k in range(8)
    ]


def test_nothing_is_cut_off(full: Figure) -> None:
    box = full.get_tightbbox()
    width, height = full.get_size_inches()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height


def test_axes_keep_their_height_whatever_stands_around_them() -> None:
    loud = line_panel()
    loud["title"] = "a long title " * 12
    loud["marks"] = [{"at": 0.5 + k / 100, "label": f"mark number {k}"} for k in range(5)]
    for panel in (line_panel(), loud):
        figure = drawn(panel, EMPTY, EMPTY)
        figure.draw_without_rendering()
        inches = figure.axes[0].get_position().height * figure.get_figheight()
        assert inches == pytest.approx(2.05, abs=0.02)


def test_curves_and_bands_are_the_series() -> None:
    panel = distance_panel()
    axes = drawn(panel).axes[0]
    for series, line, band in zip(panel["series"], axes.lines, axes.collections, strict=True):
        assert line.get_label() == series["label"]
        np.testing.assert_array_equal(line.get_xdata(), series["x"])
        expected = [np.nan if value is None else value for value in series["y"]]
        np.testing.assert_array_equal(line.get_ydata(), expected)
        heights = band.get_paths()[0].vertices[:, 1]
        assert set(heights) == {*series["low"], *series["high"]}
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "linear"


def test_a_single_trial_has_no_band() -> None:
    panel = line_panel()
    panel["series"][0]["n"] = 1
    assert len(drawn(panel).axes[0].collections) == 1


def test_styles_reach_the_lines() -> None:
    panel = line_panel()
    panel["series"][0]["style"], panel["series"][1]["style"] = "dashed", "dotted"
    assert [line.get_linestyle() for line in drawn(panel).axes[0].lines[:2]] == ["--", ":"]


def test_names_as_x_are_drawn_in_order() -> None:
    panel = line_panel()
    panel["marks"] = []
    panel["series"] = [{**panel["series"][0], "x": ["gd", "adam"], "y": [1, 2], "n": 1}]
    axes = drawn(panel).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["gd", "adam"]


def test_points_that_are_not_joined_have_bars_and_stand_side_by_side() -> None:
    panel = named_panel()
    axes = drawn(panel).axes[0]
    first, second = axes.lines
    assert [line.get_linestyle() for line in axes.lines] == ["None", "None"]
    np.testing.assert_allclose(second.get_xdata() - first.get_xdata(), 0.16)
    np.testing.assert_allclose((second.get_xdata() + first.get_xdata()) / 2, range(4))
    np.testing.assert_array_equal(first.get_ydata(), [0.1, 0.4, np.nan, 0.6])
    assert first.get_markerfacecolor() != second.get_markerfacecolor() == "white"
    for line, bars in zip(axes.lines, axes.collections, strict=True):
        ends = np.array([path.vertices for path in bars.get_paths()])
        np.testing.assert_allclose(ends[:2, :, 1], [[0.0, 0.2], [0.3, 0.6]])
        np.testing.assert_allclose(ends[[0, 1, 3], 0, 0], line.get_xdata()[[0, 1, 3]])
    for series in panel["series"]:
        series["n"] = 1
    assert not drawn(panel).axes[0].collections


@pytest.mark.parametrize(
    ("columns", "long"),
    [
        (1, "p = 3, adversarial"),
        (3, "p = 3, adversarial"),
        (2, "unbreakablyadversarialnetwork"),
    ],
)
def test_names_below_the_axes_do_not_touch(columns: int, long: str) -> None:
    panel = named_panel()
    names = ["ReLU", "ReLU, adversarial", long, "plane→car"]
    panel["series"] = [series | {"x": names} for series in panel["series"]]
    figure = drawn(panel, *[EMPTY] * (columns - 1), columns=columns)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert [" ".join(label.get_text().split()) for label in labels] == names
    if not any(label.get_rotation() for label in labels):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
        assert long != "unbreakablyadversarialnetwork"


def test_marks_are_dashed_lines_with_labels_above_the_frame() -> None:
    panel = line_panel()
    figure = drawn(panel)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    upright = [line for line in axes.lines if len(set(line.get_xdata())) == 1]
    assert [line.get_xdata()[0] for line in upright] == [mark["at"] for mark in panel["marks"]]
    assert all(line.is_dashed() for line in upright)
    labels = [text for text in axes.texts if isinstance(text, Annotation)]
    assert [label.get_text() for label in labels] == [mark["label"] for mark in panel["marks"]]
    top = axes.get_window_extent().y1
    title = axes.title if axes.title.get_text() else axes._left_title
    for label in labels:
        box = label.get_window_extent()
        assert top <= box.y0
        assert box.y1 <= title.get_window_extent().y0


def test_labels_of_marks_do_not_touch_each_other() -> None:
    panel = line_panel()
    spots = (0.01, 0.05, 0.316, 0.4, 0.4, 0.7071, 1.3, 1.45)
    panel["marks"] = [{"at": at, "label": f"a critical radius {at}"} for at in spots]
    figure = drawn(panel, EMPTY, EMPTY)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == len(spots)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_marks_without_a_place_are_left_out() -> None:
    panel = line_panel()
    panel["log"] = "x"
    panel["marks"] = [{"at": 0.0, "label": "no"}, {"at": None, "label": "no"}] + panel["marks"]
    axes = drawn(panel).axes[0]
    assert [text.get_text() for text in axes.texts] == ["1/√K", "√2/2"]


def test_same_entries_share_one_legend() -> None:
    figure = drawn(line_panel(), distance_panel())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["p = 1", "p = 3"]
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_entries_of_another_style_do_not_share() -> None:
    other = distance_panel()
    other["series"][1]["style"] = "dashed"
    figure = drawn(line_panel(), other)
    assert not figure.legends
    assert all(axes.get_legend() is not None for axes in figure.axes)


def test_shared_legends_of_curves_and_scenes_become_one() -> None:
    figure = drawn(line_panel(), line_panel(), space_panel(), space_panel(), columns=2)
    assert len(figure.legends) == 1
    assert len(figure.legends[0].get_texts()) == 2 + 4


def test_a_legend_stands_inside_where_there_is_room() -> None:
    figure = drawn(line_panel())
    figure.draw_without_rendering()
    frame, box = figure.axes[0].get_window_extent(), legend_box(figure.axes[0])
    assert frame.x0 <= box.x0 < box.x1 <= frame.x1
    assert frame.y0 <= box.y0 < box.y1 <= frame.y1


def full_panel() -> dict[str, Any]:
    """Curves that leave no room for a legend."""
    panel = line_panel()
    x = [k / 200 for k in range(201)]
    wave = {"x": x, "y": [k % 2 for k in range(201)], "low": None, "high": None}
    return {**panel, "series": [{**series, **wave} for series in panel["series"]]}


def test_a_legend_without_room_stands_below_the_axis_label() -> None:
    figure = drawn(full_panel())
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert legend_box(axes).y1 <= axes.xaxis.label.get_window_extent().y0


def test_a_label_keeps_its_colour_in_every_panel() -> None:
    alone = distance_panel()
    alone["series"] = alone["series"][1:]
    first, second = drawn(line_panel(), alone).axes
    assert second.lines[0].get_color() == first.lines[1].get_color()
    assert first.lines[0].get_color() != first.lines[1].get_color()


def test_curves_of_one_thing_have_one_colour_and_two_styles() -> None:
    panel = line_panel()
    for series in panel["series"]:
        series["label"] = f"attack, {series['label']}"
    dotted = [{**series, "style": "dotted"} for series in panel["series"]]
    for series in dotted:
        series["label"] = series["label"].replace("attack", "certificate")
    panel["series"] += dotted
    first, second = drawn(distance_panel(), panel).axes
    one, three = (line.get_color() for line in first.lines)
    assert [line.get_color() for line in second.lines[:4]] == [one, three, one, three]
    for series in dotted:
        series["style"] = "solid"
    looks = [line.get_color() for line in drawn(distance_panel(), panel).axes[1].lines[:4]]
    assert len(set(looks)) == 4


def test_many_curves_have_different_colours() -> None:
    panel = line_panel()
    panel["series"] = [{**panel["series"][0], "label": f"K = {k}"} for k in range(12)]
    axes = drawn(panel).axes[0]
    assert len({line.get_color() for line in axes.lines[:12]}) == 12


def test_a_thing_whose_name_has_commas_keeps_its_colour() -> None:
    panel, runs = line_panel(), ("2-class, p = 3", "10-class, p = 3", "10-class")
    panel["series"] = [
        {**panel["series"][0], "label": f"{measure}, {run}", "style": style}
        for measure, style in (("attacked", "solid"), ("certified", "dotted"))
        for run in runs
    ]
    looks = [line.get_color() for line in drawn(panel).axes[0].lines[:6]]
    assert looks[:3] == looks[3:]
    assert len(set(looks)) == 3


def test_named_curves_are_told_apart_and_values_of_one_quantity_are_shades() -> None:
    panel = line_panel()
    names = ["pReLU", "ReLU", "Tanh", "GELU", "SiLU", "cubic", "deep", "Bayes", "logistic"]
    panel["series"] = [{**panel["series"][0], "label": name} for name in names]
    looks = [line.get_color() for line in drawn(panel).axes[0].lines[:9]]
    assert looks == [*CURVE_COLOURS, *EXTRA_CURVE_COLOURS[:2]]
    for k, series in enumerate(panel["series"]):
        series["label"] = f"p = {1 + 0.5 * k:g}"
    shades = [line.get_color() for line in drawn(panel).axes[0].lines[:9]]
    assert not set(shades) & {*CURVE_COLOURS, *EXTRA_CURVE_COLOURS}


def test_a_legend_below_clears_slanted_ticks() -> None:
    panel = named_panel() | {"xlabel": "algorithm"}
    for series in panel["series"]:
        series["x"] = [f"{name}, a name that is slanted" for name in series["x"]]
    figure = drawn(full_panel(), panel)
    figure.draw_without_rendering()
    axes = figure.axes[1]
    ticks = axes.get_xticklabels()
    assert ticks[0].get_rotation() > 0
    assert legend_box(axes).y1 <= min(text.get_window_extent().y0 for text in ticks)
    assert legend_box(axes).y1 <= axes.xaxis.label.get_window_extent().y0


def test_bars_are_the_values() -> None:
    panel = make_summary()["panels"][1]
    bars = drawn(panel).axes[0].patches
    np.testing.assert_array_equal([bar.get_height() for bar in bars], panel["y"])
    assert bars[0].get_x() + bars[0].get_width() / 2 == pytest.approx(1.0)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 2.0), (-0.2, 0.6)])
def test_heat_is_white_at_zero_and_even_in_sign(low: float, high: float) -> None:
    panel = {**heat_panel(30, 10, None), "low": low, "high": high}
    axes = drawn(panel).axes[0]
    image = axes.images[0]
    np.testing.assert_array_equal(image.get_array(), panel["z"])
    assert to_hex(image.cmap(image.norm(0.0))) == "#f7f7f7"
    assert image.norm(0.1) - 0.5 == pytest.approx(0.5 - image.norm(-0.1))
    assert axes.child_axes[0].get_ylim() == (low, high)


def test_fences_run_around_cells_and_rows_have_their_names() -> None:
    panel = heat_panel(2, 3, None) | {"rows": [5.5, 3.0]}
    panel["fenced"] = [[False, True, True], [False, False, True]]
    axes = drawn(panel).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["5.5", "3.0"]
    segments = {tuple(map(tuple, line.get_xydata().tolist())) for line in axes.lines}
    assert segments == {
        ((1.5, 0.5), (2.5, 0.5)),
        ((2.5, 0.5), (3.5, 0.5)),
        ((1.5, 0.5), (1.5, 1.5)),
        ((1.5, 1.5), (2.5, 1.5)),
        ((2.5, 1.5), (2.5, 2.5)),
        ((2.5, 2.5), (3.5, 2.5)),
        ((3.5, 0.5), (3.5, 1.5)),
        ((3.5, 1.5), (3.5, 2.5)),
    }


def test_pictures_stand_in_rows_with_white_between_them() -> None:
    axes = drawn(pictures_panel(), EMPTY).axes[0]
    shown = np.asarray(axes.images[0].get_array())
    assert shown.shape == (5, 7, 3)
    assert shown[:2, :3, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert shown[3:, 4:, 2].tolist() == [[30, 31, 32], [33, 34, 35]]
    assert bool((shown[2] == 255).all())
    assert bool((shown[:, 3] == 255).all())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["image", "<robust>"]
    assert list(axes.get_yticks()) == [0.5, 3.5]


@pytest.mark.parametrize(("count", "name"), [(2, "class average"), (10, "centre"), (60, "centre")])
def test_names_of_columns_do_not_touch(count: int, name: str) -> None:
    figure = drawn(heat_panel(5, count, [f"{name} {k}" for k in range(count)]), EMPTY, EMPTY)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert labels[0].get_text() == f"{name} 0"
    if labels[0].get_rotation() == 0:
        boxes = [label.get_window_extent() for label in labels]
        assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))
    else:  # slanted lines of text touch when they are closer than the type is high
        step = labels[1].get_window_extent().x1 - labels[0].get_window_extent().x1
        distance = step * np.sin(np.radians(labels[0].get_rotation()))
        assert distance * 72 / figure.dpi >= 0.7 * labels[0].get_fontsize()


def test_space_has_equal_scales_and_holds_the_origin() -> None:
    panel = space_panel()
    axes = drawn(panel).axes[0]
    assert axes.name == "3d"
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    np.testing.assert_allclose(np.ptp(limits, axis=1), np.ptp(limits[0]))
    points = np.concatenate([cloud["points"] for cloud in panel["clouds"]])
    assert (limits[:, 0] < np.minimum(points.min(axis=0), 0)).all()
    assert (limits[:, 1] > np.maximum(points.max(axis=0), 0)).all()


def test_rays_start_at_the_origin_and_references_are_dashed() -> None:
    panel = plane_panel()
    axes = drawn(panel).axes[0]
    rays = next(c for c in axes.collections if type(c).__name__ == "LineCollection")
    np.testing.assert_array_equal([s[0] for s in rays.get_segments()], np.zeros((2, 2)))
    np.testing.assert_array_equal([s[1] for s in rays.get_segments()], np.eye(2))
    assert rays.get_linestyle()[0][1] is not None


def test_arrows_have_their_components() -> None:
    panel = plane_panel()
    axes = drawn(panel).axes[0]
    arrows = next(c for c in axes.collections if type(c).__name__ == "Quiver")
    np.testing.assert_allclose(np.stack([arrows.U, arrows.V], axis=1), panel["clouds"][0]["heads"])
    assert (arrows.scale, arrows.scale_units, arrows.angles) == (1.0, "xy", "xy")


def test_scenes_survive_nulls_and_empty_clouds() -> None:
    panel = space_panel()
    panel["clouds"][0]["points"][0] = [None, None, None]
    panel["clouds"][1]["points"] = []
    save = drawn(panel)
    save.draw_without_rendering()
    assert np.isfinite(save.axes[0].get_xlim()).all()


def test_missing_panels_say_why() -> None:
    given = {"kind": "missing", "title": "t", "reason": "no trial of it is done yet"}
    empty = {**heat_panel(2, 2, None), "z": []}
    figure = drawn(given, {"kind": "missing", "title": "t"}, empty)
    said = [" ".join(axes.texts[0].get_text().split()) for axes in figure.axes]
    assert said == [
        "Not drawn: no trial of it is done yet.",
        "Not drawn: no stored result.",
        "Not drawn: its array is empty.",
    ]


def test_no_panels_at_all_is_said_too() -> None:
    assert "draws nothing" in drawn().axes[0].texts[0].get_text()


def test_a_single_panel_has_no_letter() -> None:
    assert drawn(line_panel()).axes[0].get_title(loc="left") == line_panel()["title"]


def test_text_is_plain() -> None:
    panel = {**line_panel(), "title": "costs $5_a or $6^b", "xlabel": "$", "ylabel": r"\frac{"}
    figure = drawn(panel)
    figure.draw_without_rendering()
    assert figure.axes[0].get_title(loc="left") == r"costs \$5_a or \$6^b"


def test_drawing_leaves_no_trace() -> None:
    before = dict(matplotlib.rcParams)
    drawn(line_panel())
    assert dict(matplotlib.rcParams) == before
    assert not Gcf.figs


def test_files_are_the_same_bytes_each_time(summary: dict[str, Any], tmp_path: Any) -> None:
    summary["panels"] = [line_panel(), space_panel()]
    once = save_figure(summary, tmp_path / "one")
    again = save_figure(summary, tmp_path / "two")
    assert [path.name for path in once] == ["figure.png", "figure.pdf"]
    for left, right in zip(once, again, strict=True):
        assert left.read_bytes() == right.read_bytes()
    assert once[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"tEXt" not in once[0].read_bytes()
    assert b"CreationDate" not in once[1].read_bytes()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "figure.pdf",
        "figure.png",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": 0}, "columns must be an integer >= 1, got 0"),
        ({"panels": [{"kind": "pie", "title": "t"}]}, "kind of a panel must be one of"),
    ],
)
def test_bad_summaries_are_refused(
    summary: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        draw({**summary, **change})


def test_a_dict_that_is_no_summary_is_refused() -> None:
    with pytest.raises(ValueError, match="summary must hold title, panels and columns"):
        draw({"rows": []})
