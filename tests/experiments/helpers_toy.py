"""A study for the tests of the runner: quick, and able to fail in every way."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from extremal.data import DataError
from extremal.experiments import Outcome, Trial

STUDY = f"{__name__}:study"


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Draw numbers; before that, do as `sleep`, `gate` and `mode` say, and write to `log`."""
    _note(params, "start")
    time.sleep(params.get("sleep", 0.0))
    while "gate" in params and not Path(params["gate"], str(params["level"])).exists():
        time.sleep(0.01)
    _misbehave(params)
    draws = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    _note(params, "end")
    level = params["level"]
    numbers = {
        "value": float(draws.sum()) + level,
        "radii": [0.0, 0.5, 1.0],
        "curve": (draws @ draws.T)[0, :3].tolist(),
        "pair": [level, 2 * level],
    }
    return Outcome(numbers, {"draws": draws, "plane": draws[:, :2]})


def _note(params: Mapping[str, Any], word: str) -> None:
    if "log" in params:
        with open(params["log"], "a") as file:
            file.write(f"{word} {params['level']} {os.getpid()}\n")


def noted(log: Path, word: str) -> list[tuple[float, int]]:
    """The level and the process of each line with that word."""
    rows = [row.split() for row in log.read_text().splitlines()] if log.exists() else []
    return [(float(level), int(pid)) for found, level, pid in rows if found == word]


def _misbehave(params: Mapping[str, Any]) -> None:
    mode = params.get("mode", "")
    if mode == "raise":
        raise ArithmeticError(f"level {params['level']} is too much")
    if mode == "exit":
        sys.exit(3)
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "memory":
        # More than its worker may have, but no more than the tests' machine has.
        kept = [bytearray(2**27) for _ in range(int(params["gib"] * 8)) if not time.sleep(0.05)]
        assert kept
    if mode == "kill once":
        try:
            Path(params["marker"]).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "interrupt":
        raise KeyboardInterrupt
    if mode == "data" and not Path(params["data"]).exists():
        raise DataError(f"cannot load toys: EXTREMAL_DATA is not set; no {params['data']} — 100 %")


def no_outcome(params: Mapping[str, Any], generator: torch.Generator) -> object:
    """A study that forgets to return an Outcome."""
    return {"value": 1.0}


def greedy(params: dict[str, Any], generator: torch.Generator) -> Outcome:
    """A study that changes its parameters."""
    params["list"].append(params.pop("level"))
    return Outcome({"value": 1.0})


def rounding(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """A study that tells what the processor and torch are set to."""
    return Outcome({"threads": torch.get_num_threads(), "flushed": flushes()})


def flushes() -> bool:
    """Whether denormal numbers become zero."""
    return bool(torch.tensor(2.0**-1000, dtype=torch.float64) * 2.0**-60 == 0.0)


def trial(level: float, seed: int = 0, **params: Any) -> Trial:
    """A trial of `study`."""
    return Trial(STUDY, {"level": level, **params}, seed)
