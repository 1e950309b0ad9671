"""What the commands print: lines, tables, JSON, and the progress of a run with the time left."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from extremal.experiments import Estimate, Experiment
from extremal.experiments import Progress as Callback

# Seconds that pass between two lines on progress where nobody looks at a terminal.
SECONDS_BETWEEN_LINES = 10.0
# Reasons of failed trials that are printed; the report has all of them.
PRINTED_FAILURES = 5
# Columns of a line where nobody looks at a terminal, as wide as most of them are.
COLUMNS_OFF_TERMINAL = 80
SECONDS_OF_AN_HOUR = 3600.0


def console() -> Console:
    """The standard output: as wide as the terminal, or of 80 columns where there is none."""
    return Console(width=None if Console().is_terminal else COLUMNS_OFF_TERMINAL)


def print_lines(*lines: str) -> None:
    """Print lines as they are, broken where they are wider than the console."""
    wide = console()
    for line in lines:
        wide.print(line, markup=False, highlight=False)


def print_paths(*paths: str) -> None:
    """Print paths of files, one a line, which is never broken."""
    wide = console()
    for path in paths:
        wide.print(path, markup=False, highlight=False, soft_wrap=True)


def print_table(*names: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table of text, with the names of its columns above."""
    table = Table(*names, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_json(content: Any) -> None:
    """Print what `--json` promises."""
    print(json.dumps(content, indent=2))


def print_note(line: str) -> None:
    """Tell people something that is no result, on the standard error."""
    print(line, file=sys.stderr, flush=True)


def print_estimate(name: str, found: Estimate, at_a_time: int | None, as_json: bool) -> None:
    """Print what a run would do, instead of doing it.

    `at_a_time` trials run together, unless it is None: a cluster's workers are counted there.
    """
    hours = None if found.seconds is None else found.seconds / SECONDS_OF_AN_HOUR
    if as_json:
        counts = {"total": found.trials, "done": found.done, "failed": found.failed}
        told = {"experiment": name, "trials": counts, "core_hours": hours, "basis": found.basis}
        print_json(told)
        return
    left = found.trials - found.done
    again = f", of which {found.failed} failed before and are tried again" if found.failed else ""
    print_lines(f"{name}: {found.trials} trials, {found.done} done, {left} to do{again}.")
    if hours is None or left == 0:
        print_lines("Nothing is known of what they cost." if left else "Nothing is left to do.")
        return
    print_lines(f"About {hours:.3g} core-hours, from {found.basis}.")
    if at_a_time is not None:
        print_lines(f"With {at_a_time} at a time about {hours / min(at_a_time, left):.3g} hours.")


def print_failures(experiment: Experiment | None, summary: dict[str, Any]) -> None:
    """Print how many trials are done, and why the first of the others failed.

    Without the experiment all of a trial's parameters are named, not only those that vary.
    """
    counts, failures = summary["trials"], summary["failures"]
    print_lines(f"{counts['done']} of {counts['total']} trials done, {counts['failed']} failed.")
    for failure in failures[:PRINTED_FAILURES]:
        params = failure["params"]
        varied = params if experiment is None else experiment.varied(params)
        trial = ", ".join(f"{name} = {value}" for name, value in varied.items())
        reason = failure["reason"].splitlines()[0]
        print_lines(f"failed: {trial}, seed {failure['seed']}: {reason}")
    if len(failures) > PRINTED_FAILURES:
        print_lines(f"... and {len(failures) - PRINTED_FAILURES} more; see report.html")


@dataclass(frozen=True)
class ShownProgress:
    """The callbacks for `experiments.run`: done, failed, the time left; and lines."""

    update: Callback
    notice: Callable[[str], None]


@contextmanager
def shown_progress(name: str) -> Iterator[ShownProgress]:
    """Show the progress of a run while it runs: a bar, or lines where there is no terminal."""
    errors = Console(stderr=True)

    def notice(line: str) -> None:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)

    if not errors.is_terminal:
        yield ShownProgress(_plain_lines(name), notice)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(name, total=None, note="")

        def update(done: int, failed: int, total: int) -> None:
            note = f"{failed} failed" if failed else ""
            bar.update(task, completed=done + failed, total=total, note=note)

        yield ShownProgress(update, notice)


def _plain_lines(name: str) -> Callback:
    started = last = time.monotonic()
    first: int | None = None

    def update(done: int, failed: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first is None else first
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        fresh, left = done + failed - first, total - done - failed
        guess = f", about {(now - started) / fresh * left:.0f} s left" if fresh else ""
        print_note(f"{name}: {done} of {total} done, {failed} failed{guess}")

    return update
