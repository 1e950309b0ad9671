"""A store of 100,000 trials against one of 1,000: showing an experiment, resuming it, listing.

Times are CPU seconds of whole commands, each a process of its own as people start it, so that what
else the machine does counts little. Each store is one experiment, of which every trial is done.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from extremal.experiments import Experiment, Line, Outcome, Setting, Store, register
from extremal.experiments.sealed import pack

SIZES = {"small": (10, 10, 10), "large": (100, 10, 100)}  # spreads, powers, seeds
SETTINGS = {
    "trials": {name: spreads * powers * seeds for name, (spreads, powers, seeds) in SIZES.items()},
    "numbers of a trial": "8, and a curve of 20 points",
    "seconds": "CPU seconds of the command's process, imports among them",
}
_ROOT = Path(__file__).parents[1]


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Numbers of the usual size, without much work."""
    draws = torch.randn(28, generator=generator, dtype=torch.float64)
    numbers: dict[str, Any] = {f"value_{k}": float(draws[k]) for k in range(8)}
    return Outcome({**numbers, "curve": draws[8:].tolist()})


def experiment(size: str) -> Experiment:
    """The grid of a store."""
    spreads, powers, seeds = SIZES[size]
    settings = {
        "spread": Setting([round(0.01 * (k + 1), 2) for k in range(spreads)], "O"),
        "p": Setting([1.0 + k for k in range(powers)], "O"),
        "seeds": Setting(seeds, "O"),
        **{name: Setting(1000 + k, "O") for k, name in enumerate(("dim", "width", "samples"))},
    }
    panel = Line("value", "spread", ("value_0",), "spread", "value", by="p")
    where = "bench.store:study"
    return Experiment(f"bench/{size}", size, "bench", where, settings, ("spread", "p"), (panel,))


def fill(root: Path, size: str) -> None:
    """Write the files as a run does, but for waiting until each is on the disk."""
    store = Store(root)
    for trial in experiment(size).trials("paper"):
        packed = pack(trial, trial.compute(), 0.001)
        path = store.path(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed.text)
    begun = root / f"bench/{size}/paper/begun.json"
    begun.parent.mkdir(parents=True)
    begun.write_text('{"seeds": null}')
    time.sleep(2.5)  # An index holds no file as young as this.


def command(*arguments: str) -> tuple[dict[str, Any], str, float]:
    """What a command of `extremal` prints as JSON, what it says, and its CPU seconds."""
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import bench.store; "
        "bench.store.enlist(); from extremal.cli.main import main; main()"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(ran.stdout), ran.stderr, seconds


def enlist() -> None:
    """Make the two experiments known to a command."""
    for size in SIZES:
        register(experiment(size))


def measure() -> dict[str, Any]:
    """CPU seconds of each command on both stores, and their ratios."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            figures[size] = _measured(Path(folder) / size, size)
    ratios = {
        f"{what}, large over small": figures["large"][what] / figures["small"][what]
        for what in figures["small"]
        if what != "damaged"
    }
    return {"bench": "store", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _measured(root: Path, size: str) -> dict[str, Any]:
    fill(root, size)
    name, place = f"bench/{size}", ("--out", str(root))
    commands = {
        "show": ("show", name, *place),
        "resume": ("run", name, "--scale", "paper", "--jobs", "1", *place),
        "list": ("store", "list", *place),
    }
    found: dict[str, Any] = {"show, without an index": command(*commands["show"])[2]}
    for what, words in commands.items():
        found[what] = command(*words)[2]
    found["damaged"] = _damage(root, size, commands)
    found["compact"] = command("store", "compact", *place)[2]
    for what in ("show", "resume"):
        found[f"{what}, compacted"] = command(*commands[what])[2]
    return found


def _damage(root: Path, size: str, commands: Mapping[str, Any]) -> dict[str, Any]:
    """Flip one bit of one file; what `show` says of it, and what the next run does."""
    path = Store(root).path(experiment(size).trials("paper")[-1])
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    shown, told, _ = command(*commands["show"])
    aside = path.with_name(path.name + ".corrupt").exists()
    again, _, _ = command(*commands["resume"])
    return {
        "named": path.name in told,
        "set aside": aside,
        "missing until the next run": shown["trials"]["total"] - shown["trials"]["done"],
        "missing after it": again["trials"]["total"] - again["trials"]["done"],
    }
