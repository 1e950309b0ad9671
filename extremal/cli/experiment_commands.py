"""Commands about experiments: demo, list, run, show, cite, and sweep, a user's own grid."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from extremal import experiments as ex
from extremal import report
from extremal._check import choice
from extremal.cli.options import (
    ClusterOption,
    DryOption,
    JobsOption,
    JsonOption,
    OutOption,
    ThreadsOption,
    trials_at_a_time,
)
from extremal.cli.output import (
    console,
    print_estimate,
    print_failures,
    print_json,
    print_lines,
    print_note,
    print_paths,
    print_table,
    shown_progress,
)
from extremal.experiments import Experiment, Store
from extremal.experiments.saved_results import from_runs, from_shipped, from_summary, report_files
from extremal.experiments.sweep_file import SWEEP_PREFIX

app = typer.Typer()


def _names(incomplete: str) -> list[str]:
    return [name for name in (*ex.names(), *ex.installed()) if name.startswith(incomplete)]


def _scales(incomplete: str) -> list[str]:
    return [scale for scale in ex.SCALES if scale.startswith(incomplete)]


NameArgument = Annotated[
    str,
    typer.Argument(
        help="An experiment (`extremal list`), a file of yours with a record, my_record.py, or a "
        "module's, my_package.records:record.",
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


@app.command()
def demo(
    out: OutOption = Path("runs"), jobs: JobsOption = None, as_json: JsonOption = False
) -> None:
    """Show the headline result in about a minute: p = 1 breaks where p = 3 holds.

    Example:  extremal demo
    """
    _run(ex.get("demo"), "quick", out, as_json, jobs=trials_at_a_time(jobs, None, 1))


@app.command(name="list")
def list_experiments(as_json: JsonOption = False) -> None:
    """List the experiments.

    Those of installed packages come last: the entry point group is "extremal.experiments".

    Example:  extremal list --json
    """
    records = [ex.get(name) for name in ex.names()]
    for name in ex.installed():
        try:
            records.append(ex.find_record(name))
        except ValueError as error:
            print_note(f"{name} can't be listed: {error}")
    if as_json:
        rows = [{"name": r.name, "title": r.title, "source": r.source} for r in records]
        print_json(rows)
        return
    print_table("name", "what it shows", rows=[(record.name, record.title) for record in records])


@app.command()
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
    at_a_time = trials_at_a_time(jobs, cluster, threads)
    if dry_run:
        trials = experiment.trials(scale, seeds)  # type: ignore[arg-type]  # it checks the name
        found = ex.estimate(trials, Store(out), _shipped_cost(experiment, scale))
        print_estimate(f"{experiment.name} ({scale})", found, at_a_time, as_json)
        return
    how = {"jobs": at_a_time or 1, "cluster": cluster, "threads": threads, "seeds": seeds}
    _run(experiment, scale, out, as_json, **how)


@app.command()
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
    ended = None if ex.names_a_record(name) else from_summary(name, wanted, out)
    if ended is not None:
        _print_summary(None, *ended, as_json)
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
    _print_summary(experiment, *found, as_json)


@app.command()
def cite(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment (`extremal list`); all papers if left out.", autocompletion=_names
        ),
    ] = None,
) -> None:
    """Print BibTeX of what an experiment rests on.

    Example:  extremal cite min-vidal-2024/figure-2
    """
    print(ex.citation(name), end="")


def _run(experiment: Experiment, scale: str, out: Path, as_json: bool, **how: Any) -> None:
    with shown_progress(experiment.name) as shown:
        told = {"progress": shown.update, "notice": shown.notice}
        summary = ex.reproduce(experiment, scale, out, **told, **how)  # type: ignore[arg-type]
    _print_summary(experiment, summary, report_files(out / experiment.name / scale), as_json)
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


def _print_summary(
    experiment: Experiment | None, summary: dict[str, Any], files: list[Path], as_json: bool
) -> None:
    names = [str(path) for path in files]
    if as_json:
        keys = ("experiment", "scale", "trials", "rows")
        print_json({**{key: summary[key] for key in keys}, "files": names})
        return
    if summary["rows"]:
        console().print(report.rows_table(summary))
    elif experiment is not None and experiment.claims:
        print_lines(f"No value to compare with at {summary['scale']} scale.")
    print_failures(experiment, summary)
    print_paths(*names)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file; docs/own-sweep.md shows one.")],
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    threads: ThreadsOption = 1,
    dry_run: DryOption = False,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Run a grid of your own over an experiment or a Python function of yours.

    It gives a table (CSV, and Parquet with pyarrow), quick plots and a page, and can be
    interrupted and run again, as `extremal run`. Functions are imported from the file's folder.

    Example:  extremal sweep spread.toml --dry-run
    """
    at_a_time = trials_at_a_time(jobs, cluster, threads)
    sys.path.insert(0, str(file.absolute().parent))
    record = ex.read_sweep(file)
    if dry_run:
        found = ex.estimate(record.trials("paper"), Store(out))
        print_estimate(record.name, found, at_a_time, as_json)
        return
    how = {"jobs": at_a_time or 1, "cluster": cluster, "threads": threads}
    with shown_progress(record.name) as bar:
        told = {"progress": bar.update, "notice": bar.notice}
        summary, rows = ex.run_sweep(record, out, **told, **how)
    files = report_files(out / record.name)
    if not any(path.suffix == ".parquet" for path in files):
        print_note("no Parquet file without pyarrow: python -m pip install 'extremal[parquet]'")
    if as_json:
        shown = {"experiment": record.name, "trials": summary["trials"], "rows": rows}
        print_json({**shown, "files": [str(path) for path in files]})
    else:
        print_failures(record, summary)
        if not summary["panels"]:
            print_lines("No plots: no axis has numbers, or no trial is done.")
        print_paths(*map(str, files))
    if summary["trials"]["failed"]:
        raise typer.Exit(1)
