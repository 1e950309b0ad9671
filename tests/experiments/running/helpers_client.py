"""A process that runs trials of the toy study, to be killed by the tests.

Arguments: a folder for the store, the log and the gate, and the numbers of jobs and of trials.
A trial waits until the gate holds a file of its number.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from extremal.experiments import Experiment, Line, Setting, Store, run
from tests.experiments import helpers_toy as toy


def experiment(place: Path, count: int) -> Experiment:
    """The record that the process runs."""
    settings = {
        "level": Setting(list(range(count)), "S"),
        "log": Setting(str(place / "log"), "O"),
        "gate": Setting(str(place / "gate"), "O"),
    }
    panel = Line("toy", "level", ("value",), "level", "value")
    return Experiment("toy", "Toy", "nowhere", toy.STUDY, settings, ("level",), (panel,))


def start(place: Path, jobs: int, count: int) -> subprocess.Popen[str]:
    """Start this module as a process group of its own, with the import path of this process."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    command = [sys.executable, "-c", code, str(place), str(jobs), str(count)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)


def main() -> None:
    """Run, as the arguments say."""
    place, jobs, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    run(experiment(place, count).trials("paper"), Store(place / "runs"), jobs=jobs)


def open_gate(place: Path, count: int) -> None:
    """Let the first `count` trials pass."""
    (place / "gate").mkdir(exist_ok=True)
    for level in range(count):
        (place / "gate" / str(level)).touch()


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds; the limit is only there to fail rather than hang."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def group(leader: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
