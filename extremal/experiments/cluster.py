"""Trials on a Dask cluster: connect, check, hand out, store what comes back.

Which worker computes which trial is decided here and not by Dask's scheduler, so that a trial's
memory is held against the worker's own limit, with no resources for anybody to declare, and so that
it is known whose death is whose: a trial whose worker is lost is tried again, alone on a worker.
"""

from __future__ import annotations

import math
import pickle
import queue
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from extremal._check import require
from extremal.data import DataError
from extremal.experiments import versions
from extremal.experiments.executor import Executor, Room, Tally
from extremal.experiments.files import StoreError, write_whole
from extremal.experiments.sealed import Packed, check
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial

Notice = Callable[[str], None]
_Need = tuple[int, float, bool]  # threads, memory, and whether it is suspected of killing workers
_EVERY = 0.5  # seconds between looks at who is there
_CONNECT = 10.0  # seconds for a first connection
_PATIENCE = 120.0  # seconds for a scheduler that was lost to come back
_ROOM = 60.0  # seconds for a worker to come that can hold what no worker can
_LOST = 60.0  # seconds for a result to arrive that is said to be there
_GIB = 2.0**30
_INSTALL = (
    "--cluster needs Dask, an extra of this package: python -m pip install 'extremal[cluster]'"
)


class ClusterError(ValueError):
    """A cluster can't be used: nobody answers, or its workers have other versions."""


class _LostSchedulerError(Exception):
    """The connection to the scheduler broke; what was running there is running no more."""


class Cluster(Executor):
    """Trials on the workers of a Dask scheduler, of which `notice` is told what people should know.

    Results come back to the client's store. A worker that is lost, one way or another, costs its
    trials one of their `retries`; a scheduler that is lost is waited for.
    """

    def __init__(self, address: str, retries: int, notice: Notice) -> None:
        try:
            import distributed  # noqa: F401, PLC0415 - an extra
        except ImportError as error:
            raise ClusterError(_INSTALL) from error
        good = "://" in address and not address.endswith("://")
        require(good, "cluster", "be an address such as tcp://host:8786", address)
        self.address, self.retries, self.notice = address, retries, notice

    def run(self, pending: list[Trial], store: Store, tally: Tally) -> None:
        """Compute these trials; see `Executor`."""
        work = _Work(pending, self.retries)
        patience = _CONNECT
        with _token(store) as token:
            while work.left():
                with _connected(self.address, patience) as client:
                    fleet = _Fleet(client, work, store, tally, token, self.notice)
                    with suppress(_LostSchedulerError):
                        fleet.run()
                        break
                work.all_back()
                tally.tell(running=0)
                self.notice(f"lost the scheduler at {self.address}; waiting for it to come back")
                patience = _PATIENCE
        tally.tell(running=0)


class _Work:
    """The trials that are left, and how often each has lost its worker."""

    def __init__(self, pending: list[Trial], retries: int) -> None:
        self.studies = sorted({trial.study for trial in pending})
        self.queues: dict[_Need, deque[Trial]] = {}
        self.running: dict[str, _Running] = {}
        self.deaths: Counter[str] = Counter()
        self.retries = retries
        for trial in pending:
            self.queue(trial)

    def queue(self, trial: Trial) -> None:
        """Let a trial wait, with those that need as much."""
        need = (trial.threads, trial.memory, self.deaths[trial.key] > 0)
        self.queues.setdefault(need, deque()).append(trial)

    def left(self) -> int:
        return sum(map(len, self.queues.values())) + len(self.running)

    def all_back(self) -> None:
        """Nothing runs any more: all that did waits again, and none is to blame."""
        for run in self.running.values():
            self.queue(run.trial)
        self.running.clear()


@dataclass(frozen=True)
class _Running:
    """A trial on a worker."""

    trial: Trial
    worker: str
    future: Any


class _Fleet:
    """The workers of a cluster, one connection long."""

    def __init__(
        self, client: Any, work: _Work, store: Store, tally: Tally, token: str, notice: Notice
    ) -> None:
        self.client, self.work, self.store, self.tally = client, work, store, tally
        self.token, self.notice = token, notice
        self.rooms: dict[str, Room] = {}
        self.refused: set[str] = set()
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ours = versions.describe(work.studies)
        self.looked = -_EVERY
        self.moved = time.monotonic()  # when something was last running

    def run(self) -> None:
        self._check_scheduler()
        self._meet(first=True)
        self._introduce()
        try:
            while self.work.left():
                self._meet(first=False)
                self._give_out()
                self.tally.tell(len(self.work.running))
                self._take_in()
        finally:
            self._part()

    def _check_scheduler(self) -> None:
        """It unpacks what it passes on, so that it must understand what this client packs."""
        with _scheduler_errors():
            told = self.client.get_versions()
        ours, theirs = (told[side]["packages"] for side in ("client", "scheduler"))
        ours = {name: ours[name] for name in ("python", "dask", "distributed", "cloudpickle")}
        wrong = versions.differences(ours, theirs)
        if wrong:
            raise ClusterError(f"the scheduler differs from this client: {'; '.join(wrong)}")

    def _introduce(self) -> None:
        threads = sum(room.threads for room in self.rooms.values())
        self.notice(
            f"cluster {self.client.scheduler.address}: {len(self.rooms)} workers with {threads} "
            f"threads; dashboard {self.client.dashboard_link}"
        )
        if not self.rooms:
            self.notice("waiting for workers")

    def _meet(self, *, first: bool) -> None:
        """See who has come and who has gone."""
        if time.monotonic() - self.looked < _EVERY:
            return
        with _scheduler_errors():
            there = self.client.nthreads()
        self.looked = time.monotonic()
        for address in self.rooms.keys() - there.keys():
            self._mourn(address)
        new = there.keys() - self.rooms.keys() - self.refused
        if new:
            self._admit(sorted(new), there, first=first)

    def _admit(self, new: list[str], threads: dict[str, int], *, first: bool) -> None:
        """Take in workers that have the client's versions; the others end the run, or stay idle."""
        with _scheduler_errors():
            ask = versions.asked(self.work.studies)
            told = self.client.run(ask, workers=new, on_error="return")
        lonely = not self.rooms
        for address in new:
            if address not in told:
                continue  # It is gone already.
            wrong, memory = self._compared(told[address])
            if not wrong:
                self.rooms[address] = Room(threads[address], memory / _GIB if memory else math.inf)
                continue
            self.refused.add(address)
            line = f"worker {address} differs from this client: {'; '.join(wrong)}"
            if first:
                raise ClusterError(f"{line}; install the same versions on both, and run again")
            self.notice(f"{line}; it gets no trials")
        if lonely and self.rooms and not first:
            self.notice(f"{len(self.rooms)} workers have come")

    def _compared(self, told: Any) -> tuple[list[str], int]:
        """How a worker differs, and the bytes of memory that it may use."""
        if isinstance(told, BaseException):
            return [f"it can't say what it has ({told})"], 0
        theirs, memory = told
        return versions.differences(self.ours, theirs), memory

    def _mourn(self, address: str) -> None:
        """A worker is gone: its trials are tried again elsewhere, or have failed."""
        del self.rooms[address]
        for run in [run for run in self.work.running.values() if run.worker == address]:
            self._lose(run)

    def _lose(self, run: _Running) -> None:
        key = run.trial.key
        self._end(run)
        self.work.deaths[key] += 1
        times = self.work.deaths[key]
        if self.store.has(run.trial):  # The worker stored it before it was lost.
            self.tally.add(True)
        elif times <= self.work.retries:
            self.work.queue(run.trial)
        else:
            reason = f"its Dask worker was lost, {times} of {times} times, last {run.worker}"
            self.store.fail(run.trial, reason, 0.0)
            self.tally.add(False)

    def _end(self, run: _Running) -> None:
        """The trial is no longer running."""
        del self.work.running[run.trial.key]
        if run.worker in self.rooms:
            self.rooms[run.worker].leave(run.trial)
        run.future.release()

    def _give_out(self) -> None:
        """Hand trials to the workers that have room; give up those that none can hold for long.

        Suspects come first: a worker that is to have one of them gets nothing else until then.
        """
        kept: set[str] = set()
        for (*_, suspect), waiting in sorted(self.work.queues.items(), key=lambda q: not q[0][2]):
            while waiting:
                address = self._place(waiting[0], kept, alone=suspect)
                if address is None:
                    break
                self._send(waiting.popleft(), address)
            if suspect and waiting:
                rooms = self.rooms.items()
                able = [(len(r.taken), a) for a, r in rooms if r.could_hold(waiting[0])]
                kept |= {address for _, address in sorted(able)[:1]}
        if self.work.running or not self.rooms:
            self.moved = time.monotonic()
        elif time.monotonic() - self.moved > _ROOM:
            self._give_up()

    def _place(self, trial: Trial, kept: set[str], *, alone: bool) -> str | None:
        """The least busy worker with room for a trial, or one with nothing else."""
        good = [
            (len(room.taken), address)
            for address, room in self.rooms.items()
            if room.holds(trial)
            and address not in kept
            and not (alone and room.taken)
            and not self._suspects(room)
        ]
        return min(good)[1] if good else None

    def _suspects(self, room: Room) -> bool:
        return any(self.work.deaths[key] > 0 for key in room.taken)

    def _send(self, trial: Trial, address: str) -> None:
        # A name of its own for each attempt: the scheduler still waits for the lost one's worker.
        name = f"extremal-{trial.key}-{uuid.uuid4().hex[:8]}"
        asked = (trial, str(self.store.root), self.token, self.work.retries, name)
        with _scheduler_errors():
            future = self.client.submit(
                *(_there(), pickle.dumps(asked)),
                key=name,
                workers=[address],
                allow_other_workers=False,
                pure=False,
            )
        self.rooms[address].take(trial)
        self.work.running[trial.key] = _Running(trial, address, future)
        future.add_done_callback(lambda _: self.words.put(trial.key))

    def _give_up(self) -> None:
        """Nothing runs, though there are workers: what is left fits on none of them."""
        largest = max(self.rooms.values(), key=lambda room: (room.memory, room.threads))
        for trial in [trial for waiting in self.work.queues.values() for trial in waiting]:
            reason = (
                f"no worker has room for it: it needs {trial.threads} threads and "
                f"{trial.memory:g} GiB, the largest has {largest.threads} and {largest.memory:.3g}"
            )
            self.store.fail(trial, reason, 0.0)
            self.tally.add(False)
        self.work.queues.clear()

    def _take_in(self) -> None:
        """Wait a moment for results, and store them."""
        try:
            keys = [self.words.get(timeout=_EVERY)]
        except queue.Empty:
            keys = []
        while not self.words.empty():
            keys.append(self.words.get())
        for key in keys:
            run = self.work.running.get(key)
            if run is not None and run.future.done():
                self._receive(run)
        if self.client.status != "running":
            raise _LostSchedulerError

    def _receive(self, run: _Running) -> None:
        if run.future.status in ("cancelled", "lost"):
            raise _LostSchedulerError
        packed = self._result(run)
        if packed is None:
            self._lose(run)
            return
        self._end(run)
        check(run.trial, packed)
        self.store.put(run.trial.key, packed)
        self.tally.add(packed.done)

    def _result(self, run: _Running) -> Packed | None:
        """What came of a trial; None where its worker was lost, perhaps with the result."""
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - an extra

        try:
            found = run.future.result(timeout=_LOST)
        except (TimeoutError, KilledWorker):
            return None
        except CancelledError as error:
            raise _LostSchedulerError from error
        except (StoreError, DataError):
            raise
        except Exception as error:
            raise ClusterError(f"worker {run.worker} can't compute trials: {error}") from error
        assert isinstance(found, Packed)
        return found

    def _part(self) -> None:
        """Keep what is finished, and cancel what is not, whose processes then end."""
        if self.client.status != "running":
            return
        with suppress(Exception):
            for run in list(self.work.running.values()):
                if run.future.status == "finished":
                    self._receive(run)
        with suppress(Exception):
            self.client.cancel([run.future for run in self.work.running.values()], force=True)


def _there() -> Callable[[bytes], Any]:
    """`remote.compute_on_cluster` as the code that finds it on a worker.

    Dask's scheduler unpacks what it passes on, and need not have this package.
    """

    def compute_there(asked: bytes) -> Any:
        import importlib  # noqa: PLC0415 - where it runs

        return importlib.import_module("extremal.experiments.remote").compute_on_cluster(asked)

    return compute_there


@contextmanager
def _connected(address: str, patience: float) -> Iterator[Any]:
    from distributed import Client  # noqa: PLC0415 - an extra
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    deadline = time.monotonic() + patience
    while True:
        try:
            with warnings.catch_warnings():
                # We look for ourselves, and more closely.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client = Client(address, timeout=max(1.0, deadline - time.monotonic()))
            break
        except (OSError, ValueError) as error:  # Dask's TimeoutError is an OSError
            if time.monotonic() >= deadline:
                raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
            time.sleep(0.5)
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=5)


@contextmanager
def _scheduler_errors() -> Iterator[None]:
    """Tell a connection that broke from everything else."""
    from distributed import CancelledError  # noqa: PLC0415 - an extra

    try:
        yield
    except (CancelledError, OSError) as error:  # Dask's errors of connections are OSErrors
        raise _LostSchedulerError from error


@contextmanager
def _token(store: Store) -> Iterator[str]:
    """A file in the store by which workers know that they see this very folder."""
    name = f".cluster-{uuid.uuid4().hex}.tmp"
    write_whole(store.root / name, b"")
    try:
        yield name
    finally:
        with suppress(OSError):
            (store.root / name).unlink()
