from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from extremal.experiments import (
    PROVENANCE,
    ArrayHeatMap,
    Bars,
    Claim,
    Experiment,
    FileError,
    ImageRows,
    Line,
    Outcome,
    Panel,
    ParameterHeatMap,
    PointSet,
    Scene,
    Setting,
    Store,
    VerticalLine,
    load_summary,
    run,
    summarise,
    write_summary,
)

STUDY = f"{__name__}:study"
RADII = [0.0, 0.5, 1.0]


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Numbers that the tests know beforehand; the seed is read back from the generator."""
    p, spread, seed = params["p"], params["spread"], generator.initial_seed()
    if spread == params["broken"]:
        raise ArithmeticError("broken on purpose")
    numbers = {
        "value": 10.0 * p + spread + seed,
        "third": 1 / 3,
        "seven": 0.7,
        "hit": float(seed == 0 or p == 3.0),
        "undefined": math.nan,
        "radii": RADII if p < 9 else [0.0, 0.5, 2.0],
        "curve": [p - radius * (1 + seed) for radius in RADII],
        "short": [1.0],
        "odd": math.inf if seed else 1.0,
        "bad": [math.nan, 1.0, 2.0],
        "names": ["a", "b"],
        "word": "high",
    }
    if p == 3.0:
        numbers["only_3"] = spread
    grid = torch.arange(6.0, dtype=torch.float64).reshape(3, 2) / 3 + p
    arrays = {"grid": grid, "space": grid.repeat(1, 2)[:, :3], "none": torch.zeros(0, 2)}
    arrays["grey"] = torch.linspace(0, 1, 12).reshape(2, 2, 3, 1)
    return Outcome(numbers, arrays)


def _experiment(
    *panels: Panel, claims: tuple[Claim, ...] = (), broken: float = -1.0, **changes: Any
) -> Experiment:
    settings = {
        "p": Setting([1.0, 3.0], "S", "Section 2"),
        "spread": Setting([0.5, 0.1], "A"),
        "shape": Setting((2, 3), "O"),
        "broken": Setting(broken, "O"),
        "seeds": Setting(2, "O"),
    }
    base = Experiment(
        "me/one", "One", "Me 2024", STUDY, settings, ("p", "spread"), panels, claims, columns=2
    )
    return dataclasses.replace(base, **changes)


def _summary(tmp_path: Path, experiment: Experiment, **given: Any) -> dict[str, Any]:
    store = Store(tmp_path)
    run(experiment.trials("paper", given.get("seeds")), store, jobs=1)
    return summarise(experiment, "paper", store, **given)


def _panel(tmp_path: Path, panel: Panel, **given: Any) -> dict[str, Any]:
    (found,) = _summary(tmp_path, _experiment(panel, **given))["panels"]
    assert found["title"] == panel.title
    return found


def _row(tmp_path: Path, claim: Claim, **given: Any) -> dict[str, Any]:
    (found,) = _summary(tmp_path, _experiment(claims=(claim,), **given))["rows"]
    return found


def test_a_summary_says_what_was_run_and_how(tmp_path: Path) -> None:
    experiment = _experiment(notes="a note", broken=0.1)
    summary = _summary(tmp_path, experiment)
    assert list(summary) == [
        *("experiment", "title", "source", "scale", "version", "trials", "failures"),
        *("settings", "marks", "notes", "rows", "panels", "seconds", "columns"),
    ]
    assert summary["experiment"] == "me/one"
    assert summary["version"] == experiment.version
    assert (summary["scale"], summary["notes"], summary["columns"]) == ("paper", "a note", 2)
    assert summary["trials"] == {"done": 4, "failed": 4, "total": 8}
    assert summary["marks"] == PROVENANCE
    first = summary["failures"][0]
    assert (first["params"]["p"], first["params"]["spread"], first["seed"]) == (1.0, 0.1, 0)
    assert first["reason"].startswith("ArithmeticError: broken on purpose")
    row = {"name": "p", "value": [1.0, 3.0], "mark": "S", "note": "Section 2"}
    assert summary["settings"][0] == row


def test_the_seconds_are_those_of_the_trials(tmp_path: Path) -> None:
    experiment, store = _experiment(), Store(tmp_path)
    for trial in experiment.trials("paper"):
        store.write(trial, Outcome({}), 1.5)
    assert summarise(experiment, "paper", store)["seconds"] == 12.0


def test_other_numbers_of_seeds_are_counted_and_named(tmp_path: Path) -> None:
    summary = _summary(tmp_path, _experiment(), seeds=1)
    assert summary["trials"] == {"done": 4, "failed": 0, "total": 4}
    (row,) = [row for row in summary["settings"] if row["name"] == "seeds"]
    assert (row["value"], row["mark"]) == (1, "O")


def test_a_claim_is_the_mean_over_the_matching_trials(tmp_path: Path) -> None:
    claim = Claim(
        "q", "value", 31.0, 0.25, "Table 1", where={"p": 3, "spread": 0.5}, against="theory"
    )
    assert _row(tmp_path, claim) == {
        "quantity": "q",
        "published": 31.0,
        "ours": 31.0,
        "low": 30.5,
        "high": 31.5,
        "tolerance": 0.25,
        "ok": True,
        "source": "Table 1",
        "rule": "near",
        "n": 2,
    }


@pytest.mark.parametrize(
    ("rule", "published", "ok"),
    [
        ("near", 30.9, True),
        ("near", 31.1, True),
        ("near", 30.8, False),
        ("near", 31.2, False),
        ("below", 31.4, True),  # every trial counts: the largest is 31.5
        ("below", 31.3, False),
        ("below", 40.0, True),
        ("above", 30.6, True),  # the smallest is 30.5
        ("above", 30.7, False),
        ("above", 20.0, True),
    ],
)
def test_the_rules_of_agreement(tmp_path: Path, rule: Any, published: float, ok: bool) -> None:
    where = {"p": 3.0, "spread": 0.5}
    row = _row(tmp_path, Claim("q", "value", published, 0.1, "", where, rule, against="theory"))
    assert row["ours"] == 31.0
    assert row["ok"] is ok


@pytest.mark.parametrize(
    ("published", "tolerance", "ok"),
    [(30.4, 0.0, True), (30.5, 0.0, False), (30.2, 0.2, True), (30.3, 0.2, False)],
)
def test_over_is_strict_in_every_trial(
    tmp_path: Path, published: float, tolerance: float, ok: bool
) -> None:
    """The smallest is 30.5: a tie is no agreement, and the tolerance is a margin."""
    where = {"p": 3.0, "spread": 0.5}
    row = _row(
        tmp_path, Claim("q", "value", published, tolerance, "", where, "over", against="theory")
    )
    assert row["ok"] is ok


def test_a_reported_number_has_no_verdict(tmp_path: Path) -> None:
    where = {"p": 3.0, "spread": 0.5}
    row = _row(tmp_path, Claim("q", "value", None, 0.0, "", where, "reported", against="theory"))
    assert (row["ours"], row["low"], row["high"]) == (31.0, 30.5, 31.5)
    assert (row["published"], row["ok"], row["rule"]) == (None, None, "reported")


def test_a_claim_without_a_number_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    row = _row(tmp_path, Claim("q", "undefined", 1.0, 0.1, "", against="theory"))
    assert (row["ours"], row["ok"]) == (None, None)
    assert row["n"] > 0


def test_decimal_fractions_agree_at_the_edge_of_the_tolerance(tmp_path: Path) -> None:
    assert 0.8 - 0.1 > 0.7
    assert _row(tmp_path, Claim("q", "seven", 0.8, 0.1, "", against="theory"))["ok"] is True


def test_published_values_can_depend_on_the_settings_at_the_scale(tmp_path: Path) -> None:
    claim = Claim(
        "q", "value", lambda s: sum(s["p"]), 1.0, "", scales=("smoke", "paper"), against="theory"
    )
    experiment = _experiment(claims=(claim,), smoke={"p": [7.0]})
    assert _summary(tmp_path, experiment)["rows"][0]["published"] == 4.0
    assert summarise(experiment, "smoke", Store(tmp_path))["rows"][0]["published"] == 7.0
    assert summarise(experiment, "quick", Store(tmp_path))["rows"] == []


@pytest.mark.parametrize(("offset", "ok"), [(0.0, True), (0.4, True), (0.6, False)])
def test_a_claim_can_be_held_against_other_trials(tmp_path: Path, offset: float, ok: bool) -> None:
    # Seeds 0 and 1 give 30.5 and 31.5 for spread 0.5; the mean for spread 0.5 + offset must be
    # within that range.
    claim = Claim(
        "q", "value", {"p": 3.0, "spread": 0.5}, 0.0, "", {"spread": 0.5 + offset}, against="theory"
    )
    given = {"p": Setting([3.0], "O"), "spread": Setting([0.5, 0.5 + offset], "O")}
    if offset == 0.0:
        given["spread"] = Setting([0.5], "O")
    rest = {"broken": Setting(-1.0, "O"), "seeds": Setting(2, "O")}
    row = _row(tmp_path, claim, settings={**given, **rest})
    assert row["published"] == 31.0
    assert row["tolerance"] == 0.5
    assert row["ours"] == pytest.approx(31.0 + offset)
    assert row["ok"] is ok


@pytest.mark.parametrize(
    ("value", "rule", "ok"),
    [("hit", "above", True), ("hit", "over", False), ("value", "over", True)],
)
def test_over_other_trials_is_seed_by_seed(tmp_path: Path, value: str, rule: Any, ok: bool) -> None:
    """Hits are 1 and 1 for p = 3, 1 and 0 for p = 1: more on average, and a tie in seed 0."""
    claim = Claim(
        "q",
        value,
        {"p": 1.0, "spread": 0.5},
        0.0,
        "",
        {"p": 3.0, "spread": 0.5},
        rule,
        against="theory",
    )
    assert _row(tmp_path, claim)["ok"] is ok


@pytest.mark.parametrize("value", ["undefined", "only_3"])
def test_a_lead_that_is_not_known_has_no_verdict(tmp_path: Path, value: str) -> None:
    others = {"p": 1.0, "spread": 0.5 if value == "undefined" else 7.0}
    claim = Claim("q", value, others, 0.0, "", {"p": 3.0, "spread": 0.5}, "over", against="theory")
    assert _row(tmp_path, claim)["ok"] is None


def test_seeds_are_compared_one_by_one(tmp_path: Path) -> None:
    claim = Claim("q", "value", {"p": 1.0}, 0.0, "", {"p": 3.0}, "over", against="theory")
    with pytest.raises(ValueError, match="where of 'q' must match one trial of a seed"):
        _row(tmp_path, claim)


@pytest.mark.parametrize(
    ("rule", "offset", "ok"),
    [("above", 0.6, True), ("above", -0.1, False), ("below", 0.1, False), ("below", -0.6, True)],
)
def test_an_order_of_trials_is_one_of_their_means(
    tmp_path: Path, rule: Any, offset: float, ok: bool
) -> None:
    # 30.5 and 31.5 for spread 0.5, both moved by the offset for the other spread.
    claim = Claim(
        "q", "value", {"spread": 0.5}, 0.0, "", {"spread": 0.5 + offset}, rule, against="theory"
    )
    given = {"p": Setting([3.0], "O"), "spread": Setting([0.5, 0.5 + offset], "O")}
    rest = {"broken": Setting(-1.0, "O"), "seeds": Setting(2, "O")}
    row = _row(tmp_path, claim, settings={**given, **rest})
    assert (row["published"], row["tolerance"]) == (31.0, 0.0)
    assert row["ours"] == pytest.approx(31.0 + offset)
    assert row["ok"] is ok


def test_a_claim_against_trials_that_are_not_there_is_open(tmp_path: Path) -> None:
    claim = Claim("q", "value", {"spread": 0.1}, 0.0, "", where={"spread": 0.5}, against="theory")
    row = _row(tmp_path, claim, broken=0.1)
    assert row["published"] is None
    assert row["ok"] is None


def test_a_claim_with_no_trial_done_is_open(tmp_path: Path) -> None:
    row = _row(
        tmp_path,
        Claim("q", "value", 1.0, 0.1, "", where={"spread": 0.1}, against="theory"),
        broken=0.1,
    )
    assert (row["ours"], row["low"], row["high"], row["ok"], row["n"]) == (None,) * 4 + (0,)
    assert (
        _row(tmp_path, Claim("q", "value", 1.0, 0.1, "", where={"p": 2.0}, against="theory"))["n"]
        == 0
    )


def test_numbers_that_are_not_finite_are_null_and_do_not_agree(tmp_path: Path) -> None:
    row = _row(tmp_path, Claim("q", "odd", 1.0, 0.1, "", against="theory"))
    assert (row["ours"], row["low"], row["high"], row["ok"], row["n"]) == (
        None,
        1.0,
        None,
        False,
        8,
    )


def test_a_line_of_scalars_groups_by_a_parameter(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value",), "x", "y", by="p", labels={"3": "cubic"}, log="x")
    found = _panel(tmp_path, panel)
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
    found = _panel(tmp_path, panel)
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
    labels = [series["label"] for series in _panel(tmp_path, panel)["series"]]
    assert labels == ["value, p = 1", "value, p = 3", "1/3, p = 1", "1/3, p = 3"]


def test_names_of_curves_may_come_with_their_labels(tmp_path: Path) -> None:
    panel = Line(
        "t", "spread", {"value": "ours", "third": "1/3"}, "", "", by="p", labels={"3": "q"}
    )
    labels = [series["label"] for series in _panel(tmp_path, panel)["series"]]
    assert labels == ["ours, p = 1", "ours, q", "1/3, p = 1", "1/3, q"]


def test_a_value_of_by_has_a_style_of_its_own(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value",), "", "", by="p", styles={"3": "dashed"})
    styles = [series["style"] for series in _panel(tmp_path, panel)["series"]]
    assert styles == ["solid", "dashed"]


def test_a_curve_that_only_some_values_have_is_drawn_for_those(tmp_path: Path) -> None:
    panel = Line("t", "spread", ("value", "only_3"), "", "", by="p")
    labels = [series["label"] for series in _panel(tmp_path, panel)["series"]]
    assert labels == ["value, p = 1", "value, p = 3", "only_3, p = 3"]


def test_a_curve_counts_the_fewest_trials_behind_a_point(tmp_path: Path) -> None:
    experiment = _experiment(Line("t", "spread", ("third",), "", "", where={"p": 1.0}))
    store = Store(tmp_path)
    run(experiment.trials("paper")[:3], store, jobs=1)
    (panel,) = summarise(experiment, "paper", store)["panels"]
    assert panel["series"][0]["n"] == 1
    assert panel["series"][0]["y"] == [0.333333, 0.333333]


def test_bars_heat_and_scene_are_of_the_first_matching_trial(tmp_path: Path) -> None:
    where = {"p": 3.0, "shape": [2, 3]}
    assert _panel(tmp_path, Bars("b", "curve", "x", "y", where)) == {
        "kind": "bars",
        "title": "b",
        "xlabel": "x",
        "ylabel": "y",
        "y": [3.0, 2.5, 2.0],
    }
    grid = [[3.0, 3.33333], [3.66667, 4.0], [4.33333, 4.66667]]
    heat = _panel(tmp_path, ArrayHeatMap("h", "grid", "x", "y", "names", where, high=5.0))
    axes = {"title": "h", "xlabel": "x", "ylabel": "y"}
    colours = {"columns": ["a", "b"], "low": -1.0, "high": 5.0}
    assert heat == {"kind": "heat", **axes, "z": grid, **colours}
    assert _panel(tmp_path, ArrayHeatMap("h", "grid", "x", "y"))["columns"] is None

    clouds = (PointSet("grid", "g", "arrows", "grid", "accent"), PointSet("none", "nobody"))
    scene = _panel(tmp_path, Scene("s", clouds, where))
    assert (scene["kind"], scene["dim"]) == ("scene", 2)
    look = {"label": "g", "style": "arrows", "colour": "accent"}
    assert scene["clouds"][0] == {**look, "points": grid, "heads": grid}
    assert (scene["clouds"][1]["points"], scene["clouds"][1]["heads"]) == ([], None)
    assert _panel(tmp_path, Scene("s", (PointSet("space", "x"),)))["dim"] == 3


def test_a_diagram_is_of_means_over_two_parameters(tmp_path: Path) -> None:
    panel = ParameterHeatMap("d", "spread", "p", "value", "x", "y", outline="seven")
    found = _panel(tmp_path, panel)
    assert (found["kind"], found["columns"], found["rows"]) == ("heat", [0.1, 0.5], [3.0, 1.0])
    assert found["z"] == [[30.6, 31.0], [10.6, 11.0]]  # seeds 0 and 1 add one half
    assert found["fenced"] == [[True, True], [True, True]]
    assert (
        _panel(tmp_path, dataclasses.replace(panel, outline="third"))["fenced"]
        == [[False, False]] * 2
    )
    assert _panel(tmp_path, dataclasses.replace(panel, outline=None))["fenced"] is None


def test_cells_of_a_diagram_may_be_empty(tmp_path: Path) -> None:
    experiment, store = (
        _experiment(ParameterHeatMap("d", "spread", "p", "value", "", "")),
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
    experiment = _experiment(*panels, broken=0.1)
    none = summarise(experiment, "paper", Store(tmp_path / "nothing"))
    assert none["trials"] == {"done": 0, "failed": 0, "total": 8}
    missing = {"kind": "missing", "title": "l", "reason": "no trial of it is done yet"}
    assert none["panels"][0] == missing
    found = _summary(tmp_path, experiment)["panels"]
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
        _panel(tmp_path, panel)


def test_lists_of_different_places_are_not_averaged(tmp_path: Path) -> None:
    panel = Line("l", "radii", ("curve",), "", "")
    settings = {**_experiment().settings, "p": Setting([1.0, 9.0], "S")}
    with pytest.raises(ValueError, match="radii must be the same list in all trials"):
        _panel(tmp_path, panel, settings=settings)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            Claim("q", "value", 1.0, 0.1, "", {"seed": 0}, against="theory"),
            "where of 'q' must use parameters",
        ),
        (Claim("q", "word", 1.0, 0.1, "", against="theory"), "word must be a number for 'q'"),
        (Claim("q", "curve", 1.0, 0.1, "", against="theory"), "curve must be a number for 'q'"),
    ],
)
def test_claims_that_ask_for_nonsense_are_refused(
    tmp_path: Path, claim: Claim, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _row(tmp_path, claim)


def test_a_claim_says_what_it_is_held_against() -> None:
    with pytest.raises(TypeError, match="'against'"):
        Claim("q", "value", 1.0, 0.1, "")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="against of 'q' must be one of 'published', 'theory'"):
        Claim("q", "value", 1.0, 0.1, "", against="poster")  # type: ignore[arg-type]


def test_a_summary_comes_back_as_it_was_written(tmp_path: Path) -> None:
    panels = (ArrayHeatMap("h", "grid", "x", "y"), Line("l", "radii", ("bad",), "", ""))
    summary = _summary(
        tmp_path, _experiment(*panels, claims=(Claim("q", "odd", 1.0, 0.1, "", against="theory"),))
    )
    path = tmp_path / "new" / "summary.json"
    write_summary(path, summary)
    assert load_summary(path) == summary
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == summary
    assert [entry.name for entry in path.parent.iterdir()] == ["summary.json"]


def test_bad_summaries_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with pytest.raises(FileError, match="no such file"):
        load_summary(path)
    for text in ("{", "[]", '{"rows": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"summary\.json must hold a summary"):
            load_summary(path)


def test_points_of_names_are_told_from_curves(tmp_path: Path) -> None:
    assert "joined" not in _panel(tmp_path, Line("t", "radii", ("curve",), "", ""))
    assert _panel(tmp_path, Line("t", "radii", ("curve",), "", "", joined=False))["joined"] is False


def test_a_share_has_the_interval_of_wilson(tmp_path: Path) -> None:
    """6 of 8: its ends are where the normal test of a probability just rejects the share."""
    row = _row(tmp_path, Claim("q", "hit", 1.0, 0.3, "s", interval="share", against="theory"))
    assert (row["ours"], row["n"], row["ok"]) == (0.75, 8, True)
    for end in (row["low"], row["high"]):
        assert abs(0.75 - end) / math.sqrt(end * (1 - end) / 8) == pytest.approx(1.959964)
    assert row["low"] < 0.75 < row["high"]


def test_a_share_is_of_zeros_and_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="value must be 0 or 1 in each trial"):
        _row(tmp_path, Claim("q", "value", 1.0, 0.3, "s", interval="share", against="theory"))


def test_a_slope_is_fitted_to_all_trials(tmp_path: Path) -> None:
    points = [(p, 10 * p + s + seed) for p in (1.0, 3.0) for s in (0.1, 0.5) for seed in (0, 1)]
    for kind, change in (("exponential", float), ("power", math.log2)):
        known = stats.linregress([change(x) for x, _ in points], [math.log2(y) for _, y in points])
        reach = stats.t.ppf(0.975, 6) * known.stderr
        claim = Claim(
            "q", "value", 0.1, 0.0, "s", {}, "above", interval=kind, abscissa="p", against="theory"
        )
        row = _row(tmp_path / kind, claim)
        assert row["ours"] == pytest.approx(known.slope)
        assert row["low"] == pytest.approx(known.slope - reach, rel=1e-4)
        assert row["high"] == pytest.approx(known.slope + reach, rel=1e-4)
        assert row["ok"] == (row["low"] >= 0.1)


def test_a_fit_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    """Two points of each trial, (0.5, 1) and (1, 2): one doubling on a half."""
    claim = Claim(
        "q",
        "bad",
        1.9,
        0.0,
        "s",
        {},
        "above",
        interval="exponential",
        abscissa="radii",
        against="theory",
    )
    row = _row(tmp_path, claim)
    assert (row["ours"], row["ok"]) == (pytest.approx(2.0), True)
    claim = dataclasses.replace(claim, where={"p": 1.0, "spread": 0.1}, abscissa="short")
    with pytest.raises(ValueError, match="bad must be as long as 'short', 1, got 3"):
        _row(tmp_path / "other", claim)


def test_pictures_keep_eight_bits(tmp_path: Path) -> None:
    found = _panel(tmp_path, ImageRows("t", {"grey": "first"}))
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
        _panel(tmp_path, ImageRows("t", {name: "first"}))
