"""What is to be done on a cluster: which trials wait, which run where, and who is to blame.

Nothing of it knows Dask. A trial whose worker was lost is a suspect: it runs alone on a worker, so
that whatever happens next is its own doing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from extremal.experiments.executor import Room
from extremal.experiments.trial import Trial

_Need = tuple[int, float, bool]  # threads, memory, and whether it is a suspect


@dataclass(frozen=True)
class Running:
    """A trial on a worker, and what will hold its result."""

    trial: Trial
    worker: str
    future: Any


class Workload:
    """The trials that are left, the workers' rooms, and how often each trial has died."""

    def __init__(self, pending: list[Trial], retries: int) -> None:
        self.studies = sorted({trial.study for trial in pending})
        self.retries = retries
        self.rooms: dict[str, Room] = {}
        self.running: dict[str, Running] = {}
        self._queues: dict[_Need, deque[Trial]] = {}
        self._deaths: Counter[str] = Counter()
        self._suspects: set[str] = set()
        for trial in pending:
            self.queue(trial)

    def queue(self, trial: Trial) -> None:
        """Let a trial wait, with those that need as much."""
        need = (trial.threads, trial.memory, trial.key in self._suspects)
        self._queues.setdefault(need, deque()).append(trial)

    def waiting(self) -> list[Trial]:
        """The trials that wait."""
        return [trial for queue in self._queues.values() for trial in queue]

    def left(self) -> int:
        """How many trials wait or run."""
        return sum(map(len, self._queues.values())) + len(self.running)

    def places(self) -> Iterator[tuple[Trial, str]]:
        """The trials for which a worker has room now, and that worker, where they `begin`.

        Suspects come first: a worker that is to have one of them gets nothing else until then. A
        trial that does not begin, as somebody raised an error, goes on waiting.
        """
        kept: set[str] = set()
        for (*_, suspect), queue in sorted(self._queues.items(), key=lambda item: not item[0][2]):
            while queue:
                address = self._place(queue[0], kept, alone=suspect)
                if address is None:
                    break
                yield queue[0], address
                queue.popleft()
            if suspect and queue:
                able = [
                    (len(room.taken), address)
                    for address, room in self.rooms.items()
                    if room.could_hold(queue[0])
                ]
                kept |= {address for _, address in sorted(able)[:1]}

    def _place(self, trial: Trial, kept: set[str], *, alone: bool) -> str | None:
        """The least busy worker with room for a trial, or one with nothing else."""
        good = [
            (len(room.taken), address)
            for address, room in self.rooms.items()
            if room.holds(trial)
            and address not in kept
            and not (alone and room.taken)
            and self._suspects.isdisjoint(room.taken)
        ]
        return min(good)[1] if good else None

    def begin(self, run: Running) -> None:
        """A trial runs now."""
        self.rooms[run.worker].take(run.trial)
        self.running[run.trial.key] = run

    def end(self, run: Running) -> None:
        """A trial runs no more."""
        del self.running[run.trial.key]
        if run.worker in self.rooms:
            self.rooms[run.worker].leave(run.trial)

    def died(self, trial: Trial, *, worker_lost: bool) -> int:
        """A trial died with its process, or with its whole worker: how often, if that is too often.

        It waits again and this is 0 as long as it has died no more than `retries` times.
        """
        self._deaths[trial.key] += 1
        if worker_lost:
            self._suspects.add(trial.key)
        times = self._deaths[trial.key]
        if times > self.retries:
            return times
        self.queue(trial)
        return 0

    def leave(self, worker: str) -> list[Running]:
        """A worker gets nothing any more: what ran there, and runs no more."""
        del self.rooms[worker]
        found = [run for run in self.running.values() if run.worker == worker]
        for run in found:
            self.end(run)
        return found

    def all_back(self) -> None:
        """Nobody is there any more: all that ran waits again, and none is to blame."""
        for worker in list(self.rooms):
            for run in self.leave(worker):
                self.queue(run.trial)

    def give_up(self) -> Iterator[tuple[Trial, str]]:
        """Wait for nothing any more: the trials that did, and why each fits on no worker."""
        largest = max(self.rooms.values(), key=lambda room: (room.memory, room.threads))
        waiting = self.waiting()
        self._queues.clear()
        for trial in waiting:
            yield (
                trial,
                f"no worker has room for it: it needs {trial.threads} threads and "
                f"{trial.memory:g} GiB, the largest has {largest.threads} and {largest.memory:.3g}",
            )
