"""One call does what the command line does, and takes a record of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from extremal.cli.main import main
from extremal.data import DataError
from extremal.experiments import Experiment, Line, Setting, Store, get, reproduce
from tests.experiments import helpers_toy as toy

NAME = "min-vidal-2024/figure-7"


def _record(name: str = "mine/toy", **settings: object) -> Experiment:
    held = {name: Setting(value, "O") for name, value in {"level": [0, 1], **settings}.items()}
    panel = Line("toy", "level", ("value",), "level", "value")
    return Experiment(name, "Toy", "nowhere", toy.STUDY, held, ("level",), (panel,))


def _written(folder: Path) -> dict[str, bytes]:
    """The files of a run but for what says how long it took."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".png", ".pdf", ".safetensors"):
            found[str(path.relative_to(folder))] = path.read_bytes()
        elif path.is_file():
            rows = [row for row in path.read_bytes().splitlines() if b"seconds" not in row]
            found[str(path.relative_to(folder))] = b"\n".join(
                row for row in rows if not row.startswith(b'"checksum"')
            )
    return found


def test_a_fresh_interpreter_writes_what_the_command_line_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = (
        "import extremal as ex; "
        f"found = ex.experiments.reproduce({NAME!r}, scale='smoke', out={str(tmp_path / 'call')!r})"
        "; print(found['trials'])"
    )
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{'done': 3, 'failed': 0, 'total': 3}\n", "")
    options = ["--scale", "smoke", "--jobs", "1", "--out", str(tmp_path / "line")]
    monkeypatch.setattr(sys, "argv", ["extremal", "run", NAME, *options])
    with pytest.raises(SystemExit, match="0"):
        main()
    ours, theirs = _written(tmp_path / "call"), _written(tmp_path / "line")
    assert set(ours) >= {
        f"{NAME}/smoke/{name}"
        for name in ("begun.json", "summary.json", "report.html", "figure.png")
    }
    assert ours == theirs


def test_a_record_of_ones_own_is_run_and_resumed(tmp_path: Path) -> None:
    log, seen = tmp_path / "log", list[tuple[int, int, int]]()
    record = _record(log=str(log))
    first = reproduce(record, "paper", tmp_path / "runs", progress=lambda *told: seen.append(told))
    again = reproduce(record, "paper", tmp_path / "runs", seeds=2)
    assert (first["trials"]["done"], again["trials"]["done"]) == (2, 4)
    assert seen == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]
    assert sorted(level for level, _ in toy.noted(log, "start")) == [0, 0, 1, 1]
    folder = tmp_path / "runs/mine/toy/paper"
    assert json.loads((folder / "begun.json").read_text()) == {"seeds": 2}
    assert json.loads((folder / "summary.json").read_text()) == again


def test_failures_are_in_the_summary(tmp_path: Path) -> None:
    summary = reproduce(_record(mode="raise"), "paper", tmp_path)
    assert summary["trials"] == {"done": 0, "failed": 2, "total": 2}
    assert summary["failures"][0]["reason"].startswith("ArithmeticError")


def test_a_run_that_could_not_begin_leaves_no_note(tmp_path: Path) -> None:
    missing = _record(mode="data", data=str(tmp_path / "toys"))
    with pytest.raises(DataError):
        reproduce(missing, "paper", tmp_path / "runs")
    assert not (tmp_path / "runs/mine").exists()
    reproduce(_record(), "paper", tmp_path / "runs")
    with pytest.raises(DataError):
        reproduce(missing, "paper", tmp_path / "runs", seeds=7)
    note = tmp_path / "runs/mine/toy/paper/begun.json"
    assert json.loads(note.read_text()) == {"seeds": None}


@pytest.mark.parametrize("name", ["", "../up", "/etc/x", "a//b", "a/../b", ".hidden", "a b", "a/"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="name must be words joined by slashes"):
        reproduce(_record(name), "paper", tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_the_packages_own_is_taken(tmp_path: Path) -> None:
    assert reproduce(get(NAME), "smoke", tmp_path)["experiment"] == NAME
    with pytest.raises(ValueError, match="name must differ from the package's own"):
        reproduce(replace(_record(), name=NAME), "paper", tmp_path)


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        (3, {}, "name_or_record must be a name or a record, got 3"),
        ("figure-0", {}, "unknown experiment 'figure-0'"),
        (
            replace(_record(), study="tests.no_such:f"),
            {},
            "function must be one that can be import",
        ),
        (NAME, {"scale": "huge"}, "scale must be one of"),
        (NAME, {"jobs": 0}, "jobs must be an integer"),
        (NAME, {"threads": 0}, "threads must be an integer"),
        (NAME, {"seeds": 0}, "seeds must be an integer"),
        (NAME, {"cluster": "host"}, "cluster must be an address"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    tmp_path: Path, asked: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        reproduce(asked, out=tmp_path / "runs", **options)
    assert not Store(tmp_path / "runs").root.exists()
