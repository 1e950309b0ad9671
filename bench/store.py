"""A store of 10,000 trials against one of 1,000: showing an experiment, resuming it, listing.

Times are CPU seconds of whole commands, each a process of its own as people start it, so that what
else the machine does counts little. Each store is one experiment, of which every trial is done; its
record is a file of its own, as a user's is.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bench._common import is_number, markdown_table
from extremal.experiments import Experiment, Line, Outcome, Setting, Store
from extremal.experiments.storage.trial_file import encode

SIZES = {"small": (10, 10, 10), "large": (100, 10, 10)}  # spreads, powers, seeds
SETTINGS = {
    "trials": {name: spreads * powers * seeds for name, (spreads, powers, seeds) in SIZES.items()},
    "numbers of a trial": "8, a curve of 20 points, and an array of 1000",
    "seconds": "CPU seconds of the command's process, imports among them",
}
_ROOT = Path(__file__).parents[1]


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Numbers of the usual size, without much work."""
    draws = torch.randn(28, generator=generator, dtype=torch.float64)
    numbers: dict[str, Any] = {f"value_{k}": float(draws[k]) for k in range(8)}
    arrays = {"weights": torch.randn(1000, generator=generator, dtype=torch.float64)}
    return Outcome({**numbers, "curve": draws[8:].tolist()}, arrays)


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
        path, found = store.path(trial), encode(trial, trial.compute(study), 0.001)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found.text)
        path.with_suffix(".safetensors").write_bytes(found.arrays or b"")
    begun = root / f"bench/{size}/paper/begun.json"
    begun.parent.mkdir(parents=True)
    begun.write_text('{"seeds": null}')


def write_record(folder: Path, size: str) -> Path:
    """Write the file that a user would write, for `extremal run` and `extremal show`."""
    path = folder / f"{size}_store.py"
    path.write_text(f"from bench.store import experiment\n\nrecord = experiment({size!r})\n")
    return path


def command(*arguments: str) -> tuple[Any, str, float]:
    """What a command of `extremal` prints as JSON, what it says, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", "from extremal.cli.main import main; main()", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(ran.stdout), ran.stderr, seconds


def measure() -> dict[str, Any]:
    """CPU seconds of each command on both stores, and their ratios."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            figures[size] = _measured(Path(folder), size)
    ratios = {
        f"{what}, large over small": figures["large"][what] / figures["small"][what]
        for what in figures["small"]
        if what != "damaged"
    }
    return {"bench": "store", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _measured(folder: Path, size: str) -> dict[str, Any]:
    root, record = folder / size, str(write_record(folder, size))
    fill(root, size)
    place = ("--out", str(root))
    commands = {
        "show": ("show", record, *place),
        "resume": ("run", record, "--scale", "paper", "--jobs", "1", *place),
        "list": ("store", "list", *place),
    }
    found: dict[str, Any] = {what: command(*words)[2] for what, words in commands.items()}
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


def table(result: dict[str, Any]) -> str:
    """One row a command: seconds with each store, and their ratio."""
    small, large = (result["figures"][size] for size in ("small", "large"))
    rows = [
        [what, f"{small[what]:.1f}", f"{large[what]:.1f}", f"{large[what] / small[what]:.1f}"]
        for what in small
        if is_number(small[what])
    ]
    sizes = [f"{result['settings']['trials'][size]:,} trials" for size in ("small", "large")]
    return markdown_table(["CPU seconds", *sizes, "ratio"], rows)
