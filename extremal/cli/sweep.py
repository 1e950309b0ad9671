"""`extremal sweep FILE`: a user's own grid, with a table and quick plots."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from extremal import experiments as ex
from extremal import report
from extremal.cli.asked import say
from extremal.cli.runs import (
    ClusterOption,
    DryOption,
    JobsOption,
    JsonOption,
    OutOption,
    RetriesOption,
    carry_out,
    check_asked,
    note,
    tell_estimate,
    tell_failures,
)
from extremal.experiments import Experiment, Store


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(sweep)


def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file; docs/clusters.md shows one.")],
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    retries: RetriesOption = 1,
    dry_run: DryOption = False,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Run a grid of your own over an experiment or a Python function of yours.

    It gives a table (CSV, and Parquet with pyarrow), quick plots and a page, and can be
    interrupted and run again, as `extremal run`. Functions are imported from the file's folder.

    Example:  extremal sweep spread.toml --dry-run
    """
    check_asked(jobs, cluster, retries)
    sys.path.insert(0, str(file.absolute().parent))
    record = ex.read_sweep(file)
    trials, store = record.trials("paper"), Store(out)
    if dry_run:
        tell_estimate(record.name, ex.estimate(trials, store), jobs, cluster, as_json)
        return
    done = carry_out(record.name, trials, store, jobs, cluster, retries)
    _tell(record, store, out / record.name, as_json)
    if done.failed:
        raise typer.Exit(1)


def _tell(record: Experiment, store: Store, folder: Path, as_json: bool) -> None:
    """Write the table, the summary, the figure and the page, and say where they are."""
    rows = ex.sweep_rows(record, store)
    files = report.save_rows(rows, folder)
    if len(files) == 1:
        note("no Parquet file without pyarrow: python -m pip install 'extremal[parquet]'")
    drawn = ex.with_plots(record, store)
    summary = ex.summarise(drawn, "paper", store)
    ex.write_summary(folder / "summary.json", summary)
    files.append(folder / "summary.json")
    if drawn.panels:
        files += report.write_report(summary, folder)
    if as_json:
        told = {"experiment": record.name, "trials": summary["trials"], "rows": rows}
        print(json.dumps({**told, "files": [str(path) for path in files]}, indent=2))
        return
    tell_failures(record, summary)
    if not drawn.panels:
        say("No plots: no axis has numbers, or no trial is done.")
    for path in files:
        print(path)
