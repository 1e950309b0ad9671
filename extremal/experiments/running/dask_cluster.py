"""Trials on a Dask cluster: its scheduler decides what runs where, results come to this client.

Done here is what Dask does not do: a trial that may have been blamed for another one's death runs
once more, alone; a result leaves its worker once it is here, so that it is not computed again when
that worker dies; machines with other versions are refused; a lost scheduler is waited for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from extremal._check import require
from extremal.data import DataError
from extremal.experiments.registry import Source, study_source
from extremal.experiments.running.local_pool import Ended, WorkerDiedError, compute_trial
from extremal.experiments.storage.trial_file import TrialFile
from extremal.experiments.trial import Trial

CONNECT_SECONDS = 10.0
# A scheduler that something restarts, such as systemd or Kubernetes, is there again by then.
RECONNECT_SECONDS = 120.0
_PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "dask", "distributed", "cloudpickle")
Environment = Mapping[str, str]
"""What a machine must have in common with the client, so that its results are the client's own."""
Notice = Callable[[str], None]


class ClusterError(ValueError):
    """A cluster can't be used: nobody answers, or its machines have other versions."""


def check_cluster(address: str) -> None:
    """ValueError where this is no address of a scheduler, or Dask is not there."""
    try:
        import dask  # noqa: PLC0415 - an extra
        import distributed  # noqa: F401, PLC0415
    except ImportError as error:
        install = "python -m pip install 'extremal[cluster]'"
        raise ClusterError(f"--cluster needs Dask, an extra of this package: {install}") from error
    good = isinstance(address, str) and "://" in address and not address.endswith("://")
    require(good, "cluster", "be an address such as tcp://host:8786", address)
    safe = not address.startswith("tls://") or dask.config.get("distributed.comm.tls.ca-file")
    require(safe, "cluster", "be tls:// only with Dask's settings distributed.comm.tls", address)


def run_on_cluster(trials: Iterable[Trial], address: str, threads: int, notice: Notice) -> Ended:
    """On the workers of a Dask scheduler, for as long as it is there or comes back."""
    sources, how = cache(study_source), (threads, environment())
    tasks = {_name(trial, sources(trial.study), how): trial for trial in trials}
    seconds = CONNECT_SECONDS
    while tasks:
        try:
            with _connected(address, seconds) as client:
                _check_machines(client, notice)
                work = (list(tasks.values()), [sources(trial.study) for trial in tasks.values()])
                futures = client.map(_compute_on_worker, *work, key=list(tasks), how=how)
                for name, found in _ended(client, futures):
                    yield tasks.pop(name), found
        except OSError:  # Dask's word, and this module's, for a connection that is lost
            notice(f"lost the scheduler at {address}; waiting for it to come back")
            seconds = RECONNECT_SECONDS


def _name(trial: Trial, source: Source | None, how: object) -> str:
    """A task's name, by which clients share what several ask for; its beginning lets Dask queue."""
    return f"trial-{trial.key}-{hashlib.sha256(repr((source, how)).encode()).hexdigest()[:16]}"


@contextmanager
def _connected(address: str, seconds: float) -> Iterator[Any]:
    from distributed import Client  # noqa: PLC0415 - an extra
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    logging.getLogger("distributed.client").addFilter(_is_news)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # `_check_machines` looks.
            client = Client(address, timeout=seconds, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        yield client


def _is_news(record: logging.LogRecord) -> bool:
    """False for what Dask says, seconds later and in tracebacks, of a scheduler that was lost."""
    cancelled = record.exc_info is not None and record.exc_info[0] is asyncio.CancelledError
    return not cancelled and not record.getMessage().startswith("Failed to reconnect")


def _ended(client: Any, futures: list[Any]) -> Iterator[tuple[str, TrialFile | Exception]]:
    """The tasks' names as they end, and what came of each."""
    from distributed import as_completed  # noqa: PLC0415 - an extra

    suspects = []
    # What stays on a worker that dies is computed again: so it leaves as soon as it is here.
    ended = as_completed(futures, loop=client.loop, with_results=True, raise_errors=False)
    for batch in ended.batches():
        received = [(future, found) for future, found in batch if isinstance(found, TrialFile)]
        for future, _ in received:
            future.release()
        yield from ((future.key, found) for future, found in received)
        for future in [future for future, found in batch if not isinstance(found, TrialFile)]:
            found = _result(future)
            if isinstance(found, WorkerDiedError):
                suspects.append(future)
            else:
                yield future.key, found
    for future in suspects:
        client.retry([future])  # exactly one attempt more
        found = _result(future)
        future.release()
        yield future.key, found


def _result(future: Any) -> TrialFile | Exception:
    """What came of a task, which is waited for; ConnectionError where the scheduler is gone."""
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - an extra

    try:
        found: TrialFile | Exception = future.result()
    except CancelledError as error:
        raise ConnectionError("the scheduler is gone") from error
    except KilledWorker as error:
        where = f"last {error.last_worker.address}"
        found = WorkerDiedError(f"its Dask worker died each time (a crash, or memory; {where})")
    except (DataError, ClusterError) as error:
        found = error
    except Exception as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        found = ClusterError(f"the cluster can't compute a trial: {why}")
    return found


def _compute_on_worker(
    trial: Trial, source: Source | None, how: tuple[int, Environment]
) -> TrialFile:
    """What came of a trial; ClusterError where this worker, which may have come late, differs."""
    from distributed import get_worker  # noqa: PLC0415 - an extra

    _require_same(f"worker {get_worker().address}", how[1], environment())
    return compute_trial(trial, how[0], source)


def _check_machines(client: Any, notice: Notice) -> None:
    """ClusterError where the scheduler or a worker differs from this client; say who is there."""
    told = client.get_versions()
    ours, theirs = (told[side]["packages"] for side in ("client", "scheduler"))
    passed_on = ("python", "dask", "distributed", "cloudpickle")  # what it unpacks, and its own
    _require_same("the scheduler", {name: ours[name] for name in passed_on}, theirs)
    for address, found in client.run(environment, on_error="return").items():
        if isinstance(found, OSError):
            continue  # It has gone.
        if isinstance(found, Exception):
            found = {**environment(), "extremal": f"none ({found})"}  # noqa: PLW2901
        _require_same(f"worker {address}", environment(), found)
    counts = client.nthreads()
    notice(f"cluster {client.scheduler.address}: {len(counts)} workers; {client.dashboard_link}")
    if not counts:
        notice("waiting for workers")
    if max(counts.values(), default=1) > 1:
        notice("a worker computes one trial at a time: start them with --nthreads 1 --nworkers -1")


def _require_same(who: str, ours: Environment, theirs: Environment) -> None:
    wrong = [f"{k} {v} here, {theirs.get(k)} there" for k, v in ours.items() if theirs.get(k) != v]
    if wrong:
        rule = "install the same on both, and run again"
        raise ClusterError(f"{who} differs from this client: {'; '.join(wrong)}; {rule}")


@cache
def environment() -> Environment:
    """Versions of Python and packages, and a checksum of this package's source."""
    found = {"python": platform.python_version(), "extremal": f"source {_SOURCE}"}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


# Once, when it is imported: a process that has run for long has what was there at its start.
_SOURCE = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[2].rglob("*.py")))
).hexdigest()[:12]
