"""Progress of long work: how much of it is done, told to a function or drawn as one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from extremal import _check

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much

_EVERY = 0.5  # seconds between two words
_WIDTH = 24  # characters of the bar


class Bar:
    """Work of `total` parts, shown as it is done; use it as a context.

    `progress` is False for silence, True for a line on the standard error with a bar and the time
    left, or a function of (what, done, total).
    """

    def __init__(self, what: str, total: int, progress: bool | Progress) -> None:
        rule = "be True, False or a function of what, done and total"
        _check.require(isinstance(progress, bool) or callable(progress), "progress", rule, progress)
        self._what, self._total, self._done = what, total, 0
        self._tell = progress if callable(progress) else None
        self._draws = progress is True
        self._begun = self._shown = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._draws:
            self._draw()
            sys.stderr.write("\n")

    def done(self, count: int, what: str | None = None) -> None:
        """Say that `count` parts in all are done, and perhaps what is being done now."""
        self._done, self._what = count, what or self._what
        if self._tell is not None:
            self._tell(self._what, count, self._total)
        elif self._draws and time.monotonic() - self._shown > _EVERY:
            self._draw()

    def _draw(self) -> None:
        self._shown = time.monotonic()
        share = self._done / self._total if self._total else 1.0
        filled = round(_WIDTH * share)
        left = (self._shown - self._begun) * (1.0 - share) / share if share > 0 else 0.0
        bar = "=" * filled + " " * (_WIDTH - filled)
        sys.stderr.write(
            f"\r{self._what:<20.20} [{bar}] {self._done}/{self._total}, {left:.0f} s left  "
        )
        sys.stderr.flush()
