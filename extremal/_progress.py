"""Progress of long work: how much of it is done, told to a function or drawn as one line."""

from __future__ import annotations

from collections.abc import Callable

from extremal import _check

# What is being done, how much of it is done, of how much.
Progress = Callable[[str, int, int], None]


class Bar:
    """Work of `total` parts, shown as it is done; use it as a context.

    `progress` is False for silence, True for a line on the standard error with a bar and the time
    left, or a function of (what, done, total).
    """

    def __init__(self, what: str, total: int, progress: bool | Progress) -> None:
        rule = "be True, False or a function of what, done and total"
        _check.require(isinstance(progress, bool) or callable(progress), "progress", rule, progress)
        self._what, self._total = what, total
        self._tell = progress if callable(progress) else None
        self._drawing = _Drawing(what, total) if progress is True else None

    def __enter__(self) -> Bar:
        if self._drawing is not None:
            self._drawing.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._drawing is not None:
            self._drawing.bar.stop()

    def done(self, count: int, what: str | None = None) -> None:
        """Say that `count` parts in all are done, and perhaps what is being done now."""
        self._what = what or self._what
        if self._tell is not None:
            self._tell(self._what, count, self._total)
        elif self._drawing is not None:
            bar, task = self._drawing.bar, self._drawing.task
            bar.update(task, completed=count, description=self._what)


class _Drawing:
    """A bar of rich's on the standard error, which is loaded only where one is drawn."""

    def __init__(self, what: str, total: int) -> None:
        from rich import progress  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task(what, total=total)
