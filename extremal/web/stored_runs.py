"""What is stored: every experiment's runs with how far they have come, and their files."""

from __future__ import annotations

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
    START_NOTE,
    from_runs,
    from_shipped,
    shipped_file,
    started_seeds,
    was_started,
)
from extremal.report.figure import pdf_bytes, png_bytes
from extremal.report.panel_style import headings, panels_of
from extremal.report.report_files import csv_bytes
from extremal.report.verdict_table import verdict, verdicts

# Seconds since the last trial ended, within which a run is surely running.
RUNNING_SECONDS = 120.0
# Kinds of files that can be had of a run: the type that a browser is told, and words for a link.
FILE_KINDS = {
    "csv": ("text/csv", "Claims, CSV"),
    "figure.csv": ("text/csv", "Curves, CSV"),
    "json": ("application/json", "Summary, JSON"),
    "png": ("image/png", "Figure, PNG"),
    "pdf": ("application/pdf", "Figure, PDF"),
}
# Columns of the file of claims, ours against published.
CLAIM_COLUMNS = (
    *("quantity", "published", "ours", "low", "high", "tolerance", "rule", "n", "source"),
    "verdict",
)
# Columns of the file of everything that is drawn.
CURVE_COLUMNS = ("panel", "series", "x", "y", "low", "high")
_drawing = threading.Lock()  # matplotlib's fonts and parameters are shared by all threads


@dataclass(frozen=True)
class RunRow:
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


def listing(out: Path) -> list[RunRow]:
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


def _of_run(experiment: experiments.Experiment, scale: str, out: Path) -> RunRow:
    """Counts by the files that are there, which is fast; claims once all trials are done."""
    written = _written(experiment, scale, out)
    total, done = len(written), sum(at > 0 for at in written)
    path = out / experiment.name / scale / "summary.json"
    if done == total and path.is_file():
        return _of_summary(experiments.load_summary(path), "done")
    quiet = max(time.time() - max(written, default=0.0), 0.0)
    status = "running" if quiet < RUNNING_SECONDS and done < total else "begun"
    return RunRow(experiment.name, experiment.title, scale, status, done, total, None, None, quiet)


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


def _of_summary(summary: Mapping[str, Any], status: str) -> RunRow:
    words = verdicts(summary)
    counts = summary["trials"]
    return RunRow(
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


def drawn_file(name: str, scale: str, kind: str, out: Path) -> Path | None:
    """A figure or a page that was drawn of the result that `detail` finds; None where none is new.

    Only png, pdf and html are drawn. Those of a run folder are older than its last trial, or its
    start, while a run goes on.
    """
    if kind not in ("png", "pdf", "html"):
        return None
    experiment = experiments.get(name)
    if not was_started(experiment, scale, out):
        stored = shipped_file(experiment, scale)
        path = None if stored is None else stored.with_suffix(f".{kind}").resolve()
        return path if path is not None and path.is_file() else None
    folder = out / experiment.name / scale
    path = folder / ("report.html" if kind == "html" else f"figure.{kind}")
    last = max(changed(name, scale, out), _time(folder / START_NOTE))
    return path.resolve() if _time(path) >= last else None


def made_file(summary: Mapping[str, Any], kind: str) -> bytes:
    """A file made from a summary: its claims or its curves as CSV, itself, or its figure."""
    if kind == "csv":
        rows = [{**row, "verdict": verdict(row)} for row in summary["rows"]]
        return csv_bytes(rows, CLAIM_COLUMNS)
    if kind == "figure.csv":
        return csv_bytes(_curves(summary), CURVE_COLUMNS)
    if kind == "json":
        return json.dumps(summary, indent=1).encode()
    with _drawing:
        return png_bytes(summary) if kind == "png" else pdf_bytes(summary)


def _curves(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that is drawn, in one long table."""
    panels = panels_of(summary)
    for panel, title in zip(panels, headings(panels), strict=True):
        for values in _values(panel):
            yield dict(zip(CURVE_COLUMNS, (title, *values), strict=False))


def _values(panel: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Series, x, y and perhaps low and high of each point of a panel."""
    match panel["kind"]:
        case "line":
            for curve in panel["series"]:
                blank = [None] * len(curve["x"])
                sides = (curve["low"] or blank, curve["high"] or blank)
                for values in zip(curve["x"], curve["y"], *sides, strict=True):
                    yield (curve["label"], *values)
        case "bars":
            for index, height in enumerate(panel["y"], 1):
                yield "", index, height
        case "heat":
            for row, values in enumerate(panel["z"], 1):
                for column, value in enumerate(values, 1):
                    yield f"row {row}", column, value
        case "scene":
            for cloud in panel["clouds"]:
                for index, point in enumerate(cloud["points"]):
                    yield f"{cloud['label']} {index}", *point
