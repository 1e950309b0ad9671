"""Work for browsers: a bounded number of threads, of waiting requests, of seconds, of kept answers.

Equal questions that come at the same time are computed once. Somebody who asks again before an
earlier question of the same kind was begun gives that one up, so that moving a slider never fills
the queue. One that runs goes on and is kept: others may ask the same, and if every move stopped
what runs, people who keep moving would never see an answer. Which of two questions is the later one
is what the browser says: one move asks several times, and an older move may be slower.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

# Threads that compute answers: one for each core, within reason.
WORKER_THREADS = min(max(os.cpu_count() or 2, 2), 8)
# Questions that may wait for a thread.
MOST_WAITING = 128
# Seconds of computing that an answer may take.
ANSWER_SECONDS = 20.0
# Times as many seconds may pass by the clock, where the machine has other things to do.
CLOCK_OVER_COMPUTING = 6.0
# Answers that are kept.
KEPT_ANSWERS = 128
# Bytes of all answers that are kept.
KEPT_BYTES = 96_000_000
# People and places on their pages whose last question is remembered.
REMEMBERED_ASKERS = 1000
# Bytes of a tensor or of a network without its numbers, about.
OBJECT_BYTES = 1000


class Busy(ValueError):  # noqa: N818 - it is a state of the server, told to the user
    """More questions are waiting than may."""


class TooLong(ValueError):  # noqa: N818
    """An answer takes longer than it may."""


class Superseded(Exception):  # noqa: N818
    """Nobody waits for this answer any more."""


class Deadline:
    """When work must end. It looks at it from time to time by `check`, in the thread it began in.

    What counts is the thread's own computing, so that a busy machine fails nobody, within bounds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cost, self._clock = (
            time.thread_time() + seconds,
            time.monotonic() + CLOCK_OVER_COMPUTING * seconds,
        )
        self.given_up = threading.Event()

    def check(self, *_: object) -> None:
        """Raise `TooLong` or `Superseded` where it is time; any progress may be passed in."""
        if self.given_up.is_set():
            raise Superseded
        if time.thread_time() > self._cost or time.monotonic() > self._clock:
            raise TooLong(
                f"this takes longer than the {self._seconds:g} s of computing that an answer may; "
                "fewer neurons or subclasses, or a larger start, are faster"
            )


Work = Callable[[Deadline], Any]


def size_in_bytes(value: object) -> int:
    """About the bytes of a value: of tensors, of plain values, and of whatever is made of them."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size() + OBJECT_BYTES
    if isinstance(value, nn.Module):
        return sum(map(size_in_bytes, value.state_dict().values())) + OBJECT_BYTES
    own = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return own + sum(size_in_bytes(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return own + sum(map(size_in_bytes, value))
    made = hasattr(value, "__dict__") and not isinstance(value, type)
    return own + size_in_bytes(vars(value)) if made else own


@dataclass(frozen=True, eq=False)
class _Kept:
    """An answer, its bytes, and when it was made."""

    value: Any
    size: int
    made: float


@dataclass(eq=False)
class _Job:
    """A question under way and who waits for it."""

    future: Future[Any] | None = None
    askers: set[Hashable] = field(default_factory=set)
    deadline: Deadline | None = None


def place_of(asker: object, place: str) -> tuple[str, str] | None:
    """Who asks, for which place on the page; nobody where the browser does not say."""
    return (asker[:64], place) if isinstance(asker, str) else None


class AnswerPool:
    """Threads that answer questions, and the answers that were asked for last.

    An answer's `size` is its bytes; one that is larger than all that may be kept is not kept.
    """

    def __init__(
        self,
        *,
        workers: int = WORKER_THREADS,
        waiting: int = MOST_WAITING,
        seconds: float = ANSWER_SECONDS,
        answers: int = KEPT_ANSWERS,
        most: int = KEPT_BYTES,
    ) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="explore")
        self._waiting, self._seconds = waiting, seconds
        self._answers, self._most = answers, most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._bytes = 0
        self._jobs: dict[Hashable, _Job] = {}
        self._last: OrderedDict[Hashable, tuple[int, Hashable]] = OrderedDict()

    def ask(
        self,
        key: Hashable,
        work: Work,
        *,
        asker: Hashable = None,
        turn: int = 0,
        age: float = math.inf,
        size: Callable[[Any], int] = size_in_bytes,
    ) -> Any:
        """The answer to `key`, from those that are kept or by `work`; waits for it.

        `asker` is who asks, and for what place on the page: its earlier question is given up, which
        is one with a lower `turn`, or with the same that was asked before. `Superseded` where it
        has asked with a higher one. An answer older than `age` seconds is replaced.
        """
        with self._lock:
            self._release(asker, key, turn)
            kept = self._kept.get(key)
            if kept is not None and time.monotonic() - kept.made <= age:
                self._kept.move_to_end(key)
                return kept.value
            job = self._jobs.get(key) or self._begin(key, work, size)
            job.askers.add(asker)
            future = job.future
        assert future is not None
        try:
            return future.result()
        except CancelledError:
            raise Superseded from None

    def counts(self) -> dict[str, int]:
        """How many answers are kept, in how many bytes, and how many questions are under way."""
        with self._lock:
            return {"kept": len(self._kept), "bytes": self._bytes, "jobs": len(self._jobs)}

    def close(self) -> None:
        """Give up whatever waits, and end the threads once they are done."""
        with self._lock:
            for job in self._jobs.values():
                if job.deadline is not None:
                    job.deadline.given_up.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _begin(self, key: Hashable, work: Work, size: Callable[[Any], int]) -> _Job:
        if len(self._jobs) >= self._waiting:
            raise Busy("the server is busy with other people's questions; try again in a moment")
        job = self._jobs[key] = _Job()

        def answer() -> Any:
            job.deadline = Deadline(self._seconds)
            try:
                value = work(job.deadline)
                made = _Kept(value, size(value), time.monotonic())
                with self._lock:
                    self._keep(key, made)
                return value
            finally:
                with self._lock:
                    if self._jobs.get(key) is job:
                        del self._jobs[key]

        job.future = self._threads.submit(answer)
        return job

    def _keep(self, key: Hashable, made: _Kept) -> None:
        before = self._kept.pop(key, None)
        self._bytes -= before.size if before else 0
        if made.size > self._most:
            return
        self._kept[key] = made
        self._bytes += made.size
        while len(self._kept) > self._answers or self._bytes > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size

    def _release(self, asker: Hashable, key: Hashable, turn: int) -> None:
        """Note what somebody asks for, and give up what it asked for before."""
        if asker is None:
            return
        latest, before = self._last.get(asker, (turn, None))
        if turn < latest:
            raise Superseded
        self._last[asker] = (turn, key)
        self._last.move_to_end(asker)
        while len(self._last) > REMEMBERED_ASKERS:
            self._last.popitem(last=False)
        job = self._jobs.get(before)
        if before == key or job is None:
            return
        job.askers.discard(asker)
        if not job.askers:
            assert job.future is not None
            if job.future.cancel():
                del self._jobs[before]
