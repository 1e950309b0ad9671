"""Commands about experiments: demo, list, run, show."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from extremal import experiments as ex
from extremal import report
from extremal._files import read_whole, write_whole
from extremal.cli.progress import shown_progress
from extremal.data import DataError
from extremal.experiments import Experiment, Store

_BEGUN = "begun.json"
_FAILURES = 5  # how many are printed
# Where stored summaries are: here, in the checkout that holds the package, or in the wheel.
_SHIPPED = (Path("results"), *(Path(__file__).parents[up] / "results" for up in (2, 1)))


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
    name: NameArgument,
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
    exit code 1 if a trial failed, and with 2 at once if its data can't be had.

    Example:  extremal run min-vidal-2024/figure-2 --scale quick
    """
    _run(ex.get(name), scale, seeds, out, jobs, as_json)


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
    store, folder = Store(out), out / experiment.name / scale
    earlier = _begin(folder, seeds)
    try:
        with shown_progress(experiment.name) as progress:
            done = ex.run(trials, store, jobs=_cores() if jobs is None else jobs, progress=progress)
    except DataError:
        if not any(map(store.has, trials)):
            _unbegin(folder, earlier, out)
        raise
    summary = ex.summarise(experiment, scale, store, seeds)  # type: ignore[arg-type]
    ex.write_summary(folder / "summary.json", summary)
    film = ex.film(experiment, scale, store, seeds)  # type: ignore[arg-type]
    report.write_report(summary, folder, film)
    _tell(summary, _files(folder), as_json)
    if done.failed:
        raise typer.Exit(1)


def _begin(folder: Path, seeds: int | None) -> bytes | None:
    """Note in the run's folder that it was begun, and with how many seeds; `show` reads it.

    Returns the note of an earlier run.
    """
    earlier = read_whole(folder / _BEGUN)
    write_whole(folder / _BEGUN, json.dumps({"seeds": seeds}).encode(), make_folders=True)
    return earlier


def _unbegin(folder: Path, earlier: bytes | None, out: Path) -> None:
    """Leave things as they were before `_begin`, so that `show` does not find an empty run."""
    if earlier is not None:
        write_whole(folder / _BEGUN, earlier)
        return
    with suppress(OSError):  # Folders with other files stay.
        (folder / _BEGUN).unlink()
        while folder != out:
            folder.rmdir()
            folder = folder.parent


def _from_runs(
    experiment: Experiment, scales: list[str], out: Path
) -> tuple[dict[str, Any], list[Path]] | None:
    """The first scale that was run, as far as it has come."""
    for scale in scales:
        folder = out / experiment.name / scale
        if (folder / _BEGUN).is_file():
            seeds = json.loads((folder / _BEGUN).read_text())["seeds"]
            summary = ex.summarise(experiment, scale, Store(out), seeds)  # type: ignore[arg-type]
            return summary, _files(folder)
    return None


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
    experiment = ex.get(summary["experiment"])
    names = [str(path) for path in files]
    if as_json:
        keys = ("experiment", "scale", "trials", "rows")
        print(json.dumps({**{key: summary[key] for key in keys}, "files": names}, indent=2))
        return
    console = _console()
    console.print(report.rows_table(summary))
    counts = summary["trials"]
    console.print(f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed.")
    for failure in summary["failures"][:_FAILURES]:
        varied = experiment.varied(failure["params"]).items()
        trial = ", ".join(f"{name} = {value}" for name, value in varied)
        reason = failure["reason"].splitlines()[0]
        console.print(f"failed: {trial}, seed {failure['seed']}: {reason}", markup=False)
    if len(summary["failures"]) > _FAILURES:
        console.print(f"... and {len(summary['failures']) - _FAILURES} more; see report.html")
    for path in names:
        console.print(path, markup=False, highlight=False, soft_wrap=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.*") if path.name != _BEGUN)


def _console() -> Console:
    return Console(width=None if Console().is_terminal else 80)


def _cores() -> int:
    return os.cpu_count() or 1
