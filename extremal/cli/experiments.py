"""Commands about experiments: demo, list, run, show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from extremal import experiments as ex
from extremal import report
from extremal.cli.progress import shown_progress
from extremal.experiments import Experiment, Scale, Store

_SHIPPED = (Path("results"), Path(__file__).parents[2] / "results")

ScaleOption = Annotated[
    str,
    typer.Option("--scale", "-s", help="smoke (seconds), quick (two minutes) or paper (hours)."),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="The folder that holds the runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Trials at a time; one for each core unless said."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(demo)
    app.command(name="list")(list_experiments)
    app.command()(run)
    app.command()(show)


def demo(
    out: OutOption = Path("runs"), jobs: JobsOption = None, as_json: JsonOption = False
) -> None:
    """Show the headline result in about a minute: p = 1 breaks where p = 3 holds.

    Example:  extremal demo
    """
    _run(ex.get("demo"), "quick", None, out, jobs, as_json)


def list_experiments(as_json: JsonOption = False) -> None:
    """List the experiments.

    Example:  extremal list --json
    """
    records = [ex.get(name) for name in ex.names()]
    if as_json:
        rows = [{"name": r.name, "title": r.title, "source": r.source} for r in records]
        print(json.dumps(rows, indent=2))
        return
    table = Table("name", "what it shows", box=None, pad_edge=False)
    for record in records:
        table.add_row(record.name, record.title)
    _console().print(table)


def run(
    name: Annotated[str, typer.Argument(help="An experiment; `extremal list` shows them.")],
    scale: ScaleOption = "quick",
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions, instead of the scale's own number.")
    ] = None,
    jobs: JobsOption = None,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Run an experiment, or what is left of it, and compare with the published values.

    It can be interrupted at any moment: run the same command again and it goes on. It ends with
    exit code 1 if a trial failed.

    Example:  extremal run min-vidal-2024/figure-2 --scale quick
    """
    _run(ex.get(name), scale, seeds, out, jobs, as_json)


def show(
    name: Annotated[str, typer.Argument(help="An experiment; `extremal list` shows them.")],
    scale: Annotated[
        str | None, typer.Option("--scale", "-s", help="The largest finished one unless said.")
    ] = None,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show ours against published, from the run folder or else from the shipped results.

    Example:  extremal show min-vidal-2024/figure-2 --json
    """
    experiment = ex.get(name)
    if scale is not None:
        experiment.at(scale)  # type: ignore[arg-type]  # it checks the name
    wanted: list[str] = [scale] if scale else [*reversed(ex.SCALES)]
    found = _from_runs(experiment, wanted, out) or _from_shipped(experiment, wanted)
    if found is None:
        where = f" at scale {scale}" if scale else ""
        raise ValueError(
            f"nothing is stored for {name}{where} in {out}; run it: extremal run {name}"
        )
    _tell(*found, as_json)


def _run(
    experiment: Experiment,
    scale: str,
    seeds: int | None,
    out: Path,
    jobs: int | None,
    as_json: bool,
) -> None:
    trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]  # it checks the name
    store = Store(out)
    with shown_progress(experiment.name) as progress:
        done = ex.run(trials, store, jobs=_cores() if jobs is None else jobs, progress=progress)
    summary = ex.summarise(experiment, scale, store, seeds)  # type: ignore[arg-type]
    folder = _folder(out, experiment.name, scale)
    folder.mkdir(parents=True, exist_ok=True)
    ex.write_summary(folder / "summary.json", summary)
    files = [folder / "summary.json", *report.write_report(summary, folder)]
    _tell(summary, files, as_json)
    if done.failed:
        raise typer.Exit(1)


def _from_runs(
    experiment: Experiment, scales: list[str], out: Path
) -> tuple[dict[str, Any], list[Path]] | None:
    """The first scale that is finished, or else the first of which anything is stored.

    Scales may share trials, so that a finished small one must not hide behind a begun large one.
    """
    store = Store(out)
    begun: list[tuple[dict[str, Any], list[Path]]] = []
    for scale in scales:
        summary = ex.summarise(experiment, scale, store)  # type: ignore[arg-type]
        counts = summary["trials"]
        found = summary, sorted(_folder(out, experiment.name, scale).glob("*.*"))
        if counts["done"] + counts["failed"] == counts["total"]:
            return found
        if counts["done"] + counts["failed"]:
            begun.append(found)
    return begun[0] if begun else None


def _from_shipped(
    experiment: Experiment, scales: list[str]
) -> tuple[dict[str, Any], list[Path]] | None:
    for scale in scales:
        for root in _SHIPPED:
            path = root / experiment.name / f"{scale}.json"
            if path.is_file():
                return ex.load_summary(path), sorted(path.parent.glob(f"{scale}.*"))
    return None


def _tell(summary: dict[str, Any], files: list[Path], as_json: bool) -> None:
    names = [str(path) for path in files]
    if as_json:
        keys = ("experiment", "scale", "trials", "rows")
        print(json.dumps({**{key: summary[key] for key in keys}, "files": names}, indent=2))
        return
    console = _console()
    console.print(report.rows_table(summary))
    counts = summary["trials"]
    console.print(f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed.")
    for failure in summary["failures"][:5]:
        reason = failure["reason"].splitlines()[0]
        console.print(f"failed: seed {failure['seed']}: {reason}", markup=False)
    for path in names:
        console.print(path, markup=False, highlight=False, soft_wrap=True)


def _folder(out: Path, name: str, scale: str | Scale) -> Path:
    return out / name / scale


def _console() -> Console:
    return Console(width=None if Console().is_terminal else 80)


def _cores() -> int:
    return os.cpu_count() or 1
