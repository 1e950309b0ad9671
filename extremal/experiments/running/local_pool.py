"""Trials in processes on this machine, which end with this one.

Each process is a `ProcessPoolExecutor` of its own, since the death of one process breaks all of an
executor: so a trial that dies takes no other along.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from extremal.experiments.running.compute_trial import Ended, WorkerDiedError, compute_trial
from extremal.experiments.trial import Trial

_SPAWN = multiprocessing.get_context("spawn")  # not fork, which torch's threads do not survive
# How often a process looks whether its client lives, where the closed pipe does not tell at once.
_CLIENT_CHECK_SECONDS = 1.0
_Process = tuple[ProcessPoolExecutor, Future[int]]  # one process, and whether it has started


def run_in_processes(trials: Iterable[Trial], jobs: int, threads: int) -> Ended:
    """Up to `jobs` trials at a time; one whose process died runs again at the end, alone."""
    suspects = []
    with _processes() as start:
        for trial, found in _in_parallel(trials, jobs, threads, start):
            if isinstance(found, WorkerDiedError):
                suspects.append(trial)
            else:
                yield trial, found
        for trial in suspects:
            yield from _in_parallel([trial], 1, threads, start)


def _in_parallel(
    trials: Iterable[Trial], jobs: int, threads: int, start: Callable[[], _Process]
) -> Ended:
    waiting, idle = iter(trials), list[_Process]()
    running: dict[Future[Any], tuple[Trial, _Process]] = {}
    while True:
        while len(running) < jobs and (trial := next(waiting, None)) is not None:
            process = idle.pop() if idle else start()
            running[_submit(process[0], trial, threads)] = trial, process
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            trial, process = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                if process[1].exception() is not None:
                    raise RuntimeError(
                        "processes for trials do not start; a script that runs several jobs needs "
                        '`if __name__ == "__main__":` around what it does'
                    )
                yield trial, WorkerDiedError("its process died (a crash, or out of memory)")
            else:
                idle.append(process)
                yield trial, error or future.result()


def _submit(process: ProcessPoolExecutor, trial: Trial, threads: int) -> Future[Any]:
    try:
        return process.submit(compute_trial, trial, threads)
    except BrokenProcessPool as error:  # It died as it started, or while it had nothing to do.
        broken: Future[Any] = Future()
        broken.set_exception(error)
        return broken


@contextmanager
def _processes() -> Iterator[Callable[[], _Process]]:
    """A function that starts a process; all of them have ended afterwards."""
    started: list[ProcessPoolExecutor] = []
    theirs, ours = _SPAWN.Pipe(duplex=False)

    def start() -> _Process:
        started.append(ProcessPoolExecutor(1, _SPAWN, _follow_client, (theirs, os.getpid())))
        with _interrupts_later():
            return started[-1], started[-1].submit(os.getpid)

    try:
        yield start
    except BaseException:
        ours.close()  # Ctrl-C, an error, a consumer that stops: whatever still computes ends now.
        raise
    finally:
        for process in started:
            process.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()


def _follow_client(lifeline: Connection, client: int) -> None:
    """In each process: end when the client closes the pipe, or dies."""

    def watch() -> None:
        # A process that the client has forked may hold the pipe open: hence the second look.
        with suppress(EOFError, OSError):
            while os.getppid() == client and not lifeline.poll(_CLIENT_CHECK_SECONDS):
                pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Start processes inside that never see Ctrl-C; this one sees it afterwards.

    A new process inherits the blocked signal. Here that isn't enough, since another thread may take
    the signal, and a process whose start is cut short complains. Python lets only the main thread
    set handlers, and runs them there.
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
