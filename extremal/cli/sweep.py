"""`extremal sweep FILE`: a user's own grid, with a table and quick plots."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from extremal import experiments as ex
from extremal.cli.asked import say
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
    note,
    tell_estimate,
    tell_failures,
)
from extremal.experiments import Store
from extremal.experiments.saved_results import report_files


def add_to(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(sweep)


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
    check_asked(jobs, cluster, threads)
    sys.path.insert(0, str(file.absolute().parent))
    record = ex.read_sweep(file)
    if dry_run:
        found = ex.estimate(record.trials("paper"), Store(out))
        tell_estimate(record.name, found, jobs, cluster, as_json)
        return
    how = {"jobs": jobs or cores(), "cluster": cluster, "threads": threads}
    with shown_progress(record.name) as bar:
        told = {"progress": bar.update, "notice": bar.notice}
        summary, rows = ex.run_sweep(record, out, **told, **how)
    files = report_files(out / record.name)
    if not any(path.suffix == ".parquet" for path in files):
        note("no Parquet file without pyarrow: python -m pip install 'extremal[parquet]'")
    if as_json:
        shown = {"experiment": record.name, "trials": summary["trials"], "rows": rows}
        print(json.dumps({**shown, "files": [str(path) for path in files]}, indent=2))
    else:
        tell_failures(record, summary)
        if not summary["panels"]:
            say("No plots: no axis has numbers, or no trial is done.")
        for path in files:
            print(path)
    if summary["trials"]["failed"]:
        raise typer.Exit(1)
