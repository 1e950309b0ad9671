"""Two Dask workers against one on the same trials, and what a trial costs besides its computing.

A scheduler, the workers and the client are processes of their own on this machine. Runs with one
worker and with two take turns, so that a machine that is busy for a while is busy for both. Two
kinds of trial: one computes for some seconds, one waits for as long. Where others use the machine,
two that compute share what one had for itself, and the first kind says more about them than about
us; the second kind needs no processor, and says what of the time is ours. The start of the
processes that compute, one a worker in each run, is not in it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from extremal.experiments import Outcome, Store, Trial, run

SETTINGS: dict[str, Any] = {
    "trials of a run": 4,
    "seconds of a trial that waits": 5.0,
    "CPU seconds of a trial that computes": 5.0,
    "turns": {"waits": 3, "computes": 3},
    "small trials": 100,
    "threads of a worker": 1,
}
_ROOT = str(Path(__file__).parents[1])
_STUDY = "bench.sweep:study"


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Wait for the others, wait, or multiply matrices for so many CPU seconds."""
    if "meet" in params:
        place = Path(params["meet"])
        (place / str(generator.initial_seed())).touch()
        while len(list(place.iterdir())) < params["workers"]:
            time.sleep(0.005)
    time.sleep(params.get("wait", 0.0))
    begun, products = time.process_time(), 0
    x = torch.randn(200, 200, generator=generator, dtype=torch.float64)
    while time.process_time() - begun < params.get("compute", 0.0):
        x = x @ x / x.norm()
        products += 1
    return Outcome({"products": products})


def measure() -> dict[str, Any]:
    """Efficiencies of two workers, and overheads per trial."""
    figures: dict[str, Any] = {"load before": os.getloadavg()[0]}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with _cluster(place / "one", 1) as one, _cluster(place / "two", 2) as two:
            clusters = {"one worker": (one, 1), "two workers": (two, 2)}
            kinds = {"waits": "seconds of a trial that waits"}
            kinds["computes"] = "CPU seconds of a trial that computes"
            for kind, seconds in kinds.items():
                params = {kind.removesuffix("s"): SETTINGS[seconds]}
                found = _in_turns(place / kind, clusters, params, SETTINGS["turns"][kind])
                figures[f"a trial {kind}"] = found
                ratios[f"efficiency of two workers, a trial {kind}"] = statistics.median(
                    alone / (2.0 * both)
                    for alone, both in zip(*(found[name] for name in clusters), strict=True)
                )
            for name, workers, how in (
                ("in this process", 1, {"jobs": 1}),
                ("in two worker processes", 2, {"jobs": 2}),
                ("on the cluster of two", 2, {"cluster": two}),
            ):
                small = [Trial(_STUDY, {}, seed) for seed in range(SETTINGS["small trials"])]
                seconds = _timed(small, place / name, workers, how)
                figures[f"seconds of a small trial, {name}"] = seconds / len(small)
    base = figures["seconds of a small trial, in this process"]
    cluster = figures["seconds of a small trial, on the cluster of two"]
    ratios["a small trial on the cluster over one in this process"] = cluster / base
    figures["load after"] = os.getloadavg()[0]
    return {"bench": "sweep", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _in_turns(
    place: Path,
    clusters: Mapping[str, tuple[str, int]],
    params: Mapping[str, float],
    turns: int,
) -> dict[str, list[float]]:
    """Seconds of each run, with one worker and with two by turns."""
    found: dict[str, list[float]] = {name: [] for name in clusters}
    for turn in range(turns):
        for name, (address, workers) in clusters.items():
            trials = [
                Trial(_STUDY, {"turn": turn, **params}, seed)
                for seed in range(SETTINGS["trials of a run"])
            ]
            how = {"cluster": address}
            found[name].append(_timed(trials, place / f"{name} {turn}", workers, how))
    return found


def _timed(trials: list[Trial], place: Path, workers: int, how: Mapping[str, Any]) -> float:
    """Seconds that these trials take, from the moment when the processes for them have started.

    A run starts a process for each worker. Trials that wait for each other see to it that all have,
    and the clock runs from the end of these to the end of the last, all within one run.
    """
    meeting = place / "meeting"
    meeting.mkdir(parents=True)
    params = {"meet": str(meeting), "workers": workers}
    first = [Trial(_STUDY, params, seed) for seed in range(workers)]
    ends: list[tuple[int, float]] = []

    def progress(done: int, failed: int, total: int, running: int) -> None:
        if done >= workers:
            ends.append((done, time.perf_counter()))

    report = run([*first, *trials], Store(place / "runs"), progress=progress, **how)
    assert report.done == len(first) + len(trials)
    last = next(moment for done, moment in ends if done == report.done)
    return last - ends[0][1]


@contextmanager
def _cluster(place: Path, workers: int) -> Iterator[str]:
    """The address of a scheduler with so many workers, whose modules are loaded."""
    place.mkdir(parents=True)
    file, processes = place / "scheduler.json", []
    host = ("--host", "127.0.0.1", "--no-dashboard")
    try:
        options = ("--port", "0", "--scheduler-file", str(file))
        processes.append(_start(place, "dask_scheduler", *host, *options))
        while not (file.is_file() and file.read_text()):
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        for _ in range(workers):
            options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(place))
            processes.append(_start(place, "dask_worker", address, *host, *options))
        warm = [Trial(_STUDY, {"wait": 1.0}, seed) for seed in range(workers)]
        run(warm, Store(place / "warm"), cluster=address)
        yield address
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _start(place: Path, module: str, *options: str) -> subprocess.Popen[bytes]:
    with open(place / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *options],
            env={**os.environ, "PYTHONPATH": _ROOT, "OMP_NUM_THREADS": "1"},
            cwd=place,
            stdout=log,
            stderr=log,
        )
