"""Progress of long work: how much of it is done, told to a function or drawn as one line."""

from __future__ import annotations

import time
from collections.abc import Callable

from extremal import _check

# What is being done, how much of it is done, of how much.
Progress = Callable[[str, int, int], None]

# In a file or a notebook a line is written at most this often; a terminal has a bar that moves.
_SECONDS_BETWEEN_LINES = 5.0


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
    """A bar of rich's on the standard error, and now and then a plain line where that is a file.

    rich is loaded only where a bar is drawn.
    """

    def __init__(self, what: str, total: int) -> None:
        from rich import progress  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        self.console = Console(stderr=True, force_jupyter=False)
        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task(what, total=total)
        self.begun = self.written = time.monotonic()

    def __call__(self, what: str, count: int, total: int) -> None:
        self.bar.update(self.task, completed=count, description=what)
        now = time.monotonic()
        if self.console.is_terminal or now - self.written < _SECONDS_BETWEEN_LINES:
            return
        self.written = now
        left = f", about {(now - self.begun) / count * (total - count):.0f} s left" if count else ""
        self.console.print(f"{what}: {count} of {total}{left}", markup=False, soft_wrap=True)
