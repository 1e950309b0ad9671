"""Where results are: in a run folder, as far as a run has come, or among those that are shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from extremal._check import require
from extremal._files import read_whole, write_whole
from extremal.experiments.experiment import Experiment
from extremal.experiments.storage.store import Store
from extremal.experiments.summary import load_summary, summarise

START_NOTE = "begun.json"
# Where stored summaries are: here, in the checkout that holds the package, or in the wheel.
SHIPPED_FOLDERS = (Path("results"), *(Path(__file__).parents[up] / "results" for up in (2, 1)))


def was_started(experiment: Experiment, scale: str, out: Path) -> bool:
    """Whether an experiment was begun at a scale in a run folder."""
    return (out / experiment.name / scale / START_NOTE).is_file()


def started_seeds(experiment: Experiment, scale: str, out: Path) -> int | None:
    """With how many seeds it was begun, None for the scale's own number."""
    note = out / experiment.name / scale / START_NOTE
    try:
        seeds = json.loads(note.read_text())["seeds"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{note} must be the note of a run, got {error!r}") from error
    require(seeds is None or isinstance(seeds, int), str(note), "hold a number of seeds", seeds)
    found: int | None = seeds
    return found


def add_start_note(folder: Path, seeds: int | None) -> bytes | None:
    """Note in a run's folder that it was begun, and with how many seeds; `show` reads it.

    Returns the note of an earlier run.
    """
    earlier = read_whole(folder / START_NOTE)
    write_whole(folder / START_NOTE, json.dumps({"seeds": seeds}).encode(), make_folders=True)
    return earlier


def remove_start_note(folder: Path, earlier: bytes | None, out: Path) -> None:
    """Leave things as before `add_start_note`, so that `show` does not find an empty run."""
    if earlier is not None:
        write_whole(folder / START_NOTE, earlier)
        return
    with suppress(OSError):  # Folders with other files stay.
        (folder / START_NOTE).unlink()
        while folder != out:
            folder.rmdir()
            folder = folder.parent


def from_runs(
    experiment: Experiment, scales: Iterable[str], out: Path
) -> tuple[dict[str, Any], list[Path]] | None:
    """The first scale that was run, as far as it has come: its summary and the report's files."""
    for scale in scales:
        if was_started(experiment, scale, out):
            seeds = started_seeds(experiment, scale, out)
            summary = summarise(experiment, scale, Store(out), seeds)  # type: ignore[arg-type]
            return summary, report_files(out / experiment.name / scale)
    return None


def from_shipped(
    experiment: Experiment, scales: Iterable[str]
) -> tuple[dict[str, Any], list[Path]] | None:
    """The first scale that the repo ships: its summary and its files."""
    for scale in scales:
        path = shipped_file(experiment, scale)
        if path is not None:
            return load_summary(path), sorted(path.parent.glob(f"{scale}.*"))
    return None


def from_summary(
    name: str, scales: Iterable[str], out: Path
) -> tuple[dict[str, Any], list[Path]] | None:
    """A sweep or the first scale of a user's record, as it was when it last ended; its files."""
    for folder in (out / name, *(out / name / scale for scale in scales)):
        if (folder / "summary.json").is_file():
            return load_summary(folder / "summary.json"), report_files(folder)
    return None


def shipped_file(experiment: Experiment, scale: str) -> Path | None:
    """The summary that the repo ships, or None."""
    paths = (root / experiment.name / f"{scale}.json" for root in SHIPPED_FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def report_files(folder: Path) -> list[Path]:
    """The files of a report, without the note that it was begun."""
    return sorted(path for path in folder.glob("*.*") if path.name != START_NOTE)
