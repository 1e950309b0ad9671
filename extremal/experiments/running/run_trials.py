"""Run trials, here or elsewhere, so that nothing finished is ever lost or done again."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from extremal._check import integer
from extremal.experiments.running.dask_cluster import check_cluster, run_on_cluster
from extremal.experiments.running.local_pool import WorkerDiedError, compute_trial, run_locally
from extremal.experiments.storage.store import Store
from extremal.experiments.storage.trial_file import encode_failure
from extremal.experiments.trial import Trial

Progress = Callable[[int, int, int], None]
"""Told how many trials are done, those of earlier runs among them, have failed, and are in all."""


@dataclass(frozen=True)
class RunReport:
    """How many trials were finished by this run, were finished before, and failed."""

    done: int
    skipped: int
    failed: int


def run(
    trials: Iterable[Trial],
    store: Store,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> RunReport:
    """Compute the trials that the store doesn't have, and store each as soon as it is finished.

    An exception in a trial is stored as its failure; a trial whose process dies is tried once more,
    alone, after all others. `FileError`, `DataError`, `ClusterError` and Ctrl-C end the run and all
    that it started, as does its death: what is finished stays.

    - `trials`: those to compute; equal ones are computed once.
    - `store`: where results are kept; only this process writes there.
    - `jobs`: processes, 1 being this one; more need a script's `if __name__ == "__main__":`.
    - `cluster`: "tcp://host:8786", a Dask scheduler, in place of `jobs`; needs `extremal[cluster]`.
    - `threads`: torch threads of a trial; with more than 1 last digits may depend on the machine.
    - `progress`: called with (done, failed, total) at each change.
    - `notice`: called with lines about a cluster, such as the link to its dashboard.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)  # A process of a script without a main guard; `run_locally` says so.
    check_run_options(jobs, cluster, threads)
    store.prepare()
    distinct = {trial.key: trial for trial in trials}
    missing = store.missing(distinct.values())
    done = failed = 0
    skipped = len(distinct) - len(missing)

    def tell() -> None:
        if progress is not None:
            progress(skipped + done, failed, len(distinct))

    def still_missing() -> Iterator[Trial]:
        """Another client of this folder may have finished a trial since."""
        nonlocal skipped
        for trial in missing:
            if store.has(trial):
                skipped += 1
                tell()
            else:
                yield trial

    tell()
    if cluster is not None:
        engine = run_on_cluster(still_missing(), cluster, threads, notice or (lambda line: None))
    elif jobs > 1:
        engine = run_locally(still_missing(), jobs, threads)
    else:
        engine = ((trial, compute_trial(trial, threads)) for trial in still_missing())
    with closing(engine):
        for trial, found in engine:
            if isinstance(found, WorkerDiedError):
                found = encode_failure(trial, str(found), 0.0)  # noqa: PLW2901
            if isinstance(found, BaseException):
                raise found
            store.put(found)
            done += found.done
            failed += not found.done
            tell()
    return RunReport(done, skipped, failed)


def check_run_options(jobs: int, cluster: str | None, threads: int) -> None:
    """ValueError where `run` would refuse, of which nothing is left then."""
    integer("jobs", jobs, minimum=1)
    integer("threads", threads, minimum=1)
    if cluster is not None:
        check_cluster(cluster)
