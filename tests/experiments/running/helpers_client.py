"""Processes that run trials of the toy study, to be killed by the tests.

Their arguments begin with a folder for the store, the log and the gate. A trial waits until the
gate holds a file of its number.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from extremal.experiments import Experiment, Line, Setting, Store, run
from extremal.experiments.running import dask_cluster
from tests.experiments import helpers_toy as toy


def experiment(place: Path, count: int) -> Experiment:
    """The record that the processes run."""
    settings = {
        "level": Setting(list(range(count)), "S"),
        "log": Setting(str(place / "log"), "O"),
        "gate": Setting(str(place / "gate"), "O"),
    }
    panel = Line("toy", "level", ("value",), "level", "value")
    return Experiment("toy", "Toy", "nowhere", toy.STUDY, settings, ("level",), (panel,))


def run_here() -> None:
    """Run on this machine; the arguments are the numbers of jobs and of trials."""
    place, jobs, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    run(experiment(place, count).trials("paper"), Store(place / "runs"), jobs=jobs)


def run_on_cluster() -> None:
    """Run on a cluster; the arguments are its address, the number of trials, the store's name."""
    place, address, count, runs = Path(sys.argv[1]), *sys.argv[2:]
    run(experiment(place, int(count)).trials("paper"), Store(place / runs), cluster=address)


def run_until_the_scheduler_dies() -> None:
    """Run three trials on a cluster, and kill the scheduler, of this number, after the first."""
    place, address, scheduler = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    dask_cluster.CONNECT_SECONDS, dask_cluster.RECONNECT_SECONDS = 2.0, 0.5

    def progress(done: int, failed: int, total: int) -> None:
        if done == 1:
            os.kill(scheduler, signal.SIGKILL)

    trials = experiment(place, 3).trials("paper")
    try:
        run(trials, Store(place / "runs"), cluster=address, progress=progress, notice=print)
    except ValueError as error:
        print(type(error).__name__, error)
    time.sleep(2.0)  # By then Dask has given up as well, which it is to keep to itself.


def open_gate(place: Path, count: int) -> None:
    """Let the first `count` trials pass."""
    (place / "gate").mkdir(exist_ok=True)
    for level in range(count):
        (place / "gate" / str(level)).touch()
