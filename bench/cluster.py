"""Two Dask workers against one on the same trials, and what a trial costs besides its computing.

A scheduler, the workers and the client are processes of their own on this machine. Runs with one
worker and with two take turns, so that a machine that is busy for a while is busy for both. Two
kinds of trial: one computes for some seconds, one waits for as long. Where others use the machine,
two that compute share what one had for itself, and the first kind says more about them than about
us; the second kind needs no processor, and says what of the time is ours. A run is timed as people
meet it, from the call to its return: finding what is missing, connecting, and storing are in it.
The workers have loaded the package before; the processes of a local run start anew each time.
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

from bench._common import is_number, markdown_table
from extremal.experiments import Outcome, Store, Trial, run

SETTINGS: dict[str, Any] = {
    "trials of a run": 4,
    "seconds of a trial that waits": 5.0,
    "CPU seconds of a trial that computes": 5.0,
    "turns": 3,
    "empty trials": 200,
    "threads of a worker": 1,
}
_ROOT = str(Path(__file__).parents[1])
_STUDY = "bench.cluster:study"
_PLACES: dict[str, dict[str, Any]] = {
    "in this process": {"jobs": 1},
    "in two processes, which start": {"jobs": 2},
    "on two warm workers": {},
}


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Wait, or multiply matrices for so many CPU seconds, or do nothing."""
    time.sleep(params.get("wait", 0.0))
    begun, products = time.process_time(), 0
    x = torch.randn(200, 200, generator=generator, dtype=torch.float64)
    while time.process_time() - begun < params.get("compute", 0.0):
        x = x @ x / x.norm()
        products += 1
    return Outcome({"products": products})


def measure() -> dict[str, Any]:
    """Efficiencies of two workers, and what empty trials take."""
    figures: dict[str, Any] = {"load before": os.getloadavg()[0]}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with _cluster(place / "one", 1) as one, _cluster(place / "two", 2) as two:
            for kind, setting in (("waits", "seconds of a"), ("computes", "CPU seconds of a")):
                seconds = SETTINGS[f"{setting} trial that {kind}"]
                found = _in_turns(place / kind, one, two, {kind.removesuffix("s"): seconds})
                figures[f"a trial {kind}"] = found
                ratios[f"efficiency of two workers, a trial {kind}"] = statistics.median(
                    alone / (2.0 * both) for alone, both in zip(*found.values(), strict=True)
                )
            empty = [Trial(_STUDY, {}, seed) for seed in range(SETTINGS["empty trials"])]
            seconds = {
                name: timed(empty, place / name, how or {"cluster": two})
                for name, how in _PLACES.items()
            }
    figures["seconds of the empty trials"] = seconds
    ratios["empty trials on two warm workers over those in this process"] = (
        seconds["on two warm workers"] / seconds["in this process"]
    )
    figures["load after"] = os.getloadavg()[0]
    return {"bench": "cluster", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _in_turns(
    place: Path, one: str, two: str, params: Mapping[str, float]
) -> dict[str, list[float]]:
    """Seconds of each run, with one worker and with two by turns."""
    clusters = {"one worker": one, "two workers": two}
    found: dict[str, list[float]] = {name: [] for name in clusters}
    for turn in range(SETTINGS["turns"]):
        for name, address in clusters.items():
            seeds = range(SETTINGS["trials of a run"])
            trials = [Trial(_STUDY, {"turn": turn, **params}, seed) for seed in seeds]
            found[name].append(timed(trials, place / f"{name} {turn}", {"cluster": address}))
    return found


def timed(trials: list[Trial], place: Path, how: Mapping[str, Any]) -> float:
    """Seconds of a run of these trials into an empty store."""
    begun = time.perf_counter()
    report = run(trials, Store(place), **how)
    assert report.done == len(trials)
    return time.perf_counter() - begun


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
        while (place / "log").read_bytes().count(b"Registered to") < workers:
            time.sleep(0.1)
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


def table(result: dict[str, Any]) -> str:
    """Every ratio and every figure that is one number, a row each; the load stands in the head."""
    singles = {name: value for name, value in result["figures"].items() if is_number(value)}
    empty = result["figures"]["seconds of the empty trials"]
    count = result["settings"]["empty trials"]
    singles |= {f"seconds of {count} empty trials, {where}": empty[where] for where in empty}
    loads = [
        f"{singles.pop(name):.1f}" for name in ("load before", "load after") if name in singles
    ]
    rows = [[name, f"{value:.3g}"] for name, value in (result["ratios"] | singles).items()]
    return markdown_table(["", f"load of the machine {' to '.join(loads)}" if loads else ""], rows)
