"""The plotly panels: plotly takes them, and they hold the same data as the summary."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from extremal.report.panel_style import CURVE_COLOURS
from extremal.report.plotly_panels import plotly_figures
from tests.report.helpers_summaries import (
    distance_panel,
    heat_panel,
    line_panel,
    named_panel,
    pictures_panel,
    plane_panel,
    space_panel,
)


def made(*panels: dict[str, Any]) -> list[dict[str, Any]]:
    return plotly_figures({"panels": list(panels)})


def test_plotly_accepts_each_panel_and_json_holds_it(summary: dict[str, Any]) -> None:
    found = plotly_figures(summary)
    assert len(found) == len(summary["panels"])
    for figure in found:
        go.Figure(figure)  # raises on an unknown property
        assert json.loads(json.dumps(figure, allow_nan=False)) == figure


def test_curves_and_bands_are_the_series() -> None:
    panel = distance_panel()
    data = made(panel)[0]["data"]
    for index, series in enumerate(panel["series"]):
        low, high, curve = data[3 * index : 3 * index + 3]
        assert (curve["x"], curve["y"]) == (series["x"], series["y"])
        assert (low["y"], high["y"]) == (series["low"], series["high"])
        assert high["fill"] == "tonexty"
        assert curve["name"] == series["label"]
        assert curve["line"]["color"] == CURVE_COLOURS[index]


def test_points_that_are_not_joined_have_bars_in_place_of_bands() -> None:
    panel = named_panel()
    figure = made(panel)[0]
    go.Figure(figure)
    assert json.loads(json.dumps(figure, allow_nan=False)) == figure
    first, second = figure["data"]
    assert first["mode"] == second["mode"] == "markers"
    assert first["offsetgroup"] != second["offsetgroup"]
    assert figure["layout"]["scattermode"] == "group"
    assert second["marker"]["symbol"] == "circle-open"
    assert first["error_y"]["array"] == pytest.approx([0.1, 0.2, None, 0.2])
    assert first["error_y"]["arrayminus"] == pytest.approx([0.1, 0.1, None, 0.1])
    alone = panel | {"series": [series | {"n": 1} for series in panel["series"]]}
    assert all("error_y" not in trace for trace in made(alone)[0]["data"])


def test_marks_are_shapes_with_labels_in_rows_of_their_own() -> None:
    panel = line_panel()
    layout = made(panel)[0]["layout"]
    places = [mark["at"] for mark in panel["marks"]]
    assert [shape["x0"] for shape in layout["shapes"]] == places
    assert [note["x"] for note in layout["annotations"]] == places
    assert len({note["yshift"] for note in layout["annotations"]}) == len(places)


def test_on_a_logarithmic_axis_labels_are_placed_by_logarithm() -> None:
    panel = {**line_panel(), "log": "x"}
    layout = made(panel)[0]["layout"]
    assert layout["xaxis"]["type"] == "log"
    # Shapes take values there and annotations exponents: plotly's own rule.
    assert layout["shapes"][1]["x0"] == pytest.approx(math.sqrt(2) / 2)
    assert layout["annotations"][1]["x"] == pytest.approx(math.log10(math.sqrt(2) / 2))


def test_ticks_of_few_decades_are_numbers_and_of_many_are_powers() -> None:
    few, many = distance_panel(), distance_panel()
    many["series"][0]["y"][0] = 1e-9
    first, second = (figure["layout"]["yaxis"] for figure in made(few, many))
    assert {"0.02", "0.05", "0.1"} <= set(first["ticktext"])
    assert second["exponentformat"] == "power"


def test_heat_is_white_at_zero() -> None:
    panel = {**heat_panel(4, 3, ["a", "b", "<c>"]), "low": -0.5, "high": 2.0}
    figure = made(panel)[0]
    heat = figure["data"][0]
    assert heat["z"] == panel["z"]
    assert heat["zmin"] == -heat["zmax"] == -2.0
    assert dict(map(tuple, heat["colorscale"]))[0.5] == "#f7f7f7"
    assert figure["layout"]["xaxis"]["ticktext"] == ["a", "b", "&lt;c&gt;"]
    assert figure["layout"]["yaxis"]["autorange"] == "reversed"


def test_heat_has_fences_and_names_of_rows() -> None:
    panel = heat_panel(2, 1, None) | {"rows": ["<b>", "c"], "fenced": [[True], [False]]}
    layout = made(panel)[0]["layout"]
    assert layout["yaxis"]["ticktext"] == ["&lt;b&gt;", "c"]
    assert len(layout["shapes"]) == 4
    assert layout["shapes"][0] | {"line": None} == {
        **{"type": "line", "line": None},
        **{"x0": 0.5, "y0": 0.5, "x1": 1.5, "y1": 0.5},
    }


def test_pictures_are_one_image_with_names_of_rows() -> None:
    figure = made(pictures_panel())[0]
    assert figure["data"][0]["z"][1][:4] == [[3] * 3, [4] * 3, [5] * 3, [255] * 3]
    assert figure["layout"]["yaxis"]["ticktext"] == ["image", "&lt;robust&gt;"]
    go.Figure(figure)


def test_arrows_end_at_their_heads_and_point_there() -> None:
    panel = plane_panel()
    lines, tips = made(panel)[0]["data"][:2]
    cloud = panel["clouds"][0]
    ends = np.array(cloud["points"]) + np.array(cloud["heads"])
    np.testing.assert_allclose(tips["x"], ends[:, 0])
    np.testing.assert_allclose(tips["y"], ends[:, 1])
    assert lines["x"][:3] == [cloud["points"][0][0], pytest.approx(ends[0, 0]), None]
    turn = np.radians(tips["marker"]["angle"])  # clockwise from up
    heads = np.array(cloud["heads"])
    directions = heads / np.linalg.norm(heads, axis=1, keepdims=True)
    np.testing.assert_allclose(np.stack([np.sin(turn), np.cos(turn)], axis=1), directions)


def test_rays_come_from_the_origin_in_space() -> None:
    panel = space_panel()
    centres = next(trace for trace in made(panel)[0]["data"] if trace["name"] == "centres")
    assert centres["type"] == "scatter3d"
    assert centres["line"]["dash"] == "dash"
    assert [centres[axis][0::3] for axis in "xyz"] == [[0.0] * 3] * 3
    assert [centres[axis][1::3] for axis in "xyz"] == (1.25 * np.eye(3)).tolist()


def test_missing_panels_say_why() -> None:
    figure = made({"kind": "missing", "title": "t", "reason": "failed: <b>"})[0]
    assert figure["data"] == []
    assert figure["layout"]["annotations"][0]["text"] == "Not drawn: failed: &lt;b&gt;."


def test_labels_are_escaped() -> None:
    panel = line_panel()
    panel["series"][0]["label"] = panel["xlabel"] = panel["marks"][0]["label"] = "<b>p</b> < 3"
    figure = made(panel)[0]
    safe = "&lt;b&gt;p&lt;/b&gt; &lt; 3"
    assert safe in [trace.get("name") for trace in figure["data"]]
    assert figure["layout"]["xaxis"]["title"]["text"] == safe
    assert figure["layout"]["annotations"][0]["text"] == safe


def test_infinite_and_missing_points_become_null() -> None:
    panel = space_panel()
    panel["clouds"][0]["points"][0] = [None, math.inf, 0.0]
    line = line_panel()
    line["series"][0]["y"][0] = math.inf
    scene, curves = made(panel, line)
    assert [scene["data"][0][axis][0] for axis in "xyz"] == [None, None, 0.0]
    assert curves["data"][2]["y"][0] is None
