"""A worker process that computes trials and stores them itself, and the client's handle of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from extremal.data import DataError
from extremal.experiments.files import StoreError
from extremal.experiments.sealed import Packed, pack, pack_failure
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial

_READY = "ready"
_LINES = 6
# What ends a run: no later trial would fare better, and the trial itself is not to blame.
_ENDING = (StoreError, DataError)
_SPAWN = multiprocessing.get_context("spawn")


def perform(trial: Trial, store: Store) -> bool:
    """Compute a trial and store what came of it; False where it failed.

    One that somebody else has finished meanwhile is not computed. Two errors pass and leave nothing
    of the trial: a `StoreError`, as results can't be written, and a `DataError`, as a later run may
    find the data.
    """
    if store.has(trial):
        return True
    packed = compute(trial)
    store.put(trial.key, packed)
    return packed.done


def compute(trial: Trial) -> Packed:
    """Compute a trial and return what came of it, a failure too; only what ends a run is raised."""
    start = time.perf_counter()
    try:
        outcome = trial.compute()
        return pack(trial, outcome, time.perf_counter() - start)
    except _ENDING:
        raise
    except (Exception, SystemExit) as error:
        return pack_failure(trial, _reason(error), time.perf_counter() - start)


def _reason(error: BaseException) -> str:
    lines = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    return "\n".join([f"{type(error).__name__}: {error}", *lines[-_LINES:]])


def serve(connection: Connection, root: Path | None, client: int) -> None:
    """Compute trials as they come, until the client hangs up or dies.

    Results are stored under `root`, or sent to the client where that is None.
    """
    threading.Thread(target=_watch, args=(client,), daemon=True).start()
    torch.set_num_threads(1)
    # A client that hangs up while this side is sending wants nothing more.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection, None if root is None else Store(root))


def _serve(connection: Connection, store: Store | None) -> None:
    connection.send(_READY)
    while True:
        trial = connection.recv()
        try:
            connection.send(compute(trial) if store is None else perform(trial, store))
        except _ENDING as error:
            connection.send(error)


def _watch(client: int) -> None:
    """End this process when the client is gone, whatever it is computing at that moment."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # The sentinel tells at once; the pid also where the client's pipe lives on in another process.
    while os.getppid() == client:
        if wait([parent.sentinel], timeout=1.0):
            break
    os._exit(1)


class Worker:
    """The client's handle of one worker process: the trial that it has, and its answers."""

    def __init__(self, root: Path | None) -> None:
        self.trial: Trial | None = None
        self.ready = False
        self.connection, theirs = _SPAWN.Pipe()
        arguments = (theirs, root, os.getpid())
        self.process = _SPAWN.Process(target=serve, args=arguments, daemon=True)
        try:
            with theirs, _interrupts_later():
                self.process.start()
        except BaseException:
            self.connection.close()
            raise

    def give(self, trial: Trial) -> None:
        """Hand over a trial to compute."""
        self.trial = trial
        with suppress(OSError):  # A dead one is found out by `answer`.
            self.connection.send(trial)

    def answer(self) -> bool | Packed | None:
        """Wait for a word: True done, False failed, None ready for the first trial.

        A worker that does not store its results sends them in place of True or False.

        Raises EOFError where the worker died, and the StoreError or DataError that it met.
        """
        try:
            word = self.connection.recv()
        except (EOFError, OSError) as error:
            raise EOFError from error
        if isinstance(word, _ENDING):
            raise word
        self.ready, self.trial = True, None
        found: bool | Packed = word
        return None if word == _READY else found

    def hang_up(self) -> None:
        """Let an idle worker end by itself."""
        self.connection.close()

    def stop(self, *, at_once: bool) -> str:
        """See the worker to its end, with force unless it goes by itself; say how it ended."""
        self.connection.close()
        if not at_once:
            self.process.join(timeout=5.0)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        self.process.close()
        names = {-number.value: number.name for number in signal.Signals}
        return names.get(code, f"exit code {code}")


def first_words(workers: list[Worker], timeout: float | None = None) -> list[Worker]:
    """Wait until some workers have answered or died, and return those; none after `timeout`."""
    by_connection = {worker.connection: worker for worker in workers}
    found = wait(list(by_connection), timeout)
    return [by_connection[one] for one in found]  # type: ignore[index]


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Start processes inside that never see Ctrl-C; this one sees it afterwards.

    A new process inherits the blocked signal. Here that isn't enough, since another thread may take
    the signal, and a worker whose start is cut short complains.
    """
    with _handler_of_interrupts_later():
        if not hasattr(signal, "pthread_sigmask"):
            yield
            return
        # Python's own helper process, which is started first, since its start ends the blocking.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handler_of_interrupts_later() -> Iterator[None]:
    # Python runs handlers in the main thread only, and lets no other set them.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if seen:
            signal.raise_signal(signal.SIGINT)
