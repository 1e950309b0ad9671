"""Commands about experiments: demo, list, run, show."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from extremal import experiments as ex
from extremal import report
from extremal._files import read_whole, write_whole
from extremal.cli.runs import (
    ClusterOption,
    DryOption,
    JobsOption,
    JsonOption,
    OutOption,
    RetriesOption,
    carry_out,
    check_asked,
    tell_estimate,
    tell_failures,
)
from extremal.data import DataError
from extremal.experiments import ClusterError, Experiment, Store
from extremal.experiments.finding import BEGUN, from_runs, from_shipped, report_files
from extremal.experiments.sweep import SWEEPS


def _names(incomplete: str) -> list[str]:
    return [name for name in ex.names() if name.startswith(incomplete)]


def _scales(incomplete: str) -> list[str]:
    return [scale for scale in ex.SCALES if scale.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(help="An experiment; `extremal list` shows them.", autocompletion=_names),
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
    check_asked(jobs, None, 0)
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
    name: NameArgument,
    scale: ScaleOption = "quick",
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions, instead of the scale's own number.")
    ] = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    retries: RetriesOption = 1,
    dry_run: DryOption = False,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Run an experiment, or what is left of it, and compare with the published values.

    It can be interrupted at any moment: run the same command again and it goes on. It ends with
    exit code 1 if a trial failed, and with 2 at once if its data can't be had.

    Example:  extremal run min-vidal-2024/figure-2 --scale quick
    """
    experiment = ex.get(name)
    check_asked(jobs, cluster, retries)
    if dry_run:
        trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]  # it checks the name
        found = ex.estimate(trials, Store(out), _shipped_cost(experiment, scale))
        tell_estimate(f"{name} ({scale})", found, jobs, cluster, as_json)
        return
    _run(experiment, scale, seeds, out, jobs, as_json, cluster, retries)


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

    A sweep is shown by its name too, sweeps/NAME, as it was when it last ended.

    Example:  extremal show min-vidal-2024/figure-2 --json
    """
    if name.startswith(SWEEPS):
        _tell(None, *_from_sweep(name, out), as_json)
        return
    experiment = ex.get(name)
    if scale is not None:
        experiment.at(scale)  # type: ignore[arg-type]  # it checks the name
    wanted: list[str] = [scale] if scale else [*reversed(ex.SCALES)]
    found = from_runs(experiment, wanted, out) or from_shipped(experiment, wanted)
    if found is None:
        where = f" at scale {scale}" if scale else ""
        raise ValueError(
            f"nothing is stored for {name}{where} in {out}; run it: extremal run {name}"
        )
    _tell(experiment, *found, as_json)


def _from_sweep(name: str, out: Path) -> tuple[dict[str, Any], list[Path]]:
    """The summary of a sweep, whose record is the user's file, and its files."""
    file = out / name / "summary.json"
    if not file.is_file():
        raise ValueError(
            f"no sweep of the name {name} has ended in {out}; run it: extremal sweep FILE.toml"
        )
    return ex.load_summary(file), report_files(file.parent)


def _run(
    experiment: Experiment,
    scale: str,
    seeds: int | None,
    out: Path,
    jobs: int | None,
    as_json: bool,
    cluster: str | None = None,
    retries: int = 1,
) -> None:
    trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]  # it checks the name
    store, folder = Store(out), out / experiment.name / scale
    earlier = _begin(folder, seeds)
    try:
        done = carry_out(experiment.name, trials, store, jobs, cluster, retries)
    except (DataError, ClusterError):
        if len(store.without(trials)) == len(trials):
            _unbegin(folder, earlier, out)
        raise
    summary = ex.summarise(experiment, scale, store, seeds)  # type: ignore[arg-type]
    ex.write_summary(folder / "summary.json", summary)
    film = ex.film(experiment, scale, store, seeds)  # type: ignore[arg-type]
    report.write_report(summary, folder, film)
    _tell(experiment, summary, report_files(folder), as_json)
    if done.failed:
        raise typer.Exit(1)


def _begin(folder: Path, seeds: int | None) -> bytes | None:
    """Note in the run's folder that it was begun, and with how many seeds; `show` reads it.

    Returns the note of an earlier run.
    """
    earlier = read_whole(folder / BEGUN)
    write_whole(folder / BEGUN, json.dumps({"seeds": seeds}).encode(), make_folders=True)
    return earlier


def _unbegin(folder: Path, earlier: bytes | None, out: Path) -> None:
    """Leave things as they were before `_begin`, so that `show` does not find an empty run."""
    if earlier is not None:
        write_whole(folder / BEGUN, earlier)
        return
    with suppress(OSError):  # Folders with other files stay.
        (folder / BEGUN).unlink()
        while folder != out:
            folder.rmdir()
            folder = folder.parent


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
