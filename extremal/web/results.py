"""What is stored: every experiment's runs with how far they have come, as a table and as files."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extremal import _check, experiments
from extremal.experiments import SCALES, Store
from extremal.experiments.saved_results import (
    from_runs,
    from_shipped,
    shipped_file,
    started_seeds,
    was_started,
)
from extremal.report.figure import pdf_bytes, png_bytes
from extremal.report.style import headings, panels_of
from extremal.report.words import verdict, verdicts

RUNNING = 120.0  # seconds since the last trial ended, within which a run is surely running
KINDS = {
    "csv": "text/csv",
    "figure.csv": "text/csv",
    "json": "application/json",
    "png": "image/png",
    "pdf": "application/pdf",
}
_drawing = threading.Lock()  # matplotlib's fonts and parameters are shared by all threads


@dataclass(frozen=True)
class Row:
    """One experiment at one scale, and how far it has come."""

    name: str
    title: str
    scale: str
    status: str  # "done", "running", "shipped", or "begun" where it may have stopped
    done: int
    total: int
    agree: int | None  # claims that agree with the source, of `claims`; None until it is done
    claims: int | None
    quiet: float = 0.0  # seconds since the last trial of one that is not done


def listing(out: Path) -> list[Row]:
    """Every stored run: those of the run folder, then shipped results of what was not run."""
    rows = []
    for name in experiments.names():
        experiment = experiments.get(name)
        for scale in SCALES:
            if was_started(experiment, scale, out):
                rows.append(_of_run(experiment, scale, out))
            elif (path := shipped_file(experiment, scale)) is not None:
                rows.append(_of_summary(experiments.load_summary(path), "shipped"))
    return rows


def _of_run(experiment: experiments.Experiment, scale: str, out: Path) -> Row:
    """Counts by the files that are there, which is fast; claims once all trials are done."""
    written = _written(experiment, scale, out)
    total, done = len(written), sum(at > 0 for at in written)
    path = out / experiment.name / scale / "summary.json"
    if done == total and path.is_file():
        return _of_summary(experiments.load_summary(path), "done")
    quiet = max(time.time() - max(written, default=0.0), 0.0)
    status = "running" if quiet < RUNNING and done < total else "begun"
    return Row(experiment.name, experiment.title, scale, status, done, total, None, None, quiet)


def _written(experiment: experiments.Experiment, scale: str, out: Path) -> list[float]:
    """When each trial of a run was written; 0 for one that is not done."""
    store = Store(out)
    seeds = started_seeds(experiment, scale, out)
    trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]
    return [_time(store.path(trial)) for trial in trials]


def changed(name: object, scale: object, out: Path) -> float:
    """When the result that `detail` finds was last written."""
    _check.choice("scale", scale, SCALES)
    experiment = experiments.get(str(name))
    if was_started(experiment, str(scale), out):
        return max(_written(experiment, str(scale), out), default=0.0)
    path = shipped_file(experiment, str(scale))
    return 0.0 if path is None else _time(path)


def _time(path: Path) -> float:
    """When a file was last written; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _of_summary(summary: Mapping[str, Any], status: str) -> Row:
    words = verdicts(summary)
    counts = summary["trials"]
    return Row(
        summary["experiment"],
        summary["title"],
        summary["scale"],
        status,
        counts["done"],
        counts["total"],
        words.count("agrees"),
        len(words),
    )


def detail(name: object, scale: object, out: Path) -> dict[str, Any]:
    """The summary of a run, or of the shipped result; ValueError where neither is there."""
    _check.require(isinstance(name, str), "name", "be the name of an experiment", name)
    _check.choice("scale", scale, SCALES)
    experiment = experiments.get(str(name))
    found = from_runs(experiment, [str(scale)], out) or from_shipped(experiment, [str(scale)])
    if found is None:
        raise ValueError(
            f"nothing is stored for {experiment.name} at scale {scale}; "
            f"run it: extremal run {experiment.name} --scale {scale}"
        )
    return found[0]


def file_name(name: str, scale: str, kind: str) -> str:
    """The name that a file has where it is taken to."""
    return f"{name.replace('/', '-')}-{scale}.{kind}"


def download(summary: Mapping[str, Any], kind: object) -> bytes:
    """A file made from a summary: its claims or its curves as CSV, itself, or its figure."""
    _check.choice("kind", kind, KINDS)
    if kind == "csv":
        return _csv(_claims(summary))
    if kind == "figure.csv":
        return _csv(_curves(summary))
    if kind == "json":
        return json.dumps(summary, indent=1).encode()
    with _drawing:
        return png_bytes(summary) if kind == "png" else pdf_bytes(summary)


def _csv(rows: Iterator[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _claims(summary: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Ours against published, a row for each claim."""
    names = ["quantity", "published", "ours", "low", "high", "tolerance", "rule", "n", "source"]
    yield [*names, "verdict"]
    for row in summary["rows"]:
        yield [*(row[name] for name in names), verdict(row)]


def _curves(summary: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Everything that is drawn, in one long table: panel, series, x, y, low, high."""
    yield ["panel", "series", "x", "y", "low", "high"]
    panels = panels_of(summary)
    for panel, title in zip(panels, headings(panels), strict=True):
        for series, x, y, low, high in _values(panel):
            yield [title, series, x, y, low, high]


def _values(panel: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    match panel["kind"]:
        case "line":
            for curve in panel["series"]:
                blank = [None] * len(curve["x"])
                sides = (curve["low"] or blank, curve["high"] or blank)
                for values in zip(curve["x"], curve["y"], *sides, strict=True):
                    yield (curve["label"], *values)
        case "bars":
            for index, height in enumerate(panel["y"], 1):
                yield "", index, height, None, None
        case "heat":
            for row, values in enumerate(panel["z"], 1):
                for column, value in enumerate(values, 1):
                    yield f"row {row}", column, value, None, None
        case "scene":
            for cloud in panel["clouds"]:
                for index, point in enumerate(cloud["points"]):
                    yield f"{cloud['label']} {index}", *point, *[None] * (4 - len(point))
