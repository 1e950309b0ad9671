"""Run trials, here or in worker processes, so that nothing finished is ever lost or done again."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from extremal._check import integer
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial
from extremal.experiments.worker import Worker, first_words, perform

Progress = Callable[[int, int, int, int], None]
"""Told how many trials are done, failed, in all and running."""
_STARTS = 3


@dataclass(frozen=True)
class RunReport:
    """How many trials were finished by this run, were finished before, and failed."""

    done: int
    skipped: int
    failed: int
    seconds: float


def run(
    trials: Iterable[Trial],
    store: Store,
    *,
    jobs: int,
    progress: Progress | None = None,
    retries: int = 1,
) -> RunReport:
    """Compute the trials that the store doesn't have, and store each as soon as it is finished.

    One job runs in this process; several run in worker processes, which write their results
    themselves and end when this process does, however it ends. An exception in a trial is stored
    as its failure and the rest goes on; a trial whose worker dies is tried `retries` times more.
    `progress` is called with (done, failed, total, running) at each change, where `done` counts
    the trials that were finished before. `StoreError`, `DataError` and Ctrl-C end the run: what is
    finished stays, and of a trial whose data can't be had nothing is stored.
    """
    integer("jobs", jobs, minimum=1)
    integer("retries", retries, minimum=0)
    start = time.perf_counter()
    store.prepare()
    distinct = {trial.key: trial for trial in trials}
    pending = [trial for trial in distinct.values() if not store.has(trial)]
    tally = _Tally(len(distinct), len(distinct) - len(pending), progress)
    if jobs == 1:
        _run_here(pending, store, tally)
    else:
        _run_in_workers(pending, store, tally, jobs, retries)
    return RunReport(tally.done, tally.skipped, tally.failed, time.perf_counter() - start)


class _Tally:
    """The counts of a run, told to whoever wants to show them."""

    def __init__(self, total: int, skipped: int, progress: Progress | None) -> None:
        self.total, self.skipped, self.progress = total, skipped, progress
        self.done = self.failed = 0
        self.tell(running=0)

    def add(self, done: bool) -> None:
        self.done += done
        self.failed += not done

    def tell(self, running: int) -> None:
        if self.progress is not None:
            self.progress(self.skipped + self.done, self.failed, self.total, running)


def _run_here(pending: list[Trial], store: Store, tally: _Tally) -> None:
    for trial in pending:
        tally.tell(running=1)
        tally.add(perform(trial, store))
        tally.tell(running=0)


def _run_in_workers(
    pending: list[Trial], store: Store, tally: _Tally, jobs: int, retries: int
) -> None:
    team = _Team(pending, store, tally, jobs, retries)
    finished = False
    try:
        while team.left():
            team.give_out()
            tally.tell(team.running())
            team.take_in()
        finished = True
    finally:
        team.disband(at_once=not finished)
    tally.tell(running=0)


class _Team:
    """Workers and the trials that wait for them.

    Each worker has a pipe of its own, so that its death is the matter of one trial: the others
    never notice.
    """

    def __init__(
        self, pending: list[Trial], store: Store, tally: _Tally, jobs: int, retries: int
    ) -> None:
        self.queue = deque(pending)
        self.store, self.tally, self.jobs, self.retries = store, tally, jobs, retries
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
            if self.queue and worker.ready and worker.trial is None:
                worker.give(self.queue.popleft())

    def take_in(self) -> None:
        """Wait for answers and deaths, and count what they mean."""
        for worker in first_words(self.workers):
            try:
                done = worker.answer()
            except EOFError:
                self._bury(worker)
                continue
            self.false_starts = 0
            if done is not None:
                self.tally.add(done)

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
            times = self.deaths[trial.key]
            reason = f"its worker process died ({how}), {times} of {times} times"
            self.store.fail(trial, reason, 0.0)
            self.tally.add(False)

    def disband(self, *, at_once: bool) -> None:
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.stop(at_once=at_once or not worker.ready)
