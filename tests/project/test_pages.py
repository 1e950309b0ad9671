"""Every command and every piece of Python in README and docs is one that works.

Commands: `extremal ...` is parsed by the command line's own parser and its experiment, bench, data
set and scale must exist; those that only show something are run. Runs are not: every experiment
runs at smoke scale in tests/experiments. `make` targets, scripts and test files must exist.

Those of Dask are parsed by Dask's own command line.

Python: blocks marked `python` run as they stand, a page's blocks one after the other. In those
marked `py`, which are excerpts, and in the text, every name `ex.` something must exist. TOML and
YAML must parse. A block that begins with a file's name, as `# my_record.py`, is that file: it is
there when the page's other blocks run, and commands may name it.
"""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from dask.utils import parse_timedelta
from distributed.cli import dask_scheduler, dask_worker

import extremal as ex
from extremal.cli.main import COMMAND_LINES, app, imported_command
from extremal.data import DATASETS
from tools.doc_tables import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "extremal/models/networks/README.md",
]
# Pages whose Python is run by another test, which reads it from the page.
ELSEWHERE = {
    "README.md": "tests/project/test_readme.py",
    "docs/theory/robustness.md": "tests/attack/test_false_robustness.py",
    "docs/your-own-activation.md": "tests/experiments/papers/test_activations_and_losses.py",
}
SHOWN = re.compile(r"extremal (list|show \S+|data list)")  # commands that are run
_OWN = re.compile(
    r"--scale smoke|--out|[.]py|sweeps/|mine/|:"
)  # but for those of what the reader ran
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
_TOOLS = {"extremal", "make", "python", "python3", "grep", "pip"}
_FILE = re.compile(r"# (\w+\.(?:py|toml))\n")  # the first line of a block that is a file
_DASK = re.compile(r"\bdask (scheduler|worker)((?: +[^ `'&]+)*)")
_DASK_COMMANDS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands_of(page: Path) -> list[str]:
    """Commands in blocks without a language or marked `console`, and in inline code."""
    text = page.read_text()
    found = []
    for language, block in _BLOCK.findall(text):
        if language not in {"", "console"}:
            continue
        for line in block.splitlines():
            words = re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip()
            known = Path(words.split(" ")[0]).name in _TOOLS | {"pytest"}
            assert known or language == "", f"{name_of(page)}: what is {line!r}?"
            found += [words] if known else []
    inline = re.findall(r"`((?:extremal|make|python3?) [^`]+)`", _BLOCK.sub("", text))
    return found + [" ".join(command.split()) for command in inline]


def python_of(page: Path, language: str) -> list[str]:
    return [block for kind, block in _BLOCK.findall(page.read_text()) if kind == language]


def files_of(page: Path) -> dict[str, str]:
    """The files that blocks of a page are, by their names."""
    blocks = [block for _, block in _BLOCK.findall(page.read_text())]
    return {found[1]: block for block in blocks if (found := _FILE.match(block))}


def dask_commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """Dask's commands in a page's blocks, those for another host among them."""
    text = "".join(block for _, block in _BLOCK.findall(page.read_text()))
    return [(found[1], shlex.split(found[2])) for found in _DASK.finditer(text)]


COMMANDS = sorted({(name_of(page), command) for page in PAGES for command in commands_of(page)})
OURS = [pair for pair in COMMANDS if pair[1].startswith("extremal ")]
RUN = [page for page in PAGES if python_of(page, "python") and name_of(page) not in ELSEWHERE]
FILES = {name for page in PAGES for name in files_of(page)}
RECORD_NAMES = {
    name
    for page in PAGES
    for text in files_of(page).values()
    for name in re.findall(r'name="(mine/[\w-]+)"', text)
}
DASK = [(name_of(page), *command) for page in PAGES for command in dask_commands_of(page)]


def parsed(arguments: list[str]) -> tuple[str, dict[str, object]]:
    """The command that the command line makes of arguments, and its parameters."""
    name, *arguments = arguments
    assert name in COMMAND_LINES, f"no such command: {name}"
    command = imported_command(name)
    while hasattr(command, "commands"):
        assert arguments[0] in command.commands, f"no such command: {arguments[0]}"
        command, name = command.commands[arguments[0]], f"{name} {arguments[0]}"
        arguments = arguments[1:]
    return name, command.make_context(name, list(arguments)).params


def check(arguments: list[str]) -> None:
    """Require that a command line could be run, or that a command named alone exists."""
    if len(arguments) == 1 and (arguments[0] in COMMAND_LINES or arguments[0].startswith("--")):
        assert arguments[0] in {*COMMAND_LINES, "--help", "--version"}
        return
    if arguments[1:] == ["--help"]:
        assert arguments[0] in COMMAND_LINES
        return
    name, params = parsed(arguments)
    if name == "sweep":
        assert params["file"].name in FILES
    asked = str(params.get("name", ""))
    if name in {"run", "show"} and re.search(r"[.]py$|:", asked):
        file = f"{asked.partition(':')[0].removesuffix('.py')}.py"
        assert file in FILES or (ROOT / file).is_file()
    elif name == "show" and asked.startswith("sweeps/"):
        assert f"{asked.removeprefix('sweeps/')}.toml" in FILES
    elif name == "show" and asked.startswith("mine/"):
        assert asked in RECORD_NAMES
    elif name in {"run", "show"}:
        experiment = ex.experiments.get(asked)
        if params["scale"] is not None:
            experiment.at(params["scale"])
    if name == "bench":
        assert (ROOT / "bench" / f"{params['name']}.py").is_file()
    if name in {"evaluate", "certify"}:
        data = Path(str(params["data"]))
        assert data.name in DATASETS or data.suffix in {".npz", ".safetensors"}
    if name in {"data fetch", "data path"}:
        assert params["name"] in DATASETS


def words(command: str) -> list[str]:
    """A command's arguments, with an example for each placeholder."""
    first, *rest = shlex.split(command)[1:]
    examples = {"COMMAND": "list", "NAME": "flow" if first == "bench" else "demo"}
    return [examples.get(word, "demo" if "<" in word else word) for word in (first, *rest)]


@pytest.mark.parametrize(("page", "command"), OURS, ids=lambda value: value.replace("/", "."))
def test_our_commands_parse_and_name_what_exists(page, command):
    check(words(command))


def test_a_command_that_does_not_exist_would_be_noticed():
    with pytest.raises(AssertionError, match="no such command"):
        check(["walk", "demo"])
    with pytest.raises(AssertionError):
        check(["--verbose"])
    with pytest.raises(Exception, match="No such option"):
        check(["run", "demo", "--sccale", "quick"])
    with pytest.raises(ValueError, match="unknown experiment"):
        check(["run", "min-vidal-2024/figure-99"])
    for name in ("nobodys_record.py", "nobodys_record:record"):
        with pytest.raises(AssertionError):
            check(["run", name])
    with pytest.raises(AssertionError):
        check(["sweep", "nobodys.toml"])
    with pytest.raises(ValueError, match="scale"):
        check(["show", "demo", "--scale", "huge"])


@pytest.mark.parametrize(
    "command",
    sorted({c for _, c in OURS if SHOWN.match(c) and not _OWN.search(c)}),
)
def test_what_only_shows_something_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # where nothing was run: the stored results are shown
    app(words(command), standalone_mode=False)
    assert len(capsys.readouterr().out.splitlines()) > 3


@pytest.mark.parametrize(
    ("page", "command"),
    [pair for pair in COMMANDS if pair not in OURS],
    ids=lambda value: value.replace("/", "."),
)
def test_other_commands_name_what_exists(page, command):
    tool, *rest = shlex.split(command)
    if tool == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(rest) <= set(targets)
    elif Path(tool).name == "pytest" or rest[0].endswith(".py"):
        files = [word for word in rest if word.endswith(".py")]
        assert files
        assert all((ROOT / file).is_file() for file in files)
    else:
        assert tool == "grep" or (rest[0] == "-m" and rest[1] in {"pip", "http.server"})


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_python_blocks_run_as_they_stand(page, users_folder, monkeypatch, capsys):
    monkeypatch.chdir(users_folder)
    monkeypatch.syspath_prepend(str(users_folder))
    for name, text in files_of(page).items():
        Path(name).write_text(text)
    names: dict[str, object] = {"__name__": "page"}
    for block in python_of(page, "python"):
        exec(compile(block, name_of(page), "exec"), names)
    assert capsys.readouterr().out


def test_the_commands_of_an_own_experiment_run_as_the_page_has_them(
    forks, users_folder, monkeypatch, capsys
):
    """The first in a process of its own, whose jobs are new interpreters; what it did is known."""
    page = ROOT / "docs" / "own-experiment.md"
    monkeypatch.chdir(users_folder)
    for name, text in files_of(page).items():
        Path(name).write_text(text)
    commands = [c for c in commands_of(page) if re.match("extremal (run|show) .*(my_rec|mine)", c)]
    local = [command for command in commands if not re.search("--cluster|--scale paper", command)]
    assert len(local) >= 5
    first, *others = (shlex.split(command)[1:] for command in local)
    assert {"run", "--jobs", "2"} <= {*first}
    process = forks.start("extremal.cli.main:main", *first)
    printed, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert "2 of 2 trials done, 0 failed.\nruns/mine/radius/smoke/figure.pdf" in printed
    monkeypatch.setattr("extremal.experiments.running.run_trials.compute_trial", None)
    for words_of_one in others:
        app([*words_of_one], standalone_mode=False)
        assert capsys.readouterr().out in (printed, printed.partition("\n")[2])


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_other_pages_blocks_run_in_the_test_named_here(page, test):
    assert python_of(ROOT / page, "python")
    assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_excerpts_compile_and_names_exist(page):
    for block in python_of(page, "py"):
        compile(block, name_of(page), "exec")
    for name in sorted(set(re.findall(r"\bex((?:\.[A-Za-z_]\w*)+)", page.read_text()))):
        found = ex
        for part in name.split(".")[1:]:
            assert hasattr(found, part), f"{name_of(page)}: ex{name} is not there"
            found = getattr(found, part)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_toml_and_yaml_parse_and_sweeps_are_sweeps(page, tmp_path, monkeypatch):
    for block in python_of(page, "yaml"):
        assert yaml.safe_load(block)
    for block in python_of(page, "toml"):
        assert tomllib.loads(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text)
    for path in sorted(tmp_path.glob("*.toml")):
        assert ex.experiments.read_sweep(path).trials("paper")


def test_the_sweep_of_the_docs_plots_numbers_that_trials_have(tmp_path):
    text = files_of(ROOT / "docs" / "own-sweep.md")["spread.toml"]
    small = {
        r"quick": "smoke",
        r"seeds = \d+": "seeds = 1",
        r"dim = \d+": "dim = 20",
        r"spread = \{.*\}": "spread = [0.1, 0.3]",
    }
    for old, new in small.items():
        text, changes = re.subn(old, new, text)
        assert changes == 1
    (tmp_path / "spread.toml").write_text(text)
    sweep = ex.experiments.read_sweep(tmp_path / "spread.toml")
    summary, rows = ex.experiments.run_sweep(sweep, out=tmp_path / "runs")
    assert len(rows) == 6
    assert [len(panel["series"]) for panel in summary["panels"]] == [3]


@pytest.mark.parametrize(("page", "command", "arguments"), DASK)
def test_commands_of_dask_parse(page, command, arguments):
    params = _DASK_COMMANDS[command].make_context(command, list(arguments)).params
    if params.get("lifetime"):
        parse_timedelta(params["lifetime"])


def test_a_wrong_command_of_dask_would_be_noticed():
    assert {command for _, command, _ in DASK} == {"scheduler", "worker"}
    with pytest.raises(Exception, match="No such option"):
        dask_worker.main.make_context("worker", ["tcp://alpha:8786", "--nthraeds", "1"])
