"""A progress bar with the time left, or plain lines where nobody looks at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from extremal.experiments import Progress as Callback

_EVERY = 10.0  # seconds between plain lines


@dataclass(frozen=True)
class Shown:
    """The callbacks for `experiments.run`: done, failed, the time left; and lines."""

    update: Callback
    notice: Callable[[str], None]


@contextmanager
def shown_progress(name: str) -> Iterator[Shown]:
    """Show the progress of a run while it runs."""
    console = Console(stderr=True)

    def notice(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    if not console.is_terminal:
        yield Shown(_plain_lines(name), notice)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=None, note="")

        def update(done: int, failed: int, total: int) -> None:
            note = f"{failed} failed" if failed else ""
            bar.update(task, completed=done + failed, total=total, note=note)

        yield Shown(update, notice)


def _plain_lines(name: str) -> Callback:
    started = last = time.monotonic()
    first: int | None = None

    def update(done: int, failed: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first is None else first
        if now - last < _EVERY:
            return
        last = now
        fresh, left = done + failed - first, total - done - failed
        guess = f", about {(now - started) / fresh * left:.0f} s left" if fresh else ""
        line = f"{name}: {done} of {total} done, {failed} failed{guess}"
        print(line, file=sys.stderr, flush=True)

    return update
