"""A Dask scheduler and workers as processes of their own on loopback, to be killed by the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import dask
from distributed.cli import dask_scheduler, dask_worker

from tests.helpers_fork import ForkedProcess, ForkServer, until

ALLOWED_FAILURES = 1
SEARCH = os.pathsep.join(sys.path)


def scheduler() -> None:
    """`dask scheduler`, which gives a trial up sooner than by itself."""
    dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED_FAILURES})
    dask_scheduler.main()


def worker() -> None:
    """`dask worker`."""
    dask_worker.main()


def nannies() -> None:
    """`dask worker` whose processes begin with what trials need, as often as they are started."""
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",
        # Twenty times as often as Dask looks by itself, for a trial that takes memory quickly.
        "distributed.worker.memory.monitor-interval": "10ms",
    }
    dask.config.set(settings)
    forkserver.set_forkserver_preload(["distributed", "tests.experiments.helpers_toy"])
    forkserver.ensure_running()
    dask_worker.main()


class Cluster:
    """A scheduler, and workers that come and go."""

    def __init__(self, place: Path, forks: ForkServer) -> None:
        self.place, self.file, self._forks = place, place / "scheduler.json", forks
        self._processes: list[ForkedProcess] = []
        self._others: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler(0)

    def start_scheduler(self, port: int) -> ForkedProcess:
        """A scheduler that writes its address to the file; any port if that is 0."""
        self.file.unlink(missing_ok=True)
        return self._start("scheduler", *scheduler_options(port, self.file))

    @property
    def address(self) -> str:
        until(lambda: self.file.is_file() and bool(self.file.read_text()))
        found: str = json.loads(self.file.read_text())["address"]
        return found

    def start_worker(self) -> None:
        """A worker of one thread, which nobody starts again."""
        self._start("worker", *self._worker_options())

    def start_nannies(self, count: int, memory: str) -> None:
        """Workers of one thread, each with the nanny that starts it again; wait for them."""
        options = [*self._worker_options()[:-1], "--nworkers", str(count), "--memory-limit", memory]
        process = self._start("nannies", *options)
        until(lambda: process.written()[1].count("Registered to") >= count)

    def start_other_worker(self, path: Path) -> Path:
        """A worker of a new process that finds packages in `path` first; where its log is."""
        log = self.place / "worker.log"
        self._others.append(start_other("dask_worker", path, log, *self._worker_options()))
        return log

    def _worker_options(self) -> list[str]:
        fixed = ["--no-dashboard", "--host", "127.0.0.1", "--nthreads", "1"]
        return [self.address, *fixed, "--local-directory", str(self.place), "--no-nanny"]

    def _start(self, name: str, *options: str) -> ForkedProcess:
        target, search = f"{__name__}:{name}", {"PYTHONPATH": SEARCH}
        self._processes.append(
            self._forks.start(target, *options, cwd=self.place, environment=search)
        )
        return self._processes[-1]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
        for other in self._others:
            stop_other(other)


def scheduler_options(port: int, file: Path) -> list[str]:
    """On loopback, with its address in a file."""
    place = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    return [*place, "--scheduler-file", str(file)]


def start_other(module: str, path: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    """A scheduler or worker that imports what it has by itself, from `path` before all else."""
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *options],
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), SEARCH])},
            start_new_session=True,
            stdout=file,
            stderr=file,
        )


def stop_other(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
