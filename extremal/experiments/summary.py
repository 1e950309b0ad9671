"""The summary of an experiment: everything that tables, figures and pages are made from."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from extremal._check import require
from extremal._files import FileError, json_file, read_whole, write_whole
from extremal.experiments.experiment import PROVENANCE, Experiment, Scale
from extremal.experiments.panel_data import panel_data
from extremal.experiments.storage.store import Store
from extremal.experiments.verdicts import verdict


def summarise(
    experiment: Experiment, scale: Scale, store: Store, seeds: int | None = None
) -> dict[str, Any]:
    """What the store has of an experiment at a scale, as JSON values.

    Claims become `rows`, ours against published; panels become plain data. What isn't there yet is
    null or of kind "missing". NaN and infinities are null too, since JSON has neither. Only
    "seconds" depends on anything but the trials' results.
    """
    settings = experiment.at(scale)
    trials = experiment.trials(scale, seeds)
    found = store.read_all(trials)
    done = [stored for stored in found if stored.status == "done"]
    failed = [stored for stored in found if stored.status == "failed"]
    claims = [claim for claim in experiment.claims if scale in claim.scales]
    summary = {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "scale": scale,
        "version": experiment.version,
        "trials": {"done": len(done), "failed": len(failed), "total": len(trials)},
        "failures": [
            {"params": stored.trial.params, "seed": stored.trial.seed, "reason": stored.reason}
            for stored in failed
        ],
        "settings": _provenance(experiment, scale, seeds),
        "marks": PROVENANCE,
        "notes": experiment.notes,
        "rows": [verdict(claim, trials, done, settings) for claim in claims],
        "panels": [
            panel_data(panel, trials, done, failed, settings) for panel in experiment.panels
        ],
        "seconds": round(math.fsum(stored.seconds for stored in found), 3),
        "columns": experiment.columns,
    }
    plain: dict[str, Any] = _plain(summary)
    return plain


def write_summary(path: str | Path, summary: dict[str, Any]) -> None:
    """Write a summary as JSON, whole or not at all."""
    write_whole(Path(path), json_file(summary), make_folders=True)


def load_summary(path: str | Path) -> dict[str, Any]:
    """Read a summary that `write_summary` wrote."""
    data = read_whole(Path(path))
    if data is None:
        raise FileError(f"cannot read {path}: no such file")
    try:
        summary = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} must hold a summary as JSON, got {error}") from error
    good = isinstance(summary, dict) and {"experiment", "rows", "panels"} <= set(summary)
    require(good, str(path), "hold a summary", type(summary).__name__)
    result: dict[str, Any] = summary
    return result


def _provenance(experiment: Experiment, scale: Scale, seeds: int | None) -> list[dict[str, Any]]:
    rows = experiment.provenance(scale)
    if seeds is None or seeds == experiment.at(scale).get("seeds", 1):
        return rows
    chosen = {"name": "seeds", "value": seeds, "mark": "O", "note": "asked for in this run"}
    return [*(row for row in rows if row["name"] != "seeds"), chosen]


def _plain(value: Any) -> Any:
    """The same as JSON will give it back: lists for tuples, null for NaN and infinities."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
