"""Progress of long work: how much of it is done, told to a function or drawn as one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from extremal import _check

# What is being done, how much of it is done, of how much.
Progress = Callable[[str, int, int], None]

# In a file or a notebook a line is written at most this often; a terminal has a bar that moves.
_SECONDS_BETWEEN_LINES = 5.0
# Whether somebody else tells how far things are, so that work within shows nothing unasked.
_told_by_others: ContextVar[bool] = ContextVar("_told_by_others", default=False)


@contextmanager
def progress_told_by_others() -> Iterator[None]:
    """Let work inside show no progress that nobody asked for: whoever runs it shows its own."""
    before = _told_by_others.set(True)
    try:
        yield
    finally:
        _told_by_others.reset(before)


def is_shown_unasked() -> bool:
    """Whether long work shows its progress unasked: in a terminal, where nobody else does."""
    return sys.stderr is not None and sys.stderr.isatty() and not _told_by_others.get()


class Bar:
    """Work of `total` parts, shown as it is done; use it as a context.

    `progress` is False for silence, True for a line on the standard error with a bar and the time
    left, or a function of (what, done, total).
    """

    def __init__(self, what: str, total: int, progress: bool | Progress) -> None:
        rule = "be True, False or a function of what, done and total"
        _check.require(isinstance(progress, bool) or callable(progress), "progress", rule, progress)
        self._what, self._total = what, total
        self._drawn = _DrawnBar(what, total) if progress is True else None
        self._tell = progress if callable(progress) else self._drawn

    def __enter__(self) -> Bar:
        if self._drawn is not None:
            self._drawn.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._drawn is not None:
            self._drawn.bar.stop()

    def done(self, count: int, what: str | None = None) -> None:
        """Say that `count` parts in all are done, and perhaps what is being done now."""
        self._what = what or self._what
        if self._tell is not None:
            self._tell(self._what, count, self._total)


class _DrawnBar:
    """A bar of rich's on the standard error, and plain lines where that is a file.

    rich is loaded only where a bar is drawn.
    """

    def __init__(self, what: str, total: int) -> None:
        from rich import progress  # noqa: PLC0415

        self.lines = _PlainLines()
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=self.lines.console,
        )
        self.task = self.bar.add_task(what, total=total)
        self.begun = time.monotonic()

    def __call__(self, what: str, count: int, total: int) -> None:
        self.bar.update(self.task, completed=count, description=what)
        spent = time.monotonic() - self.begun
        left = f", about {spent / count * (total - count):.0f} s left" if count else ""
        self.lines.write(f"{what}: {count} of {total}{left}")


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A function that shows a sentence on the standard error, in place of the one before it.

    Where that is a file or a notebook, sentences are written now and then, and the last one.
    """
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = _PlainLines()
    live = Live(console=lines.console)

    def show(sentence: str) -> None:
        live.update(Text(sentence))
        live.start()
        lines.write(sentence)

    try:
        yield show
    finally:
        live.stop()


class _PlainLines:
    """The standard error; where it is no terminal, lines are written to it now and then."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415

        self.console = Console(stderr=True, force_jupyter=False)
        self.written = time.monotonic()

    def write(self, line: str) -> None:
        """Write a line, unless a bar is drawn or the last line is too young."""
        now = time.monotonic()
        if not self.console.is_terminal and now - self.written >= _SECONDS_BETWEEN_LINES:
            self.written = now
            self.console.print(line, markup=False, soft_wrap=True)
