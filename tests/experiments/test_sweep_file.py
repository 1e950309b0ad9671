"""Sweeps from a file: the grid, its table, its plots, and what is said of a wrong one."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from extremal.experiments import (
    Experiment,
    Setting,
    Store,
    estimate,
    get,
    read_sweep,
    run,
    summarise,
    sweep_rows,
)
from extremal.experiments.sweep_file import varied_parameters, with_default_panels
from extremal.report import save_rows
from tests.experiments import helpers_toy as toy

OWN = f"""
function = "{toy.STUDY}"
seeds = 2
[settings]
sleep = 0.0
[axes]
level = [1.0, 2.0, 4.0]
kind = ["a", "b"]
"""


def _sweep(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_a_grid_over_a_function(tmp_path: Path) -> None:
    record = read_sweep(_sweep(tmp_path, OWN))
    trials = record.trials("paper")
    assert record.name == "sweeps/mine"
    assert len(trials) == 3 * 2 * 2
    wanted = {"sleep": 0.0, "level": 1.0, "kind": "b"}
    assert (trials[2].params, trials[2].seed, trials[2].study) == (wanted, 0, toy.STUDY)


def test_a_grid_over_an_experiment_shares_its_results(tmp_path: Path) -> None:
    base = get("min-vidal-2024/figure-7")
    text = f'experiment = "{base.name}"\nscale = "smoke"\n[axes]\n{base.axes[0]} = '
    values = base.at("smoke")[base.axes[0]]
    record = read_sweep(_sweep(tmp_path, text + json.dumps(values)))
    assert [trial.key for trial in record.trials("paper")] == [
        trial.key for trial in base.trials("smoke")
    ]
    fixed = f'experiment = "{base.name}"\nscale = "smoke"\n[settings]\n{base.axes[0]} = '
    record = read_sweep(_sweep(tmp_path, fixed + json.dumps(values[0])))
    assert {trial.params[base.axes[0]] for trial in record.trials("paper")} == {values[0]}


def test_ranges_are_even_or_logarithmic_and_end_where_they_say(tmp_path: Path) -> None:
    text = f"""
function = "{toy.STUDY}"
[axes]
level = {{from = 0.1, to = 0.5, steps = 5}}
other = {{from = 1e-9, to = 1e-3, steps = 3, log = true}}
"""
    record = read_sweep(_sweep(tmp_path, text))
    trials = record.trials("paper")
    assert [trial.params["level"] for trial in trials[::3]] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [trial.params["other"] for trial in trials[:3]] == [1e-9, 1e-6, 1e-3]


def test_table_and_plots(tmp_path: Path) -> None:
    from pyarrow import parquet

    record, store = read_sweep(_sweep(tmp_path, OWN)), Store(tmp_path / "runs")
    trials = record.trials("paper")
    run(trials[:-1], store, jobs=1)
    store.fail(trials[-1], "ValueError: no\nmore", 0.0)
    rows = sweep_rows(record, store)
    assert [(row["level"], row["kind"], row["seed"]) for row in rows[:3]] == [
        (1.0, "a", 0),
        (1.0, "a", 1),
        (1.0, "b", 0),
    ]
    stored = store.read(trials[0])
    assert stored is not None
    assert rows[0]["value"] == stored.numbers["value"]
    assert (rows[-1]["status"], rows[-1]["reason"]) == ("failed", "ValueError: no")
    assert "value" not in rows[-1]
    table, packed = save_rows(rows, tmp_path / "out")
    with open(table, newline="") as file:
        read = list(csv.DictReader(file))
    assert float(read[0]["value"]) == rows[0]["value"]
    assert json.loads(read[0]["curve"]) == rows[0]["curve"]
    assert read[-1]["value"] == ""
    assert parquet.read_table(packed).to_pylist()[:-1] == [
        {name: row.get(name) for name in rows[0]} for row in rows[:-1]
    ]
    (line,) = with_default_panels(record, store).panels
    assert (line.x, line.y, line.by) == ("level", ("value",), "kind")
    panel = summarise(with_default_panels(record, store), "paper", store)["panels"][0]
    assert [series["label"] for series in panel["series"]] == ["a", "b"]
    values = [row["value"] for row in rows[:2]]
    assert panel["series"][0]["y"][0] == pytest.approx(sum(values) / 2, rel=1e-5)


def test_without_pyarrow_there_is_a_csv_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert [path.name for path in save_rows([{"a": 1, "b": [2]}], tmp_path)] == ["table.csv"]
    assert (tmp_path / "table.csv").read_text() == "a,b\n1,[2]\n"


def test_columns_of_several_kinds_are_json_in_parquet(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = [{"a": 1, "b": "x"}, {"a": [2.5]}, {"a": "y", "b": None}]
    _, packed = save_rows(rows, tmp_path)
    assert parquet.read_table(packed).to_pylist() == [
        {"a": "1", "b": "x"},
        {"a": "[2.5]", "b": None},
        {"a": '"y"', "b": None},
    ]


def test_plots_that_are_asked_for(tmp_path: Path) -> None:
    plot = '[[plots]]\nx = "radii"\ny = "curve"\nby = "level"\nlog = "y"\nwhere = {kind = "a"}\n'
    record = read_sweep(_sweep(tmp_path, OWN + plot))
    (line,) = record.panels
    assert (line.x, line.y, line.by, line.log) == ("radii", ("curve",), "level", "y")
    assert with_default_panels(record, Store(tmp_path)) is record
    store = Store(tmp_path / "runs")
    run(record.trials("paper"), store, jobs=1)
    panel = summarise(record, "paper", store)["panels"][0]
    assert [series["n"] for series in panel["series"]] == [2, 2, 2]


WRONG = {
    "no file at all": (None, "cannot read .*mine.toml: no such file"),
    "no TOML": ("a =", r"mine\.toml must be a TOML file, got "),
    "unknown key": ("functoin = 'm:f'", r"must have the keys .*function.*got \['functoin'\]"),
    "neither": ("seeds = 2", "must name one experiment or one function, got both or none"),
    "unknown experiment": ("experiment = 'nothing'", "unknown experiment 'nothing'"),
    "unknown setting": (
        "experiment = 'min-vidal-2024/figure-7'\n[settings]\nwidht = 3",
        r"widht must be a setting of min-vidal-2024/figure-7 \(",
    ),
    "no such module": ("function = 'no.such:f'", "No module named 'no'"),
    "a module with an error": (
        "function = 'bad_module:f'",
        "got SyntaxError: .*bad_module",
    ),
    "a module that exits": ("function = 'exiting_module:f'", "imported, got SystemExit: 3"),
    "no function": (
        f"function = '{toy.__name__}:STUDY'",
        "function must name a function, got",
    ),
    "seeds as an axis": (f"{OWN}seeds = [1, 2]\n", "axes must not have seeds, which is a number"),
    "seeds as a setting": (
        OWN.replace("sleep = 0.0", "seeds = 3"),
        "settings must not have seeds, which is a number",
    ),
    "a setting that is an axis": (
        OWN.replace("sleep = 0.0", "level = 7.0"),
        r"level must be in \[settings\] or in \[axes\], got both",
    ),
    "no such function": (f"function = '{toy.__name__}:nothing'", "nothing"),
    "no values": (OWN.replace("[1.0, 2.0, 4.0]", "[]"), "level must be a list or a range"),
    "half a range": (OWN.replace("[1.0, 2.0, 4.0]", "{from = 1}"), "level must have from, to"),
    "log of zero": (
        OWN.replace("[1.0, 2.0, 4.0]", "{from = 0, to = 1, steps = 3, log = true}"),
        "level must be above 0 where log = true",
    ),
    "no seeds": (OWN.replace("seeds = 2", "seeds = 0"), "seeds must be an integer >= 1"),
    "a name that leads elsewhere": (f"name = '../x'\n{OWN}", "name must be letters"),
    "a plot of nothing": (f"{OWN}\n[[plots]]\nx = 'level'", "plots must have x and y"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "bad_module.py").write_text("def f(:\n")
    (tmp_path / "exiting_module.py").write_text("raise SystemExit(3)\n")
    text, message = WRONG[case]
    path = tmp_path / "mine.toml" if text is None else _sweep(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        read_sweep(path)


def test_what_varies_is_found_by_looking_up_and_in_order() -> None:
    """Values that compare slowly would be compared with all before them in a quadratic search."""
    compared = []

    class Slow(float):
        __hash__ = float.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return float(self) == other

    points = [{"kind": "a", "sizes": [1, 2]}, {"kind": "b", "sizes": [2]}]
    values = [Slow(k) for k in range(200)]
    settings = {"x": Setting(values, "O"), "case": Setting(points, "O"), "one": Setting([3], "O")}
    record = Experiment("x", "", "", "m:f", settings, ("one", "x", "case"), ())
    found = varied_parameters(record, record.trials("paper"))
    assert found == {"x": values, "kind": ["a", "b"], "sizes": [[1, 2], [2]], "one": [3]}
    assert list(found) == ["x", "kind", "sizes", "one"]
    assert len(compared) <= 400


def test_an_estimate_takes_what_is_alike_then_the_mean_then_what_was_shipped(
    tmp_path: Path,
) -> None:
    from extremal.experiments import Outcome, Trial

    store = Store(tmp_path)
    trials = [Trial("m:f", {"a": a}, seed) for a in (1, 2, 3) for seed in (0, 1)]
    nothing = estimate(trials, store)
    assert (nothing.trials, nothing.done, nothing.seconds) == (6, 0, None)
    assert estimate(trials, store, shipped=2.0).seconds == 12.0
    store.write(trials[0], Outcome({}), 10.0)
    store.write(trials[2], Outcome({}), 40.0)
    store.fail(trials[4], "why", 3.0)
    found = estimate(trials, store, shipped=2.0)
    # Seed 1 of a = 1 and of a = 2 cost what seed 0 did; both of a = 3 the mean of what is done.
    assert found.seconds == 10.0 + 40.0 + 2 * 25.0
    assert (found.done, found.failed) == (2, 1)
