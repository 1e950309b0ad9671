"""Commands about the store: say what it has, verify it, pack it, and bring several together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from extremal import experiments as ex
from extremal.cli.options import JsonOption, OutOption
from extremal.cli.output import SECONDS_OF_AN_HOUR, print_json, print_lines, print_table
from extremal.experiments import Experiment, Store
from extremal.experiments.saved_results import started_seeds, was_started
from extremal.experiments.storage import maintenance, transfer

app = typer.Typer()
store = typer.Typer(help="The folder of finished trials: list, check, compact, export, import.")
app.add_typer(store, name="store", no_args_is_help=True)


@store.command(name="list")
def list_trials(out: OutOption = Path("runs"), as_json: JsonOption = False) -> None:
    """List what the store has: trials and core-hours of each study.

    Example:  extremal store list
    """
    rows = maintenance.overview(Store(out))
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            row["study"],
            str(row["done"]),
            str(row["failed"]),
            f"{row['seconds'] / SECONDS_OF_AN_HOUR:.3f}",
        )
        for row in rows
    ]
    print_table("study", "done", "failed", "core-hours", rows=cells)


@store.command()
def check(out: OutOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Read every byte again. What is damaged is named and set aside: the next run computes it.

    It ends with exit code 1 if something is damaged.

    Example:  extremal store check
    """
    found = maintenance.check(Store(out))
    if not _printed_as_json(found, as_json):
        print_lines(f"{found.done} trials done and whole, {found.failed} failed.")
        for path in found.damaged:
            print_lines(f"damaged, set aside: {path}")
        for path in found.leftovers:
            print_lines(f"belongs to no trial: {path}")
    if found.damaged:
        raise typer.Exit(1)


@store.command()
def compact(out: OutOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Put finished trials into at most 256 files instead of one each. Arrays stay as they are.

    Example:  extremal store compact
    """
    count = maintenance.compact(Store(out))
    if as_json:
        print_json({"packed": count})
    else:
        print_lines(f"{count} files of trials were packed.")


@store.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to write, .tar or .tar.gz.")],
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="Only trials of this experiment; may be given several times."),
    ] = None,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Write trials as one file, for another machine's `extremal store import`.

    Example:  extremal store export mine.tar --experiment min-vidal-2024/figure-2
    """
    keys = None
    if experiment:
        keys = [key for name in experiment for key in _keys(ex.find_record(name), out)]
    count = transfer.export(Store(out), file, keys)
    if as_json:
        print_json({"trials": count, "file": str(file)})
    else:
        print_lines(f"{count} trials in {file}.")


def _keys(experiment: Experiment, out: Path) -> list[str]:
    """The keys of its trials at every scale, with the seeds that it was run with."""
    found = []
    for scale in ex.SCALES:
        numbers: set[int | None] = {None}
        if was_started(experiment, scale, out):
            numbers.add(started_seeds(experiment, scale, out))
        found += [trial.key for seeds in numbers for trial in experiment.trials(scale, seeds)]
    return found


@store.command(name="import")
def import_trials(
    source: Annotated[Path, typer.Argument(help="A file of `export`, or another runs folder.")],
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Bring trials from another machine into the store, each verified; what is done here stays.

    It ends with exit code 1 if something there is damaged, or both have a trial with other numbers.

    Example:  extremal store import mine.tar
    """
    found = transfer.import_trials(Store(out), source)
    if not _printed_as_json(found, as_json):
        print_lines(f"{found.added} trials added, {found.known} were here.")
        for name in found.damaged:
            print_lines(f"damaged there, not taken: {name}")
        for key in found.differing:
            print_lines(f"other numbers there, ours kept: {key}")
    if found.damaged or found.differing:
        raise typer.Exit(1)


def _printed_as_json(found: Any, as_json: bool) -> bool:
    if as_json:
        print_json(dataclasses.asdict(found))
    return as_json
