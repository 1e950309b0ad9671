"""Trials in processes on this machine, which end with this one, and what each does with a trial.

Each process is a `ProcessPoolExecutor` of its own, since the death of one process breaks all of an
executor: so a trial that dies takes no other along.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from extremal._progress import progress_told_by_others
from extremal.data import DataError
from extremal.experiments.registry import Source, find_study
from extremal.experiments.storage.trial_file import TrialFile, encode, encode_failure
from extremal.experiments.trial import Trial

Ended = Generator[tuple[Trial, TrialFile | BaseException]]
"""An engine: trials as they end, with what came of each, its process's death, or what ends all."""
_TRACEBACK_LINES = 6  # the last ones of a failure, which are kept
# The number of torch's threads is the process's: a trial that shared it would not be repeatable.
_one_at_a_time = threading.RLock()
_SPAWN = multiprocessing.get_context("spawn")  # not fork, which torch's threads do not survive
_NO_START = (
    "processes for trials die as they start: there is too little memory, or a script lacks "
    '`if __name__ == "__main__":`, which several jobs need'
)
_Process = tuple[ProcessPoolExecutor, Future[int]]  # one process, and whether it has started


class WorkerDiedError(Exception):
    """The process that computed a trial died, and once more when the trial ran alone."""


def compute_trial(trial: Trial, threads: int, source: Source | None = None) -> TrialFile:
    """What came of a trial, a failure too; a `DataError` is raised: a later run may find data."""
    with _one_at_a_time, progress_told_by_others():
        start = time.perf_counter()
        try:
            outcome = trial.compute(find_study(trial.study, source), threads)
            return encode(trial, outcome, time.perf_counter() - start)
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            return encode_failure(trial, _reason(error), time.perf_counter() - start)


def _reason(error: BaseException) -> str:
    lines = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    return "\n".join([f"{type(error).__name__}: {error}", *lines[-_TRACEBACK_LINES:]])


def run_locally(trials: Iterable[Trial], jobs: int, threads: int) -> Ended:
    """Up to `jobs` trials at a time; one whose process died runs again at the end, alone."""
    suspects = []
    with _processes() as start:
        for trial, found in _in_parallel(trials, jobs, threads, start):
            if isinstance(found, WorkerDiedError):
                suspects.append(trial)
            else:
                yield trial, found
    for trial in suspects:
        with _processes() as start:
            yield from _in_parallel([trial], 1, threads, start)


def _in_parallel(
    trials: Iterable[Trial], jobs: int, threads: int, start: Callable[[], _Process]
) -> Ended:
    waiting, idle = iter(trials), list[_Process]()
    running: dict[Future[Any], tuple[Trial, _Process]] = {}
    while True:
        while len(running) < jobs and (trial := next(waiting, None)) is not None:
            process = idle.pop() if idle else start()
            try:
                future = process[0].submit(compute_trial, trial, threads)
            except BrokenProcessPool as died:  # as it started, or while it had nothing to do
                (future := Future[Any]()).set_exception(died)
            running[future] = trial, process
        if not running:
            return
        ended = wait(running, return_when=FIRST_COMPLETED).done
        # What is finished first: an error among them may end the run.
        for future in [future for future in ended if future.exception() is None] or ended:
            trial, process = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                if process[1].exception() is not None:
                    raise ValueError(_NO_START)
                yield trial, WorkerDiedError("its process died (a crash, or out of memory)")
            else:
                idle.append(process)
                yield trial, error or future.result()


@contextmanager
def _processes() -> Iterator[Callable[[], _Process]]:
    """A function that starts a process; all of them have ended afterwards."""
    started: list[ProcessPoolExecutor] = []
    theirs, ours = _SPAWN.Pipe(duplex=False)

    def start() -> _Process:
        started.append(ProcessPoolExecutor(1, _SPAWN, _follow_client, (theirs,)))
        with _interrupts_later():
            return started[-1], started[-1].submit(os.getpid)

    try:
        yield start
    finally:
        ours.close()  # All are done, or nobody waits for them: whatever still computes ends now.
        for process in started:
            process.shutdown(cancel_futures=True)
        theirs.close()


def _follow_client(lifeline: Connection) -> None:
    """In each process: end when the client closes the pipe, or dies."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Start processes inside that never see Ctrl-C; this one sees it afterwards.

    A new process inherits the blocked signal. Here another thread may take it all the same, and a
    process whose start is cut short complains; only the main thread may set handlers.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python's own helper process, which is started first, since its start ends the blocking.
    resource_tracker.ensure_running()
    seen: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        if seen:
            signal.raise_signal(signal.SIGINT)
