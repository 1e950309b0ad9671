"""A summary as a whole: what it says of a run, and that it comes back as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extremal.experiments import (
    PROVENANCE,
    ArrayHeatMap,
    Claim,
    FileError,
    Line,
    Outcome,
    Store,
    load_summary,
    summarise,
    write_summary,
)
from tests.experiments.helpers_known_trials import known_experiment, row_of, summary_of


def test_a_summary_says_what_was_run_and_how(tmp_path: Path) -> None:
    experiment = known_experiment(notes="a note", broken=0.1)
    summary = summary_of(tmp_path, experiment)
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
    experiment, store = known_experiment(), Store(tmp_path)
    for trial in experiment.trials("paper"):
        store.write(trial, Outcome({}), 1.5)
    assert summarise(experiment, "paper", store)["seconds"] == 12.0


def test_other_numbers_of_seeds_are_counted_and_named(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, known_experiment(), seeds=1)
    assert summary["trials"] == {"done": 4, "failed": 0, "total": 4}
    (row,) = [row for row in summary["settings"] if row["name"] == "seeds"]
    assert (row["value"], row["mark"]) == (1, "O")


def test_numbers_that_are_not_finite_are_null_and_do_not_agree(tmp_path: Path) -> None:
    row = row_of(tmp_path, Claim("q", "odd", 1.0, 0.1, "", against="theory"))
    assert (row["ours"], row["low"], row["high"], row["ok"], row["n"]) == (
        None,
        1.0,
        None,
        False,
        8,
    )


def test_a_summary_comes_back_as_it_was_written(tmp_path: Path) -> None:
    panels = (ArrayHeatMap("h", "grid", "x", "y"), Line("l", "radii", ("bad",), "", ""))
    summary = summary_of(
        tmp_path,
        known_experiment(*panels, claims=(Claim("q", "odd", 1.0, 0.1, "", against="theory"),)),
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
