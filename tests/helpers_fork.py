"""Processes that begin with torch, Dask and this package imported, which costs a new one seconds.

One process imports them and forks for each order. What is forked leaves the loop of orders and goes
on to the end of the script: it meets signals and exceptions, and ends, as any Python process.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SCRIPT = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()()"
PRELOADED = (
    "extremal.cli.experiment_commands",
    "extremal.report.report_files",
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "tests.experiments.running.helpers_client",
)


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until a condition holds; the limit is only there to fail rather than hang."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class ForkedProcess:
    """A process with a group of its own; what it writes goes to files."""

    def __init__(self, place: Path, pid: int) -> None:
        self._place, self.pid = place, pid

    def poll(self) -> int | None:
        """Its exit code, -n where signal n ended it, or None as long as it runs."""
        with suppress(FileNotFoundError):
            return int((self._place / f"{self.pid}.code").read_text())
        return None

    @property
    def returncode(self) -> int:
        code = self.poll()
        assert code is not None, "it runs"
        return code

    def communicate(self) -> tuple[str, str]:
        """What it and those that it started have written, when they have ended."""
        until(lambda: self.poll() is not None and not group(self.pid))
        return self.written()

    def written(self) -> tuple[str, str]:
        """What it has written so far."""
        out, err = ((self._place / f"{self.pid}.{kind}").read_text() for kind in ("out", "err"))
        return out, err

    def kill(self) -> None:
        """End it and those that it started, where they have not ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        until(lambda: self.poll() is not None)


class ForkServer:
    """The process that forks, with the import path of this one."""

    def __init__(self, place: Path) -> None:
        code = SCRIPT.format(path=sys.path, module=__name__)
        command, pipe = [sys.executable, "-c", code, str(place)], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._place = place

    def start(
        self, target: str, *words: str, cwd: Path | None = None, environment: Mapping[str, str] = {}
    ) -> ForkedProcess:
        """Call `module:function`, which finds the words in `sys.argv`, as a script does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"target": target, "words": words, "cwd": str(cwd or Path.cwd())}
        json.dump({**order, "environment": dict(environment)}, self._process.stdin)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return ForkedProcess(self._place, int(self._process.stdout.readline()))

    def close(self) -> None:
        """End it; whatever of its processes still runs ends too."""
        self._process.communicate()


def serve() -> Callable[[], Any]:
    """Fork for each line of the input; in a forked process, return what it is to call."""
    for name in PRELOADED:
        with suppress(ModuleNotFoundError):  # Dask is an extra.
            importlib.import_module(name)
    place, running = Path(sys.argv[1]), set[int]()

    def reap(*_: object) -> None:
        for pid in list(running):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # A signal came as the lines below were at it.
                continue
            if ended:
                running.discard(pid)
                part = place / f"{pid}.part"
                part.write_text(str(os.waitstatus_to_exitcode(status)))
                part.rename(place / f"{pid}.code")

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        begun, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            order = json.loads(line)
            _set_up(order, place)
            os.close(ours)  # From now on it can be waited for, and killed with its group.
            os.close(begun)
            return _target(order)
        running.add(pid)
        os.close(ours)
        os.read(begun, 1)
        os.close(begun)
        reap()  # It may have ended before it was known.
        print(pid, flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in running:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return sys.exit


def _set_up(order: dict[str, Any], place: Path) -> None:
    """Make a forked process one that might just have been started for the order."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for old in place.glob(f"{os.getpid()}.*"):  # of a process that had the number before
        old.unlink()
    for number, name in enumerate((os.devnull, f"{os.getpid()}.out", f"{os.getpid()}.err")):
        file = os.open(place / name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.chdir(order["cwd"])
    os.environ.update(order["environment"])


def _target(order: dict[str, Any]) -> Callable[[], Any]:
    """What the order names."""
    module, _, name = order["target"].partition(":")
    sys.argv = [module, *order["words"]]
    found: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return found


def run_script() -> None:
    """Run the script that the first argument names, as `python script.py` does."""
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


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
