"""Trials whose numbers tests know beforehand, and summaries of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from extremal.experiments import Claim, Experiment, Outcome, Panel, Setting, Store, run, summarise

STUDY = f"{__name__}:study"
"""The study below, as trials name it."""
RADII = [0.0, 0.5, 1.0]
"""Places of the trials' curves."""


def study(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Numbers that the tests know beforehand; the seed is read back from the generator."""
    p, spread, seed = params["p"], params["spread"], generator.initial_seed()
    if spread == params["broken"]:
        raise ArithmeticError("broken on purpose")
    numbers = {
        "value": 10.0 * p + spread + seed,
        "third": 1 / 3,
        "seven": 0.7,
        "hit": float(seed == 0 or p == 3.0),
        "undefined": math.nan,
        "radii": RADII if p < 9 else [0.0, 0.5, 2.0],
        "curve": [p - radius * (1 + seed) for radius in RADII],
        "short": [1.0],
        "odd": math.inf if seed else 1.0,
        "bad": [math.nan, 1.0, 2.0],
        "names": ["a", "b"],
        "word": "high",
    }
    if p == 3.0:
        numbers["only_3"] = spread
    grid = torch.arange(6.0, dtype=torch.float64).reshape(3, 2) / 3 + p
    arrays = {"grid": grid, "space": grid.repeat(1, 2)[:, :3], "none": torch.zeros(0, 2)}
    arrays["grey"] = torch.linspace(0, 1, 12).reshape(2, 2, 3, 1)
    return Outcome(numbers, arrays)


def known_experiment(
    *panels: Panel, claims: tuple[Claim, ...] = (), broken: float = -1.0, **changes: Any
) -> Experiment:
    settings = {
        "p": Setting([1.0, 3.0], "S", "Section 2"),
        "spread": Setting([0.5, 0.1], "A"),
        "shape": Setting((2, 3), "O"),
        "broken": Setting(broken, "O"),
        "seeds": Setting(2, "O"),
    }
    base = Experiment(
        "me/one", "One", "Me 2024", STUDY, settings, ("p", "spread"), panels, claims, columns=2
    )
    return dataclasses.replace(base, **changes)


def summary_of(tmp_path: Path, experiment: Experiment, **given: Any) -> dict[str, Any]:
    store = Store(tmp_path)
    run(experiment.trials("paper", given.get("seeds")), store, jobs=1)
    return summarise(experiment, "paper", store, **given)


def panel_of(tmp_path: Path, panel: Panel, **given: Any) -> dict[str, Any]:
    (found,) = summary_of(tmp_path, known_experiment(panel, **given))["panels"]
    assert found["title"] == panel.title
    return found


def row_of(tmp_path: Path, claim: Claim, **given: Any) -> dict[str, Any]:
    (found,) = summary_of(tmp_path, known_experiment(claims=(claim,), **given))["rows"]
    return found
