from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from extremal.cli.main import app
from extremal.experiments import (
    Experiment,
    Trial,
    find_record,
    find_study,
    get,
    installed,
    names,
    registry,
)
from extremal.experiments.registry import study_source

RECORD = """
from extremal.experiments import Experiment

experiment = Experiment({name!r}, "T", "S", "m:f", {{}}, (), ())
"""


def test_each_record_has_its_name_and_each_id_a_study() -> None:
    """Tables and files agree: no record is missing, no study unused, every id has its function."""
    records = {name: get(name) for name in names()}
    assert [record.name for record in records.values()] == list(records)
    assert {record.study for record in records.values()} == set(registry.STUDIES)
    assert all(callable(find_study(study)) for study in registry.STUDIES)
    inside = Path(registry.__file__).parent / "papers"
    places = [*registry.RECORDS.values(), *registry.STUDIES.values()]
    modules = {place.partition(":")[0] for place in places}
    files = [path.relative_to(inside).with_suffix("") for path in inside.rglob("[!_]*.py")]
    unlisted = {".".join(path.parts) for path in files} - modules
    beside = {name for name in unlisted if not name.startswith("shared.")}
    assert beside == {"li_2025_averaging.binary_reading"}
    for module in modules:
        found = vars(importlib.import_module(f"extremal.experiments.papers.{module}"))
        held = {value.name for value in found.values() if isinstance(value, Experiment)}
        assert held <= set(records)


def test_a_study_that_has_moved_keeps_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("extremal.experiments.studies.plane:plane", {}, 0)
    key, function = trial.key, find_study(trial.study)
    monkeypatch.setitem(registry.STUDIES, "was.elsewhere:plane", registry.STUDIES[trial.study])
    assert find_study("was.elsewhere:plane") is function
    assert Trial(trial.study, {}, 0).key == key
    assert find_study("json:dumps").__name__ == "dumps"  # An unknown one is imported as it stands.


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("demmo", ": did you mean demo?"),
        ("theorem-2", ": did you mean min-vidal-2024/theorem-2?"),
        ("min_vidal_2024/figure_4", ": did you mean min-vidal-2024/figure-4 or min-vidal-2024/fig"),
        ("xyz", "; see `extremal list`"),
        ("", "; see `extremal list`"),
        ("my_record.pyc", "; see `extremal list`"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(asked: str, hint: str) -> None:
    message = f"^unknown experiment {asked!r}{re.escape(hint)}"
    for find in (get, find_record):
        with pytest.raises(ValueError, match=message) as caught:
            find(asked)
        assert str(caught.value).endswith("; see `extremal list`")


def test_a_name_from_a_stranger_imports_no_file(users_folder: Path) -> None:
    (users_folder / "mine.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match="unknown experiment"):
        get(str(users_folder / "mine.py"))


def test_a_record_in_a_file_of_ones_own(users_folder: Path) -> None:
    inner = users_folder / "a.pyenv"
    inner.mkdir()
    (inner / "mine.py").write_text(RECORD.format(name="mine/one"))
    (inner / "two.py").write_text(
        RECORD.format(name="mine/two")
        + "other = Experiment('mine/other', '', '', 'm:f', {}, (), ())"
    )
    assert find_record(str(inner / "mine.py")).name == "mine/one"
    assert find_record(f"{inner}/mine.py:experiment").name == "mine/one"
    assert find_record(f"{inner}/two.py:other").name == "mine/other"


@pytest.mark.parametrize(
    ("file", "text", "asked", "message"),
    [
        ("a.py", "", "b.py", r"record must be a file that is there, got .*b\.py"),
        (
            "my-file.py",
            "",
            "my-file.py",
            "record must be a file with a module's name, got my-file.py",
        ),
        (
            "bad.py",
            "1 / 0",
            "bad.py",
            r"bad\.py must be a file that can be imported, got ZeroDivisi",
        ),
        ("ends.py", "import sys; sys.exit(3)", "ends.py", "can be imported, got SystemExit: 3"),
        ("two.py", "raise ImportError('a\\nb')", "two.py", "can be imported, got ImportError: a b"),
        ("taken.py", RECORD.format(name="demo"), "taken.py", "name must differ from .*, got demo"),
        ("out.py", RECORD.format(name="../up"), "out.py", r"name must be words .*, got \.\./up"),
        ("notes.txt", "", "notes.txt", r"record must be a Python file, my_record\.py, got .*notes"),
        ("a.py", "", "", r"record must be a Python file, my_record\.py, got /"),
        (
            "only.py",
            "from extremal.experiments import get; shipped = get('demo')",
            "only.py",
            r"only\.py must hold an Experiment of its own, got none",
        ),
        ("none.py", "x = 1", "none.py", r"none\.py must hold an Experiment of its own, got none"),
        ("json.py", RECORD.format(name="a"), "json.py", "whose name no other module has, got json"),
        (
            "one.py",
            RECORD.format(name="a"),
            "one.py:b",
            r"record must be \S+one\.py:experiment, got b",
        ),
        (
            "more.py",
            RECORD.format(name="a") + "again = experiment",
            "more.py",
            r"more\.py must hold one Experiment; say which, \S+:experiment or \S+:again, got 2",
        ),
    ],
)
def test_a_file_that_holds_no_record_is_one_clear_line(
    users_folder: Path, file: str, text: str, asked: str, message: str
) -> None:
    (users_folder / file).write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        find_record(f"{users_folder}/{asked}")
    assert "\n" not in str(caught.value)


def test_records_of_the_package_beside_ones_own_do_not_count(users_folder: Path) -> None:
    """A variant's file has the record that it varies, too."""
    text = "from extremal.experiments import get\nshipped = get('demo')\n"
    (users_folder / "varied.py").write_text(text + "mine = shipped.variant('mine/demo')")
    assert find_record(users_folder / "varied.py").name == "mine/demo"
    assert find_record(f"{users_folder}/varied.py:shipped") == get("demo")


def test_a_module_is_looked_for_in_the_current_folder(
    users_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(users_folder)
    (users_folder / "my_lab").mkdir()
    (users_folder / "my_lab" / "records.py").write_text(RECORD.format(name="mine/one"))
    assert find_record("my_lab.records:experiment").name == "mine/one"
    with pytest.raises(ValueError, match=r"record must be my_lab\.records:experiment, got other"):
        find_record("my_lab.records:other")
    with pytest.raises(ValueError, match=r"^my_lab\.none must be a module that can be imported"):
        find_record("my_lab.none:experiment")


@pytest.fixture
def my_lab(users_folder: Path) -> Path:
    """An installed package with entry points: one record, and some that are none."""
    (users_folder / "their_lab.py").write_text(RECORD.format(name="lab/one"))
    info = users_folder / "their_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lab\nVersion: 1.0\n")
    points = {
        "lab/one": "their_lab:experiment",
        "lab/gone": "their_lab:gone",
        "lab/other": "their_lab:experiment",
        "demo": "their_lab:experiment",
    }
    lines = [f"{name} = {place}" for name, place in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[extremal.experiments]", *lines]))
    sys.path.insert(0, str(users_folder))
    return users_folder


@pytest.mark.usefixtures("my_lab")
def test_installed_packages_have_records_too() -> None:
    assert list(installed()) == ["lab/gone", "lab/one", "lab/other"]
    assert "their_lab" not in sys.modules
    assert find_record("lab/one").name == "lab/one"
    assert find_record("demo") == get("demo")  # The package's own names stay its own.
    with pytest.raises(ValueError, match="record must be their_lab:experiment, got gone"):
        find_record("lab/gone")
    with pytest.raises(ValueError, match="have the name of its entry point, lab/other, got lab/on"):
        find_record("lab/other")
    with pytest.raises(ValueError, match="unknown experiment 'lab/one'"):
        get("lab/one")


@pytest.mark.usefixtures("my_lab")
def test_installed_records_are_listed_and_broken_ones_do_not_hide_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app(["list", "--json"], standalone_mode=False)
    told = capsys.readouterr()
    assert [row["name"] for row in json.loads(told.out)] == [*names(), "lab/one"]
    assert [line.partition(":")[0] for line in told.err.splitlines()] == [
        "lab/gone can't be listed",
        "lab/other can't be listed",
    ]


def test_a_file_that_was_edited_is_read_again(users_folder: Path) -> None:
    """In one interpreter, as in a notebook: processes would compute by the new one."""
    for name in ("mine/first", "mine/second-one"):  # of another length, which bytecode is told by
        (users_folder / "edited_record.py").write_text(RECORD.format(name=name))
        assert find_record(f"{users_folder}/edited_record.py").name == name


def test_the_source_of_a_users_module_is_enough(users_folder: Path) -> None:
    sys.path.insert(0, str(users_folder))
    text = "def f(p, g): return __name__, __file__\nif __name__ == '__main__':\n    1 / 0\n"
    file = users_folder / "only_here.py"
    file.write_text(text)
    source = study_source("only_here:f")
    assert source == (str(file), text)
    for study in ("extremal.experiments.studies.plane:plane", "no.such:f", "builtins:print"):
        assert study_source(study) is None
    file.unlink()
    assert find_study("not_here:f", source)({}, None) == ("not_here", str(file))
    assert find_study("__main__:f", source)({}, None) == ("__mp_main__", str(file))
    assert find_study("not_here:f", source) is find_study("not_here:f", source)
    for name in ("not_here", "__mp_main__"):
        del sys.modules[name]
