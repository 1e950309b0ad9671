"""The workers of a Dask cluster: meet them, hand out trials, and store what comes back.

Which worker computes which trial is decided here and not by Dask's scheduler, so that a trial's
memory is held against the worker's own limit, with no resources for anybody to declare, and so that
it is known whose death is whose: a trial whose worker is lost is tried again, alone on a worker.
"""

from __future__ import annotations

import math
import pickle
import queue
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from extremal.data import DataError
from extremal.experiments import versions
from extremal.experiments.connection import ClusterError, LostSchedulerError, scheduler_errors
from extremal.experiments.executor import Room, Tally
from extremal.experiments.processes import died
from extremal.experiments.sealed import Packed, check
from extremal.experiments.store import Store
from extremal.experiments.workload import Running, Workload

Notice = Callable[[str], None]
_EVERY = 0.5  # seconds between looks at who is there
_ANSWER = 120.0  # seconds for the first workers to say what they have
_ROOM = 60.0  # seconds for a worker to come that can hold what no worker can
_LOST = 60.0  # seconds for a result to arrive that is said to be there
_GIB = 2.0**30


class Fleet:
    """The workers of a cluster, one connection long.

    A worker that can't compute gets no more trials, and those that it had are handed to others.
    """

    def __init__(
        self, client: Any, work: Workload, store: Store, tally: Tally, token: str, notice: Notice
    ) -> None:
        self.client, self.work, self.store, self.tally = client, work, store, tally
        self.token, self.notice = token, notice
        self.there: dict[str, int] = {}  # the workers that the scheduler knows, and their threads
        self.silent: set[str] = set()  # were asked what they have, and did not answer yet
        self.refused: set[str] = set()
        self.answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ours = versions.describe(work.studies)
        self.looked = -_EVERY
        self.moved = time.monotonic()  # when something was last running

    def run(self) -> None:
        """Compute what is left; see `Executor`."""
        self._check_scheduler()
        self._gather()
        self._introduce()
        try:
            while self.work.left():
                self._meet(first=False)
                self._give_out()
                self.tally.tell(len(self.work.running))
                self._take_in()
            self.tally.tell(running=0)
        finally:
            self._part()

    def _check_scheduler(self) -> None:
        """It unpacks what it passes on, so that it must understand what this client packs."""
        with scheduler_errors():
            told = self.client.get_versions()
        ours, theirs = (told[side]["packages"] for side in ("client", "scheduler"))
        ours = {name: ours[name] for name in ("python", "dask", "distributed", "cloudpickle")}
        wrong = versions.differences(ours, theirs)
        if wrong:
            raise ClusterError(f"the scheduler differs from this client: {'; '.join(wrong)}")

    def _gather(self) -> None:
        """Wait for the answers of those that are there at first, but not for ever."""
        deadline = time.monotonic() + _ANSWER
        self._meet(first=True)
        while self.silent and time.monotonic() < deadline:
            time.sleep(0.05)
            self._meet(first=True)
        if self.silent:
            some = f"{len(self.silent)} workers, such as {min(self.silent)}"
            self.notice(f"no answer from {some}: they get trials once they answer")

    def _introduce(self) -> None:
        rooms = self.work.rooms
        threads = sum(room.threads for room in rooms.values())
        self.notice(
            f"cluster {self.client.scheduler.address}: {len(rooms)} workers with {threads} "
            f"threads; dashboard {self.client.dashboard_link}"
        )
        if not rooms:
            self.notice("waiting for workers")

    def _meet(self, *, first: bool) -> None:
        """See who has come and who has gone, and hear what those say that were asked."""
        if time.monotonic() - self.looked >= _EVERY:
            with scheduler_errors():
                self.there = dict(self.client.nthreads())
            self.looked = time.monotonic()
            for address in self.work.rooms.keys() - self.there.keys():
                self._mourn(address)
            self.silent &= self.there.keys()
            self.refused &= self.there.keys()
            for address in self.there.keys() - self.work.rooms.keys() - self.silent - self.refused:
                self._ask(address)
        lonely = not self.work.rooms
        while not self.answers.empty():
            self._admit(*self.answers.get(), first=first)
        if lonely and self.work.rooms and not first:
            self.notice(f"{len(self.work.rooms)} workers have come")

    def _ask(self, address: str) -> None:
        """Ask a worker what it has, in a thread, so that one that is stuck stops nobody else."""
        ask = versions.asked(self.work.studies)

        def wait() -> None:
            try:
                found = self.client.run(ask, workers=[address], on_error="return")
                told = found.get(address)
            except BaseException as error:  # the connection broke, or was closed
                told = OSError(str(error))
            self.answers.put((address, told))

        self.silent.add(address)
        threading.Thread(target=wait, daemon=True).start()

    def _admit(self, address: str, told: Any, *, first: bool) -> None:
        """Take in a worker that has the client's versions; others end the run, or stay idle."""
        if address not in self.silent:
            return  # It has gone since.
        self.silent.remove(address)
        if told is None:
            return  # It was gone when it was asked; if it is back, it is asked again.
        if isinstance(told, OSError):
            self.refused.add(address)
            self.notice(f"worker {address} can't be reached ({told}); it gets no trials")
            return
        wrong, memory = self._compared(told)
        if not wrong:
            limit = memory / _GIB if memory else math.inf
            self.work.rooms[address] = Room(self.there[address], limit)
            return
        self.refused.add(address)
        line = f"worker {address} differs from this client: {'; '.join(wrong)}"
        if first:
            raise ClusterError(f"{line}; install the same versions on both, and run again")
        self.notice(f"{line}; it gets no trials")

    def _compared(self, told: Any) -> tuple[list[str], int]:
        """How a worker differs, and the bytes of memory that it may use."""
        if isinstance(told, BaseException):
            return [f"it can't say what it has ({told})"], 0
        theirs, memory = told
        return versions.differences(self.ours, theirs), memory

    def _mourn(self, address: str) -> None:
        """A worker is gone: its trials are tried again elsewhere, or have failed."""
        for run in self.work.leave(address):
            run.future.release()
            self._lose(run, None)

    def _lose(self, run: Running, how: str | None) -> None:
        """A trial died with its process, which tells how, or with its worker, which does not."""
        if self.store.has(run.trial):  # The worker stored it before it was lost.
            self.tally.add(True)
            return
        times = self.work.died(run.trial, worker_lost=how is None)
        if times:
            lost = f"its Dask worker was lost, {times} of {times} times, last {run.worker}"
            self.store.fail(run.trial, lost if how is None else died(how, times), 0.0)
            self.tally.add(False)

    def _give_out(self) -> None:
        """Hand trials to the workers that have room; give up those that none can hold for long."""
        for trial, address in self.work.places():
            # A name for each attempt: the scheduler still waits for the lost one's worker.
            name = f"extremal-{trial.key}-{uuid.uuid4().hex[:8]}"
            asked = (trial, str(self.store.root), self.token, name)
            with scheduler_errors():
                future = self.client.submit(
                    *(_there(), pickle.dumps(asked)),
                    key=name,
                    workers=[address],
                    allow_other_workers=False,
                    pure=False,
                )
            self.work.begin(Running(trial, address, future))
            future.add_done_callback(lambda _, key=trial.key: self.words.put(key))
        if self.work.running or not self.work.rooms:
            self.moved = time.monotonic()
        elif time.monotonic() - self.moved > _ROOM:
            for trial, reason in self.work.give_up():
                self.store.fail(trial, reason, 0.0)
                self.tally.add(False)

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
            raise LostSchedulerError

    def _receive(self, run: Running) -> None:
        if run.future.status in ("cancelled", "lost"):
            raise LostSchedulerError
        try:
            found = self._result(run)
            if isinstance(found, Packed):
                check(run.trial, found)
        except (DataError, LostSchedulerError):
            raise
        except Exception as error:
            self._refuse(run, error)
            return
        self.work.end(run)
        run.future.release()
        if isinstance(found, Packed):
            self.store.put(run.trial.key, found)
            self.tally.add(found.done)
        else:
            self._lose(run, found)

    def _result(self, run: Running) -> Packed | str | None:
        """What came of a trial, or how its process died; None where its worker was lost."""
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - an extra

        try:
            found: Packed | str = run.future.result(timeout=_LOST)
        except (TimeoutError, KilledWorker):
            return None
        except CancelledError as error:
            raise LostSchedulerError from error
        return found

    def _refuse(self, run: Running, error: Exception) -> None:
        """A worker can't compute: its trials wait for others, and none of them is to blame."""
        self.refused.add(run.worker)
        for other in self.work.leave(run.worker):
            other.future.release()
            self.work.queue(other.trial)
        line = f"worker {run.worker} can't compute trials: {error}"
        if not self.work.rooms and not self.silent:
            raise ClusterError(f"{line}; no other worker is there") from error
        self.notice(f"{line}; it gets no more")

    def _part(self) -> None:
        """Keep what is finished, and cancel what is not, whose processes then end."""
        if self.client.status != "running":
            return
        for run in list(self.work.running.values()):
            with suppress(Exception):  # Each for itself: one that can't be kept is not the rest.
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
