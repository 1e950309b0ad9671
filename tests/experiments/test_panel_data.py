"""What panels hold of trials: curves, bars, maps, scenes and pictures."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import pytest

from extremal.experiments import (
    ArrayHeatMap,
    Bars,
    ImageRows,
    Line,
    Panel,
    ParameterHeatMap,
    PointSet,
    Scene,
    Setting,
    Store,
    VerticalLine,
    run,
    summarise,
)
from tests.experiments.helpers_known_trials import RADII, known_experiment, panel_of, summary_of


def test_a_line_of_scalars_groups_by_a_parameter(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value",), "x", "y", by="p", labels={"3": "cubic"}, log="x")
    found = panel_of(tmp_path, panel)
    assert (found["kind"], found["xlabel"], found["ylabel"], found["log"]) == (
        "line",
        "x",
        "y",
        "x",
    )
    assert found["marks"] == []
    first, second = found["series"]
    assert first == {
        "label": "p = 1",
        "x": [0.1, 0.5],
        "y": [10.6, 11.0],
        "low": [10.1, 10.5],
        "high": [11.1, 11.5],
        "n": 2,
        "style": "solid",
    }
    assert (second["label"], second["y"]) == ("cubic", [30.6, 31.0])


def test_a_line_of_lists_averages_them_elementwise(tmp_path: Path) -> None:
    marks = (VerticalLine(lambda s: s["p"][1] / 9, "critical"), VerticalLine(0.5, "half"))
    panel = Line(
        "t",
        "radii",
        ("curve", "bad"),
        "x",
        "y",
        where={"p": 3.0},
        labels={"curve": "attack"},
        styles={"bad": "dotted"},
        vertical_lines=marks,
    )
    found = panel_of(tmp_path, panel)
    curve, bad = found["series"]
    assert (curve["label"], curve["style"], curve["n"]) == ("attack", "solid", 4)
    assert (bad["label"], bad["style"]) == ("bad", "dotted")
    assert curve["x"] == RADII
    assert curve["y"] == [3.0, 2.25, 1.5]
    assert (curve["low"], curve["high"]) == ([3.0, 2.0, 1.0], [3.0, 2.5, 2.0])
    assert bad["y"] == [None, 1.0, 2.0]
    assert found["marks"] == [{"at": 0.333333, "label": "critical"}, {"at": 0.5, "label": "half"}]


def test_curves_by_value_and_name_have_both_in_their_labels(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value", "third"), "", "", by="p", labels={"third": "1/3"})
    labels = [series["label"] for series in panel_of(tmp_path, panel)["series"]]
    assert labels == ["value, p = 1", "value, p = 3", "1/3, p = 1", "1/3, p = 3"]


def test_names_of_curves_may_come_with_their_labels(tmp_path: Path) -> None:
    panel = Line(
        "t", "spread", {"value": "ours", "third": "1/3"}, "", "", by="p", labels={"3": "q"}
    )
    labels = [series["label"] for series in panel_of(tmp_path, panel)["series"]]
    assert labels == ["ours, p = 1", "ours, q", "1/3, p = 1", "1/3, q"]


def test_a_value_of_by_has_a_style_of_its_own(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value",), "", "", by="p", styles={"3": "dashed"})
    styles = [series["style"] for series in panel_of(tmp_path, panel)["series"]]
    assert styles == ["solid", "dashed"]


def test_a_curve_that_only_some_values_have_is_drawn_for_those(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value", "only_3"), "", "", by="p")
    labels = [series["label"] for series in panel_of(tmp_path, panel)["series"]]
    assert labels == ["value, p = 1", "value, p = 3", "only_3, p = 3"]


def test_a_curve_counts_the_fewest_trials_behind_a_point(tmp_path: Path) -> None:
    experiment = known_experiment(Line("t", "spread", ("third",), "", "", where={"p": 1.0}))
    store = Store(tmp_path)
    run(experiment.trials("paper")[:3], store, jobs=1)
    (panel,) = summarise(experiment, "paper", store)["panels"]
    assert panel["series"][0]["n"] == 1
    assert panel["series"][0]["y"] == [0.333333, 0.333333]


def test_bars_heat_and_scene_are_of_the_first_matching_trial(tmp_path: Path) -> None:
    where = {"p": 3.0, "shape": [2, 3]}
    assert panel_of(tmp_path, Bars("b", "curve", "x", "y", where)) == {
        "kind": "bars",
        "title": "b",
        "xlabel": "x",
        "ylabel": "y",
        "y": [3.0, 2.5, 2.0],
    }
    grid = [[3.0, 3.33333], [3.66667, 4.0], [4.33333, 4.66667]]
    heat = panel_of(tmp_path, ArrayHeatMap("h", "grid", "x", "y", "names", where, high=5.0))
    axes = {"title": "h", "xlabel": "x", "ylabel": "y"}
    colours = {"columns": ["a", "b"], "low": -1.0, "high": 5.0}
    assert heat == {"kind": "heat", **axes, "z": grid, **colours}
    assert panel_of(tmp_path, ArrayHeatMap("h", "grid", "x", "y"))["columns"] is None

    clouds = (PointSet("grid", "g", "arrows", "grid", "accent"), PointSet("none", "nobody"))
    scene = panel_of(tmp_path, Scene("s", clouds, where))
    assert (scene["kind"], scene["dim"]) == ("scene", 2)
    look = {"label": "g", "style": "arrows", "colour": "accent"}
    assert scene["clouds"][0] == {**look, "points": grid, "heads": grid}
    assert (scene["clouds"][1]["points"], scene["clouds"][1]["heads"]) == ([], None)
    assert panel_of(tmp_path, Scene("s", (PointSet("space", "x"),)))["dim"] == 3


def test_a_diagram_is_of_means_over_two_parameters(tmp_path: Path) -> None:
    panel = ParameterHeatMap("d", "spread", "p", "value", "x", "y", outline="seven")
    found = panel_of(tmp_path, panel)
    assert (found["kind"], found["columns"], found["rows"]) == ("heat", [0.1, 0.5], [3.0, 1.0])
    assert found["z"] == [[30.6, 31.0], [10.6, 11.0]]  # seeds 0 and 1 add one half
    assert found["fenced"] == [[True, True], [True, True]]
    assert (
        panel_of(tmp_path, dataclasses.replace(panel, outline="third"))["fenced"]
        == [[False, False]] * 2
    )
    assert panel_of(tmp_path, dataclasses.replace(panel, outline=None))["fenced"] is None


def test_cells_of_a_diagram_may_be_empty(tmp_path: Path) -> None:
    experiment, store = (
        known_experiment(ParameterHeatMap("d", "spread", "p", "value", "", "")),
        Store(tmp_path),
    )
    trials = experiment.trials("paper")
    run([t for t in trials if t.params["p"] * t.params["spread"] != 1.5], store, jobs=1)
    (panel,) = summarise(experiment, "paper", store)["panels"]
    assert panel["z"][0][0] == 30.6
    assert panel["z"][0][1] is None


def test_what_is_not_there_is_a_missing_panel(tmp_path: Path) -> None:
    panels = (
        Line("l", "spread", ("value",), "", "", where={"spread": 0.1}),
        Bars("b", "curve", "", "", where={"spread": 0.1}),
        ArrayHeatMap("h", "grid", "", "", where={"spread": 0.1}),
        Scene("s", (PointSet("none", ""),)),
    )
    experiment = known_experiment(*panels, broken=0.1)
    none = summarise(experiment, "paper", Store(tmp_path / "nothing"))
    assert none["trials"] == {"done": 0, "failed": 0, "total": 8}
    missing = {"kind": "missing", "title": "l", "reason": "no trial of it is done yet"}
    assert none["panels"][0] == missing
    found = summary_of(tmp_path, experiment)["panels"]
    assert [panel["kind"] for panel in found] == ["missing"] * 4
    assert [panel["title"] for panel in found] == ["l", "b", "h", "s"]
    assert found[1]["reason"] == "failed: ArithmeticError: broken on purpose"


@pytest.mark.parametrize(
    ("panel", "message"),
    [
        (Bars("b", "curve", "", "", {"q": 1}), r"where of 'b' must use parameters .*, got q"),
        (Line("l", "spread", ("value",), "", "", by="q"), "where of 'l' must use parameters"),
        (Line("l", "third", ("value",), "", ""), "x of a line must be a parameter"),
        (Line("l", "radii", ("nothing",), "", ""), "name one of value, third.*got nothing"),
        (Line("l", "radii", ("short",), "", ""), r"short must be as long as 'radii' \(3\), got 1"),
        (Bars("b", "value", "", ""), "value must be a list"),
        (ArrayHeatMap("h", "curve", "", ""), r"curve must be a \(rows, columns\) array"),
        (ArrayHeatMap("h", "space", "", "", "names"), "names must name 3 columns"),
        (
            Scene("s", (PointSet("grid", ""), PointSet("space", ""))),
            "s must have all clouds in 2 or",
        ),
    ],
)
def test_records_that_ask_for_nonsense_are_refused(
    tmp_path: Path, panel: Panel, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        panel_of(tmp_path, panel)


def test_lists_of_different_places_are_not_averaged(tmp_path: Path) -> None:
    panel = Line("l", "radii", ("curve",), "", "")
    settings = {**known_experiment().settings, "p": Setting([1.0, 9.0], "S")}
    with pytest.raises(ValueError, match="radii must be the same list in all trials"):
        panel_of(tmp_path, panel, settings=settings)


def test_points_of_names_are_told_from_curves(tmp_path: Path) -> None:
    assert "joined" not in panel_of(tmp_path, Line("t", "radii", ("curve",), "", ""))
    assert (
        panel_of(tmp_path, Line("t", "radii", ("curve",), "", "", joined=False))["joined"] is False
    )


def test_pictures_keep_eight_bits(tmp_path: Path) -> None:
    found = panel_of(tmp_path, ImageRows("t", {"grey": "first"}))
    assert found["shape"] == [2, 3, 1]
    (row,) = found["rows"]
    assert row["label"] == "first"
    pixels = [value for image in row["images"] for value in base64.b64decode(image)]
    assert pixels == [round(255 * k / 11) for k in range(12)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "t must name arrays of"),
        ("grid", "grid must be an"),
        ("space", "space must be an"),
    ],
)
def test_bad_pictures_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        panel_of(tmp_path, ImageRows("t", {name: "first"}))
