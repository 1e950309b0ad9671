"""Panels in words, for readers who do not see them."""

from __future__ import annotations

from extremal.report.panel_description import describe
from extremal.report.panel_style import letter
from tests.report.helpers_summaries import (
    bars_panel,
    distance_panel,
    heat_panel,
    line_panel,
    named_panel,
    pictures_panel,
    space_panel,
)


def test_lines_say_ends_and_marks() -> None:
    text = describe(line_panel())
    assert text.startswith("Line chart of robust accuracy against radius, 2 curves.")
    assert "p = 1: from 0.9982 at 0 to" in text
    assert text.endswith("Mark at 0.3162: 1/√K. Mark at 0.7071: √2/2.")


def test_lines_end_where_the_last_value_is() -> None:
    assert "at 0.2793." in describe(distance_panel())  # the last value, at 0.3, is null


def test_points_say_each_value() -> None:
    text = describe(named_panel())
    assert text.startswith(
        "Points of accuracy by name, 2 kinds. MNIST: 0.1 for ReLU, 0.4 for p = 3"
    )
    assert "– for ReLU, adversarial, 0.6 for p = 3, adversarial." in text


def test_bars_say_how_many_and_their_range() -> None:
    assert "300 bars, values from 0.002227 to 0.402." in describe(bars_panel())


def test_heat_says_its_shape_and_range() -> None:
    text = describe(heat_panel(30, 10, None))
    assert text.startswith("Colour map, 30 rows (neuron) by 10 columns (direction), values from -0")
    assert text.endswith("to 0.95.")
    fenced = heat_panel(1, 2, None) | {"fenced": [[True, False]]}
    assert describe(fenced).endswith("; cells fenced off: 1.")


def test_scenes_say_their_clouds() -> None:
    assert describe(space_panel()) == (
        "Drawing in 3 dimensions: positive data (120 points), negative data (60 points), "
        "neurons (200 rays), centres (3 rays)."
    )


def test_pictures_say_their_rows() -> None:
    assert describe(pictures_panel()) == "Rows of 2 images of 2 by 3 pixels: image, <robust>."


def test_missing_panels_say_why() -> None:
    assert describe({"kind": "missing", "title": "", "reason": "r"}) == "Not drawn: r."


def test_letters_go_on_after_z() -> None:
    assert [letter(k) for k in (0, 25, 26, 51, 52)] == ["a", "z", "aa", "az", "ba"]
