"""Commands about experiments: demo, list, run, show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from extremal import experiments as ex
from extremal import report
from extremal._check import choice
from extremal.cli.progress import shown_progress
from extremal.cli.runs import (
    ClusterOption,
    DryOption,
    JobsOption,
    JsonOption,
    OutOption,
    ThreadsOption,
    check_asked,
    cores,
    tell_estimate,
    tell_failures,
)
from extremal.experiments import Experiment, Store
from extremal.experiments.saved_results import from_runs, from_shipped, from_summary, report_files
from extremal.experiments.sweep_file import SWEEP_PREFIX


def _names(incomplete: str) -> list[str]:
    return [name for name in ex.names() if name.startswith(incomplete)]


def _scales(incomplete: str) -> list[str]:
    return [scale for scale in ex.SCALES if scale.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(
        help="An experiment (`extremal list`), or a file of yours with a record, my_record.py.",
        autocompletion=_names,
    ),
]
ScaleOption = Annotated[
    str,
    typer.Option(
        "--scale",
        "-s",
        help="smoke (seconds), quick (minutes) or paper (the paper's own sizes).",
        autocompletion=_scales,
    ),
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
    check_asked(jobs, None, 1)
    _run(ex.get("demo"), "quick", out, as_json, jobs=cores() if jobs is None else jobs)


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
    name: NameArgument,
    scale: ScaleOption = "quick",
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions, instead of the scale's own number.")
    ] = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    threads: ThreadsOption = 1,
    dry_run: DryOption = False,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Run an experiment, or what is left of it, and compare with the published values.

    It can be interrupted at any moment: run the same command again and it goes on. It ends with
    exit code 1 if a trial failed, and with 2 at once if its data can't be had.

    Example:  extremal run min-vidal-2024/figure-2 --scale quick
    """
    experiment = ex.find_record(name)
    check_asked(jobs, cluster, threads)
    if dry_run:
        trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]  # it checks the name
        found = ex.estimate(trials, Store(out), _shipped_cost(experiment, scale))
        tell_estimate(f"{experiment.name} ({scale})", found, jobs, cluster, as_json)
        return
    processes = cores() if jobs is None and cluster is None else jobs or 1
    how = {"jobs": processes, "cluster": cluster, "threads": threads, "seeds": seeds}
    _run(experiment, scale, out, as_json, **how)


def show(
    name: NameArgument,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale", "-s", help="The largest that was run unless said.", autocompletion=_scales
        ),
    ] = None,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show ours against published, from the run folder or else from the shipped results.

    A sweep, sweeps/NAME, and a record of yours are shown by name too, as they were when they last
    ended; a record's file, my_record.py, shows it as far as it has come.

    Example:  extremal show min-vidal-2024/figure-2 --json
    """
    if scale is not None:
        choice("scale", scale, ex.SCALES)
    wanted: list[str] = [scale] if scale else [*reversed(ex.SCALES)]
    known = name in ex.names() or re.search(r"\.py(:\w+)?$", name)
    ended = None if known else from_summary(name, wanted, out)
    if ended is not None:
        _tell(None, *ended, as_json)
        return
    if name.startswith(SWEEP_PREFIX):
        raise ValueError(
            f"no sweep of the name {name} has ended in {out}; run it: extremal sweep FILE.toml"
        )
    experiment = ex.find_record(name)
    found = from_runs(experiment, wanted, out) or from_shipped(experiment, wanted)
    if found is None:
        where = f" at scale {scale}" if scale else ""
        raise ValueError(
            f"nothing is stored for {name}{where} in {out}; run it: extremal run {name}"
        )
    _tell(experiment, *found, as_json)


def _run(experiment: Experiment, scale: str, out: Path, as_json: bool, **how: Any) -> None:
    with shown_progress(experiment.name) as shown:
        told = {"progress": shown.update, "notice": shown.notice}
        summary = ex.reproduce(experiment, scale, out, **told, **how)  # type: ignore[arg-type]
    _tell(experiment, summary, report_files(out / experiment.name / scale), as_json)
    if summary["trials"]["failed"]:
        raise typer.Exit(1)


def _shipped_cost(experiment: Experiment, scale: str) -> float | None:
    """The seconds of a trial in the results that the repo ships."""
    found = from_shipped(experiment, [scale])
    if found is None:
        return None
    counts = found[0]["trials"]
    computed = counts["done"] + counts["failed"]
    return float(found[0]["seconds"]) / computed if computed else None


def _tell(
    experiment: Experiment | None, summary: dict[str, Any], files: list[Path], as_json: bool
) -> None:
    names = [str(path) for path in files]
    if as_json:
        keys = ("experiment", "scale", "trials", "rows")
        print(json.dumps({**{key: summary[key] for key in keys}, "files": names}, indent=2))
        return
    console = _console()
    if summary["rows"]:
        console.print(report.rows_table(summary))
    tell_failures(experiment, summary)
    for path in names:
        console.print(path, markup=False, highlight=False, soft_wrap=True)


def _console() -> Console:
    return Console(width=None if Console().is_terminal else 80)
