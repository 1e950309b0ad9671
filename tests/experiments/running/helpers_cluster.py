"""A Dask scheduler and workers as processes of their own on loopback, to be killed by the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.experiments.running.helpers_client import until


class Cluster:
    """A scheduler, and workers that come and go, each with the nanny that starts it again."""

    def __init__(self, place: Path, allowed_failures: int = 1, path: str | None = None) -> None:
        self.place, self.file, self.log = place, place / "scheduler.json", place / "dask.log"
        self.allowed_failures = allowed_failures
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler(0, path)

    def start_scheduler(self, port: int, path: str | None = None) -> subprocess.Popen[bytes]:
        self.file.unlink(missing_ok=True)
        place = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        return self._start("dask_scheduler", *place, "--scheduler-file", str(self.file), path=path)

    @property
    def address(self) -> str:
        until(lambda: self.file.is_file() and bool(self.file.read_text()))
        found: str = json.loads(self.file.read_text())["address"]
        return found

    def start_worker(self, *options: str, path: str | None = None) -> subprocess.Popen[bytes]:
        """A worker of one thread, or of what `options` say."""
        fixed = ["--no-dashboard", "--host", "127.0.0.1", "--nthreads", "1"]
        spill = ["--local-directory", str(self.place)]
        return self._start("dask_worker", self.address, *fixed, *spill, *options, path=path)

    def wait_for_workers(self, count: int) -> None:
        until(lambda: self.log.read_bytes().count(b"Registered to") >= count)

    def _start(
        self, module: str, *options: str, path: str | None = None
    ) -> subprocess.Popen[bytes]:
        search = os.pathsep.join(sys.path) if path is None else path
        settings = {
            "PYTHONPATH": search,
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(self.allowed_failures),
            # Twenty times as often as Dask looks by itself, for a trial that takes memory quickly.
            "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "10ms",
        }
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *options],
                cwd=self.place,
                env={**os.environ, **settings},
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
