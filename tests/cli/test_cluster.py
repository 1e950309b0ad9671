"""`--cluster`, `--dry-run`, `sweep` and `store` as a person meets them."""

from __future__ import annotations

import json
import sys

import pytest

from extremal.cli.main import main
from extremal.experiments import Outcome, Store, get

FAST = "min-vidal-2024/figure-7"


@pytest.fixture
def here(monkeypatch, capsys, tmp_path):
    """The command line in this process, in an empty folder: exit code, output, complaints."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def told(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["extremal", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        caught = capsys.readouterr()
        return left.value.code, caught.out, caught.err

    return told


@pytest.fixture
def sweep_file(tmp_path):
    (tmp_path / "own.py").write_text(
        "from extremal.experiments import Outcome\n"
        "def study(params, generator):\n"
        "    if params['x'] > 2: raise ArithmeticError('too much')\n"
        "    return Outcome({'square': params['x'] ** 2})\n"
    )
    path = tmp_path / "own.toml"
    path.write_text('function = "own:study"\nseeds = 2\n[axes]\nx = [0.5, 1.0, 2.0]\n')
    return path


@pytest.mark.parametrize("command", ["sweep", "store", "store check", "store import", "run"])
def test_help_fits_and_has_an_example(here, command):
    code, out, _ = here(*command.split(), "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert command == "store" or f"extremal {command}" in out


def test_without_dask_a_cluster_says_how_to_install_it(here, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, err = here("run", FAST, "-s", "smoke", "--cluster", "tcp://127.0.0.1:8786")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "python -m pip install 'extremal[cluster]'" in err
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []
    assert here("run", FAST, "-s", "smoke", "-j", "1", "--json")[0] == 0


def test_jobs_and_a_cluster_exclude_each_other(here):
    code, _, err = here("run", FAST, "--jobs", "2", "--cluster", "tcp://127.0.0.1:8786")
    assert code == 2
    assert err.startswith("error: --jobs must be left out with --cluster")


def test_a_wrong_address_is_one_line(here, tmp_path):
    code, _, err = here("run", FAST, "-s", "smoke", "--cluster", "localhost:8786")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "cluster must be an address such as tcp://host:8786, got localhost:8786" in err


@pytest.mark.parametrize(
    "words", ["--cluster localhost:8786", "--jobs 0", "--threads 0", "--jobs 0 --dry-run"]
)
@pytest.mark.parametrize("before", [False, True])
def test_options_that_are_refused_leave_nothing(here, tmp_path, words, before):
    trials = get(FAST).trials("smoke")
    for trial in trials[:1] if before else []:  # of which a dry run knows what they cost
        Store(tmp_path / "runs").write(trial, Outcome({}), 36.0)
    code, out, err = here("run", FAST, "-s", "smoke", *words.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "must be" in err
    assert list(tmp_path.rglob("begun.json")) == []


def test_a_dry_run_counts_and_computes_nothing(here, tmp_path):
    trials, store = get(FAST).trials("smoke"), Store(tmp_path / "runs")
    code, out, _ = here("run", FAST, "-s", "smoke", "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["trials"]["done"], told["core_hours"]) == (0, 0, None)
    assert not (tmp_path / "runs").exists()
    for trial in trials[:-1]:
        store.write(trial, Outcome({}), 36.0)
    told = json.loads(here("run", FAST, "-s", "smoke", "--dry-run", "--json")[1])
    assert told["trials"] == {"total": len(trials), "done": len(trials) - 1, "failed": 0}
    assert told["core_hours"] == pytest.approx(0.01)
    code, out, _ = here("run", FAST, "-s", "smoke", "--dry-run", "--jobs", "4")
    assert f"{len(trials)} trials, {len(trials) - 1} done, 1 to do." in out
    assert "About 0.01 core-hours, from the 2 trials of it that are stored." in out


def test_a_dry_run_knows_what_was_shipped(here):
    told = json.loads(here("run", "demo", "--dry-run", "--json")[1])
    assert told["core_hours"] > 0
    assert told["basis"] == "the results that were stored before"


def test_a_sweep_gives_a_table_plots_and_a_page(here, sweep_file, tmp_path):
    code, out, _ = here("sweep", str(sweep_file), "--dry-run")
    assert (code, "6 trials, 0 done, 6 to do." in out) == (0, True)
    code, out, err = here("sweep", str(sweep_file), "--jobs", "1")
    assert code == 0, err
    assert "6 of 6 trials done, 0 failed." in out
    folder = tmp_path / "runs/sweeps/own"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"table.csv", "table.parquet", "summary.json", "figure.png", "report.html"}
    assert (folder / "table.csv").read_text().splitlines()[1].split(",")[:3] == ["0.5", "0", "done"]
    told = json.loads(here("sweep", str(sweep_file), "--jobs", "1", "--json")[1])
    assert told["trials"] == {"done": 6, "failed": 0, "total": 6}
    assert [row["square"] for row in told["rows"]] == [0.25, 0.25, 1.0, 1.0, 4.0, 4.0]


def test_a_sweep_with_failures_says_why_and_ends_with_1(here, sweep_file):
    sweep_file.write_text(sweep_file.read_text().replace("2.0]", "2.0, 3.0]"))
    code, out, _ = here("sweep", str(sweep_file), "--jobs", "1")
    assert code == 1
    assert "failed: x = 3.0, seed 0: ArithmeticError: too much" in out


def test_a_sweep_is_shown_by_its_name(here, sweep_file):
    code, out, err = here("show", "sweeps/own")
    assert (code, out) == (2, "")
    assert "no sweep of the name sweeps/own has ended in runs; run it: extremal sweep" in err
    sweep_file.write_text(sweep_file.read_text().replace("2.0]", "3.0]"))
    assert here("sweep", str(sweep_file), "--jobs", "1")[0] == 1
    code, out, _ = here("show", "sweeps/own")
    assert code == 0
    assert "4 of 6 trials done, 2 failed." in out
    assert "failed: x = 3.0, seed 0: ArithmeticError: too much" in out
    assert "runs/sweeps/own/table.csv" in out
    told = json.loads(here("show", "sweeps/own", "--json")[1])
    assert told["trials"] == {"done": 4, "failed": 2, "total": 6}
    assert "runs/sweeps/own/report.html" in told["files"]


@pytest.mark.parametrize("words", ["--jobs 0", "--threads 0", "--jobs 0 --dry-run"])
def test_a_sweep_refuses_the_same_options(here, sweep_file, tmp_path, words):
    code, out, err = here("sweep", str(sweep_file), *words.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert not (tmp_path / "runs").exists()


OWN = """
from extremal.experiments import Claim, Experiment, Line, Outcome, Setting

def square(params, generator):
    with open("computed", "a") as file:
        file.write(f"{params['x']}\\n")
    return Outcome({"square": params["x"] ** 2})

record = Experiment(
    "mine/squares", "Squares", "nowhere", "my_record:square",
    {"x": Setting([1.0, 2.0, 3.0], "O")}, ("x",), (Line("s", "x", ("square",), "x", "x^2"),),
    claims=(Claim("2 * 2", "square", 4.0, 0.0, "school", {"x": 2.0}, against="theory"),),
    smoke={"x": [2.0]},
)
"""


@pytest.mark.usefixtures("users_folder")
def test_a_record_in_a_file_is_run_resumed_and_shown(here, tmp_path):
    (tmp_path / "my_record.py").write_text(OWN)
    assert "3 trials, 0 done" in here("run", "my_record.py", "--dry-run")[1]
    code, out, err = here("run", "my_record.py", "-s", "smoke", "-j", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["experiment"] == "mine/squares"
    code, out, _ = here("run", "my_record.py", "-j", "1", "--json")  # quick, of which one is there
    told = json.loads(out)
    assert (told["trials"]["done"], told["rows"][0]["ours"]) == (3, 4.0)
    assert (tmp_path / "computed").read_text().split() == ["2.0", "1.0", "3.0"]
    assert "runs/mine/squares/quick/report.html" in told["files"]
    for name in ("my_record.py", "my_record.py:record", "mine/squares"):
        shown = json.loads(here("show", name, "--json")[1])
        assert (shown["scale"], shown["rows"]) == ("quick", told["rows"])
    assert json.loads(here("show", "mine/squares", "-s", "smoke", "--json")[1])["scale"] == "smoke"
    assert here("store", "export", "a.tar", "--experiment", "my_record.py")[1] == (
        "3 trials in a.tar.\n"
    )
    code, out, err = here("show", "mine/none")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_a_wrong_sweep_is_one_line(here, tmp_path):
    code, out, err = here("sweep", str(tmp_path / "none.toml"))
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_stores_are_listed_checked_compacted_and_merged(here, tmp_path):
    store, trials = Store(tmp_path / "runs"), get(FAST).trials("smoke")
    for trial in trials:
        store.write(trial, Outcome({"value": trial.seed}), 36.0)
    code, out, _ = here("store", "list")
    assert (code, "0.030" in out) == (0, True)
    assert here("store", "check")[:2] == (0, "3 trials done and whole, 0 failed.\n")
    assert json.loads(here("store", "compact", "--json")[1]) == {"packed": 3}
    assert here("store", "export", "mine.tar", "--experiment", FAST)[:2] == (
        0,
        "3 trials in mine.tar.\n",
    )
    assert here("store", "export", "none.tar", "--experiment", "demo")[1].startswith("0 trials")
    code, out, _ = here("store", "import", "mine.tar", "--out", "other")
    assert (code, out) == (0, "3 trials added, 0 were here.\n")
    assert Store(tmp_path / "other").missing(trials) == []
    path = Store(tmp_path / "other").path(trials[0])
    path.write_bytes(path.read_bytes()[:-3])
    code, out, _ = here("store", "check", "--out", "other")
    assert code == 1
    assert "damaged, set aside:" in out
    assert path.name in out.replace("\n", "")
    code, out, _ = here("store", "import", "runs", "--out", "other", "--json")
    assert (code, json.loads(out)["added"]) == (0, 1)


def test_an_export_has_the_seeds_that_an_experiment_was_run_with(here, tmp_path):
    store, trials = Store(tmp_path / "runs"), get(FAST).trials("smoke", 12)
    for trial in trials:
        store.write(trial, Outcome({}), 0.0)
    begun = tmp_path / "runs" / FAST / "smoke" / "begun.json"
    begun.parent.mkdir(parents=True)
    begun.write_text('{"seeds": 12}')
    out = here("store", "export", "mine.tar", "--experiment", FAST, "--json")[1]
    assert json.loads(out)["trials"] == len(trials)


def test_half_an_archive_ends_with_2_and_says_what_was_taken(here, tmp_path):
    store, trials = Store(tmp_path / "runs"), get(FAST).trials("smoke")
    for trial in trials:
        store.write(trial, Outcome({}), 0.0)
    here("store", "export", "mine.tar")
    whole = (tmp_path / "mine.tar").read_bytes()
    blocks = -(-len(whole.rstrip(b"\0")) // 512)  # all but the zeros at a tar file's end
    (tmp_path / "mine.tar").write_bytes(whole[: 512 * blocks])
    code, out, err = here("store", "import", "mine.tar", "--out", "other")
    assert (code, out) == (2, "")
    assert err == "error: mine.tar is cut short; 3 trials were taken\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("store list", "store must be a folder with trials"),
        ("store check", "store must be a folder with trials"),
        ("store compact", "store must be a folder with trials"),
        ("store export x.zip", "store must be a folder with trials"),
        ("store import none.tar", "cannot read none.tar"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(here, words, said):
    code, out, err = here(*words.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
