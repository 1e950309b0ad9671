"""The command line as a person meets it: output, exit codes, one line for a mistake."""

import json
import os
import signal
import subprocess
import sys

import pytest

from extremal.cli.main import COMMAND_LINES, imported_command, main
from extremal.experiments import Outcome, Store, get, names, run
from tests.helpers_fork import until

FAST = "min-vidal-2024/figure-7"
SCARCE = "li-2022/memorisation"  # it has a claim, but not at smoke scale
CALTECH = "min-vidal-2024/figure-4"


@pytest.fixture
def here(monkeypatch, capsys):
    """The command line within this process: a new one takes seconds to import everything."""

    def told(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(sys, "argv", ["extremal", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        caught = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, left.value.code, caught.out, caught.err)

    return told


def test_version_and_help(here):
    assert here("--version").stdout.startswith("extremal 0.")
    for command in ("", "demo", "list", "run", "show", "bench"):
        told = here(*filter(None, [command, "--help"]))
        assert told.returncode == 0
        assert max(map(len, told.stdout.splitlines())) <= 80
        assert not command or f"extremal {command}" in told.stdout


def test_the_list_of_commands_says_what_their_own_help_says():
    for name, (_, line) in COMMAND_LINES.items():
        first = imported_command(name).help.split("\n\n")[0]
        assert " ".join(first.split()) == line, name


DRAWING = {"matplotlib", "plotly", "scipy", "sklearn"}
NUMBERS = {"torch", "numpy", "safetensors", "PIL"}


@pytest.mark.parametrize(
    ("asked", "unneeded"),
    [
        ("--version", DRAWING | NUMBERS | {"rich"}),
        ("--help", DRAWING | NUMBERS),
        ("list", DRAWING),
        ("show demo", DRAWING),
    ],
)
def test_a_command_imports_no_library_that_it_does_not_need(asked, unneeded, tmp_path):
    code = (
        "import sys\nfrom extremal.cli.main import main\n"
        f"try:\n    main()\nfinally:\n    print({unneeded} & {{*sys.modules}}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *asked.split()]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout
    assert told.stderr == "set()\n"


def test_a_mistyped_command_is_one_line(here):
    told = here("eksplor")
    assert told.returncode == 2
    assert told.stderr == "error: No such command 'eksplor'. Did you mean 'explore'?\n"


def test_list_names_every_experiment(here):
    rows = json.loads(here("list", "--json").stdout)
    assert [row["name"] for row in rows] == names()
    listed = here("list").stdout
    assert all(name in listed for name in names())


def test_run_then_show(forks, here, tmp_path):
    """In a process of its own; of its five jobs, those that come too late for work are quiet."""
    out, trials = str(tmp_path / "runs"), get(FAST).trials("smoke")
    run(trials[1:], Store(out))
    words = ("run", FAST, "--scale", "smoke", "--out", out, "--jobs", "5")
    process = forks.start("extremal.cli.main:main", *words, environment={"COLUMNS": "80"})
    printed, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert "Traceback" not in complaints
    assert "Error" not in complaints
    assert max(map(len, printed.splitlines()[:-4])) <= 80
    folder = tmp_path / "runs" / FAST / "smoke"
    assert {path.name for path in folder.iterdir()} >= {
        "summary.json",
        "figure.png",
        "figure.pdf",
        "report.html",
    }
    shown = json.loads(here("show", FAST, "--out", out, "--json").stdout)
    assert set(shown) == {"experiment", "scale", "trials", "rows", "files"}
    assert (shown["experiment"], shown["scale"]) == (FAST, "smoke")
    assert shown["trials"] == {"done": 3, "failed": 0, "total": 3}
    assert str(folder / "report.html") in shown["files"]


def test_a_scale_without_published_values_says_so(here, tmp_path):
    words = ("-s", "smoke", "-o", str(tmp_path), "-j", "1")
    assert "No value to compare with at smoke scale." in here("run", SCARCE, *words).stdout


def test_run_prints_what_show_prints_as_json(here, tmp_path):
    out, name = str(tmp_path), "min-vidal-2024/theorem-2"
    ran = here("run", name, "-s", "quick", "-o", out, "-j", "1", "--json")
    shown = here("show", name, "-o", out, "--json")
    assert json.loads(ran.stdout) == json.loads(shown.stdout)
    assert json.loads(shown.stdout)["scale"] == "quick"
    row = json.loads(shown.stdout)["rows"][0]
    wanted = {"quantity", "published", "ours", "low", "high", "tolerance", "ok", "source"}
    assert set(row) >= wanted
    assert row["ok"] is False  # as printed the theorem does not hold


def test_show_remembers_the_seeds_and_works_before_the_end(here, tmp_path):
    out = str(tmp_path)
    ran = here("run", FAST, "-s", "smoke", "-o", out, "-j", "1", "--seeds", "2", "--json")
    assert json.loads(ran.stdout)["trials"]["total"] == 6
    stored = sorted((tmp_path / "trials").glob("*/*.json"))
    for path in stored[:2]:
        path.unlink()
    shown = json.loads(here("show", FAST, "-o", out, "--json").stdout)
    assert shown["trials"] == {"done": 4, "failed": 0, "total": 6}


def test_an_interrupted_run_says_how_to_go_on(forks, tmp_path):
    words = ("run", "min-vidal-2024/theorem-1", "-s", "quick", "-o", str(tmp_path), "-j", "1")
    process = forks.start("extremal.cli.main:main", *words)
    until(lambda: list(tmp_path.glob("*/*/*/begun.json")) != [] or process.poll() is not None)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert told.splitlines()[-1] == "interrupted; run the same command again to go on"
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "expected"),
    [("run min-vidal-2024/figure-", "min-vidal-2024/figure-7"), ("run demo --scale q", "quick")],
)
def test_completion_knows_experiments_and_scales(here, monkeypatch, words, expected):
    # A program is called by its package where that is known, and here it would be pytest's.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
    monkeypatch.setenv("_EXTREMAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"extremal {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert expected in here().stdout.split()


def test_show_falls_back_to_the_shipped_results(here, tmp_path):
    shown = json.loads(here("show", "demo", "--out", str(tmp_path), "--json").stdout)
    assert shown["scale"] == "quick"
    assert all(row["ours"] is not None for row in shown["rows"])


@pytest.fixture
def without_data(here, tmp_path, monkeypatch):
    """Run an experiment whose data nobody has; exit code, output, lines of stderr."""
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    monkeypatch.setenv("EXTREMAL_CACHE", str(tmp_path / "cache"))

    def told(*arguments: str) -> tuple[int, str, list[str]]:
        ran = here("run", CALTECH, "-s", "paper", "-o", str(tmp_path / "runs"), *arguments)
        return ran.returncode, ran.stdout, ran.stderr.splitlines()

    return told


def test_data_that_cannot_be_had_are_one_line_and_leave_nothing(without_data, tmp_path):
    code, printed, (line,) = without_data("--jobs", "1")
    assert (code, printed) == (2, "")
    assert line.startswith("error: cannot load caltech256: ")
    assert str(tmp_path / "cache" / "caltech256") in line
    assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []
    assert not (tmp_path / "runs" / CALTECH.split("/", maxsplit=1)[0]).exists()


def test_what_was_done_before_the_data_were_lost_stays(without_data, tmp_path):
    out, trial = tmp_path / "runs", get(CALTECH).trials("paper", 2)[1]
    Store(out).write(trial, Outcome({}), 0.0)
    code, printed, (line,) = without_data("--jobs", "1", "--seeds", "2")
    assert (code, printed) == (2, "")
    assert "caltech256" in line
    assert Store(out).has(trial)
    assert [path.name for path in (out / CALTECH / "paper").iterdir()] == ["begun.json"]
    assert json.loads((out / CALTECH / "paper" / "begun.json").read_text()) == {"seeds": 2}


def test_an_earlier_run_is_remembered_when_the_next_has_no_data(without_data, tmp_path):
    begun = tmp_path / "runs" / CALTECH / "paper" / "begun.json"
    begun.parent.mkdir(parents=True)
    begun.write_text('{"seeds": 7}')
    code, printed, (line,) = without_data("--jobs", "1", "--seeds", "2")
    assert (code, printed) == (2, "")
    assert "caltech256" in line
    assert begun.read_text() == '{"seeds": 7}'


OWN = """
from extremal.experiments import Experiment
record = Experiment({name!r}, "T", "S", "no_function_here:f", {{}}, (), ())
"""
MISTAKES = {
    "unknown experiment": (["run", "figure-22"], ["figure-22", "extremal list"]),
    "unknown experiment to show": (["show", "nothing"], ["nothing"]),
    "no such file": (["run", "nowhere.py"], ["file that is there", "nowhere.py"]),
    "no Python file": (["run", "{file}"], ["Python file", "{file}"]),
    "no record": (["run", "no_record.py"], ["no_record.py must hold an Experiment", "none"]),
    "no record to show": (["show", "no_record.py"], ["no_record.py must hold an Experiment"]),
    "a name that is taken": (["run", "taken_name.py"], ["name must differ", "demo"]),
    "a taken name to show": (["show", "taken_name.py"], ["name must differ", "demo"]),
    "a taken name in a dry run": (["run", "taken_name.py", "--dry-run"], ["name must differ"]),
    "no such module": (["run", "no_such.module:record"], ["no_such.module must be a module"]),
    "a record that was not run": (["show", "own_name.py"], ["nothing is stored", "extremal run"]),
    "no function": (["run", "own_name.py"], ["function must be one", "no_function_here"]),
    "unknown scale": (["run", FAST, "--scale", "huge"], ["scale", "'quick'", "huge"]),
    "unknown scale to show": (["show", FAST, "--scale", "huge"], ["scale", "huge"]),
    "no seeds": (["run", FAST, "--seeds", "0"], ["seeds", ">= 1", "0"]),
    "no jobs": (["run", FAST, "--jobs", "0"], ["jobs", ">= 1", "0"]),
    "a word for a number": (["run", FAST, "--jobs", "many"], ["--jobs", "integer"]),
    "unknown option": (["run", FAST, "--fast"], ["--fast"]),
    "no name": (["run"], ["name"]),
    "unknown benchmark": (["bench", "nothing"], ["name", "gradients", "nothing"]),
    "folder that can't be written": (["run", FAST, "--out", "{file}/runs"], ["{file}"]),
    "a file in the place of a folder": (["run", FAST, "-s", "smoke", "-o", "{odd}"], ["{odd}"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("users_folder")
def test_a_mistake_is_one_line_and_exit_code_2(mistake, here, tmp_path, monkeypatch):
    arguments, words = MISTAKES[mistake]
    (tmp_path / "no_record.py").write_text("record = 3\n")
    for file, name in (("taken_name", "demo"), ("own_name", "mine/own")):
        (tmp_path / f"{file}.py").write_text(OWN.format(name=name))
    file = tmp_path / "a-file"
    file.write_text("")
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / FAST.split("/", maxsplit=1)[0]).write_text("")

    def filled(word: str) -> str:
        return word.replace("{file}", str(file)).replace("{odd}", str(odd))

    monkeypatch.chdir(tmp_path)
    told = here(*map(filled, arguments))
    assert told.returncode == 2
    assert told.stdout == ""
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    for word in words:
        assert filled(word) in told.stderr
