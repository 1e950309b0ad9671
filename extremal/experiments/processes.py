"""Trials on this machine: in this process, or in worker processes beside it."""

from __future__ import annotations

from collections import Counter, deque

from extremal.experiments.executor import Executor, Room, Tally, machine_memory
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial
from extremal.experiments.worker import Worker, first_words, perform

_STARTS = 3


class Here(Executor):
    """One trial after the other in this process."""

    def run(self, pending: list[Trial], store: Store, tally: Tally) -> None:
        """Compute these trials; see `Executor`."""
        for trial in pending:
            tally.tell(running=1)
            tally.add(perform(trial, store))
            tally.tell(running=0)


class Processes(Executor):
    """Up to `jobs` trials at a time, each in a worker process, which stores its results itself.

    Workers end when this process does, however it ends. A trial whose worker dies is tried
    `retries` times more. A trial of several threads counts as so many jobs; one that is too large
    for this machine beside others runs alone.
    """

    def __init__(self, jobs: int, retries: int) -> None:
        self.jobs, self.retries = jobs, retries

    def run(self, pending: list[Trial], store: Store, tally: Tally) -> None:
        """Compute these trials; see `Executor`."""
        team = _Team(pending, store, tally, self.jobs, self.retries)
        finished = False
        try:
            while team.left():
                team.give_out()
                tally.tell(team.running())
                team.take_in()
            finished = True
            tally.tell(running=0)
        finally:
            team.disband(at_once=not finished)


class _Team:
    """Workers and the trials that wait for them.

    Each worker has a pipe of its own, so that its death is the matter of one trial: the others
    never notice.
    """

    def __init__(
        self, pending: list[Trial], store: Store, tally: Tally, jobs: int, retries: int
    ) -> None:
        self.queue = deque(pending)
        self.store, self.tally, self.jobs, self.retries = store, tally, jobs, retries
        self.room = Room(jobs, machine_memory())
        self.workers: list[Worker] = []
        self.deaths: Counter[str] = Counter()
        self.false_starts = 0

    def running(self) -> int:
        return sum(worker.trial is not None for worker in self.workers)

    def left(self) -> int:
        return len(self.queue) + self.running()

    def give_out(self) -> None:
        """Have as many workers as there is work for, and hand a trial to each that is free."""
        for _ in range(min(self.jobs, self.left()) - len(self.workers)):
            self.workers.append(Worker(self.store.root))
        for worker in self.workers:
            if self.queue and worker.ready and worker.trial is None and self._fits(self.queue[0]):
                trial = self.queue.popleft()
                self.room.take(trial)
                worker.give(trial)

    def _fits(self, trial: Trial) -> bool:
        return self.room.holds(trial) or not self.room.taken

    def take_in(self) -> None:
        """Wait for answers and deaths, and count what they mean."""
        for worker in first_words(self.workers):
            trial = worker.trial
            if trial is not None:
                self.room.leave(trial)
            try:
                done = worker.answer()
            except EOFError:
                self._bury(worker)
                continue
            self.false_starts = 0
            if done is not None:
                self.tally.add(bool(done))

    def _bury(self, worker: Worker) -> None:
        self.workers.remove(worker)
        trial, how = worker.trial, worker.stop(at_once=False)
        if trial is None:
            self.false_starts += 1
            if self.false_starts == _STARTS:
                raise RuntimeError(
                    f"worker processes do not start ({how}); a script that calls run with jobs > 1 "
                    'needs an `if __name__ == "__main__":` around it'
                )
            return
        self.deaths[trial.key] += 1
        if self.store.has(trial):  # It died after its last stroke.
            self.tally.add(True)
        elif self.deaths[trial.key] <= self.retries:
            self.queue.append(trial)
        else:
            self.store.fail(trial, died(how, self.deaths[trial.key]), 0.0)
            self.tally.add(False)

    def disband(self, *, at_once: bool) -> None:
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.stop(at_once=at_once or not worker.ready)


def died(how: str, times: int) -> str:
    """Why a trial failed whose worker process died each time."""
    return f"its worker process died ({how}), {times} of {times} times"
