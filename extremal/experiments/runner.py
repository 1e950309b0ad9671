"""Run trials, here or elsewhere, so that nothing finished is ever lost or done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from extremal._check import integer
from extremal.experiments.cluster import Cluster
from extremal.experiments.executor import Executor, Progress, Tally
from extremal.experiments.processes import Here, Processes
from extremal.experiments.store import Store
from extremal.experiments.trial import Trial

__all__ = ["Progress", "RunReport", "run"]


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
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
    retries: int = 1,
) -> RunReport:
    """Compute the trials that the store doesn't have, and store each as soon as it is finished.

    One job runs in this process; several run in worker processes, which write their results
    themselves and end when this process does, however it ends. With the address of a Dask scheduler
    as `cluster` they run on its workers instead, and results come back to this store. An exception
    in a trial is stored as its failure and the rest goes on; a trial that dies, with its process or
    with its Dask worker, is tried `retries` times more in all. `progress` is called with (done,
    failed, total, running) at each change, where `done` counts what was finished before, too;
    `notice` with lines about a cluster, such as the link to its dashboard. `StoreError`,
    `DataError`, `ClusterError` and Ctrl-C end the run: what is finished stays, and of a trial whose
    data can't be had nothing is stored.
    """
    start = time.perf_counter()
    executor = executor_for(jobs, cluster, retries, notice)
    store.prepare()
    distinct = {trial.key: trial for trial in trials}
    pending = store.without(distinct.values())
    tally = Tally(len(distinct), len(distinct) - len(pending), progress)
    if pending:
        executor.run(pending, store, tally)
    return RunReport(tally.done, tally.skipped, tally.failed, time.perf_counter() - start)


def executor_for(
    jobs: int, cluster: str | None, retries: int, notice: Callable[[str], None] | None = None
) -> Executor:
    """Where `run` computes; ValueError where it would refuse, of which nothing is left then."""
    integer("jobs", jobs, minimum=1)
    integer("retries", retries, minimum=0)
    if cluster is not None:
        return Cluster(cluster, retries, notice or (lambda line: None))
    return Here() if jobs == 1 else Processes(jobs, retries)
