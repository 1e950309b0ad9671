"""The cluster's side: a Dask worker hands each trial to a process of its own and waits for it.

A process of its own, so that a trial that dies takes nothing along, a Dask worker of many threads
computes many trials without their sharing Python's lock or torch's settings, and one that nobody
waits for any more is ended at once. The processes are kept for the next trial of the same run, for
a minute; another run has processes of its own, since modules may have changed on the disk since.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from distributed import get_worker

from extremal.experiments.files import StoreError
from extremal.experiments.sealed import Packed
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial
from extremal.experiments.worker import Worker, first_words

_EVERY = 0.25  # seconds between looks at whether somebody still waits
_STARTS = 3
_WANTED = ("executing", "long-running", "resumed")
_IDLE = 60.0  # seconds that a process waits for the next trial
_idle: dict[Worker, tuple[str, float]] = {}  # of which run, and since when
_janitors: list[threading.Thread] = []  # one, where a process waits
_lock = threading.Lock()


def compute_on_cluster(asked: bytes) -> Packed | str:
    """Compute a trial on this Dask worker: what came of it, or how the process died that did.

    `asked` are a trial, the client's store, the name of a file in it and the name of the task.
    Where this machine has the client's store, which that file tells, a result that is there already
    is returned, and a new one is put there too, so that it stays if the client dies. Raises the
    `DataError` that the trial met.
    """
    trial, root, token, key = pickle.loads(asked)
    store = Store(root) if Path(root, token).is_file() else None
    there = None
    if store is not None:
        with suppress(StoreError):  # as if it were another machine's
            there = store.packed(trial.key)
    if there is not None and there.done:
        return there
    answer = _attempt(trial, token, key)
    if isinstance(answer, Packed) and store is not None:
        with suppress(StoreError):  # Whether it can be stored is for the client to say.
            store.put(trial.key, answer)
    return answer


def _attempt(trial: Trial, token: str, key: str) -> Packed | str:
    """What came of a trial, or how the process died that computed it."""
    worker = _take(token)
    worker.give(trial)
    try:
        while not first_words([worker], _EVERY):
            _check_wanted(key)
        answer = worker.answer()
    except EOFError:
        return worker.stop(at_once=False)
    except ValueError:  # data that can't be had: the process itself is well
        _give_back(worker, token)
        raise
    except BaseException:
        worker.stop(at_once=True)
        raise
    assert isinstance(answer, Packed)
    _give_back(worker, token)
    return answer


def _take(token: str) -> Worker:
    """A process that is ready: one that this run has used, or a new one; those of others end."""
    found = None
    with _lock:
        for worker, (owner, _) in list(_idle.items()):
            fit = owner == token and worker.process.is_alive()
            if fit and found is not None:
                continue
            del _idle[worker]
            if fit:
                found = worker
            else:
                worker.stop(at_once=True)
    return _start() if found is None else found


def _start() -> Worker:
    for _ in range(_STARTS):
        with _children_allowed():
            worker = Worker(None)
        try:
            worker.answer()
        except EOFError:
            how = worker.stop(at_once=False)
            continue
        return worker
    raise RuntimeError(f"processes for trials do not start on this worker ({how})")


def _give_back(worker: Worker, token: str) -> None:
    worker.trial = None
    with _lock:
        _idle[worker] = token, time.monotonic()
        if not _janitors:
            _janitors.append(threading.Thread(target=_send_home, daemon=True))
            _janitors[0].start()


def _send_home() -> None:
    """End processes that have waited long enough, until none is left that waits."""
    while True:
        time.sleep(_IDLE / 10.0)
        with _lock:
            late = time.monotonic() - _IDLE
            for worker in [worker for worker, (_, since) in _idle.items() if since < late]:
                del _idle[worker]
                worker.stop(at_once=True)
            if not _idle:
                _janitors.clear()
                return


def _check_wanted(key: str) -> None:
    """End the trial where the task was cancelled, as when its client was killed."""
    task = get_worker().state.tasks.get(key)
    if task is None or task.state not in _WANTED:
        raise RuntimeError(f"{key} was cancelled")


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Let this process start another one.

    Python forbids it to daemons, which Dask's workers are, because children would outlive them;
    ours watch their parent and end with it.
    """
    config: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    with _lock:
        daemon = config.pop("daemon", None)
        try:
            yield
        finally:
            if daemon is not None:
                config["daemon"] = daemon
