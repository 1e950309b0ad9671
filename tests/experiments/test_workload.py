"""Which trial goes where, and who is blamed for a death: without Dask and without processes."""

from __future__ import annotations

import pytest

from extremal.experiments import Trial
from extremal.experiments.executor import Room
from extremal.experiments.workload import Running, Workload


def _trial(number: int, threads: int = 1, memory: float = 1.0) -> Trial:
    return Trial("m:f", {"a": number}, 0, threads=threads, memory=memory)


def _work(trials: list[Trial], rooms: dict[str, Room], retries: int = 1) -> Workload:
    work = Workload(trials, retries)
    work.rooms |= rooms
    return work


def _begin(work: Workload) -> dict[int, str]:
    """Hand out what can be: the numbers of the trials, and where they went."""
    found = {}
    for trial, worker in work.places():
        work.begin(Running(trial, worker, None))
        found[trial.params["a"]] = worker
    return found


def _run(work: Workload, trial: Trial) -> Running:
    return work.running[trial.key]


def test_trials_go_to_the_least_busy_worker_as_long_as_there_is_room() -> None:
    trials = [_trial(number) for number in range(4)]
    work = _work(trials, {"a": Room(2), "b": Room(1)})
    assert _begin(work) == {0: "a", 1: "b", 2: "a"}
    assert (work.left(), work.waiting()) == (4, [trials[3]])
    work.end(_run(work, trials[1]))
    assert _begin(work) == {3: "b"}
    assert work.left() == 3


def test_memory_and_threads_are_held_against_the_workers() -> None:
    large = [_trial(number, memory=4.0) for number in range(2)]
    wide, small = _trial(2, threads=2), _trial(3)
    rooms = {"a": Room(4, 6.0), "b": Room(1, 3.0)}
    assert _begin(_work([*large, wide, small], rooms)) == {0: "a", 2: "a", 3: "b"}


def test_a_trial_that_does_not_begin_goes_on_waiting() -> None:
    work = _work([_trial(0)], {"a": Room(1)})
    for _ in work.places():
        break  # as where the scheduler is lost at this moment
    assert (work.left(), work.running) == (1, {})
    assert _begin(work) == {0: "a"}


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_deaths_of_processes_and_of_workers_are_one_count(retries: int) -> None:
    trial = _trial(0)
    work = _work([trial], {"a": Room(1)}, retries)
    for attempt in range(retries):
        _begin(work)
        work.end(_run(work, trial))
        assert work.died(trial, worker_lost=attempt % 2 == 0) == 0
    _begin(work)
    work.end(_run(work, trial))
    assert work.died(trial, worker_lost=True) == retries + 1
    assert work.left() == 0


def test_what_lost_its_worker_runs_alone_and_first() -> None:
    suspect, *others = (_trial(number) for number in range(6))
    work = _work([suspect, *others], {"a": Room(2), "b": Room(2)})
    assert _begin(work) == {0: "a", 1: "b", 2: "a", 3: "b"}
    lost = work.leave("a")
    assert [run.trial for run in lost] == [suspect, others[1]]
    for run in lost:
        work.died(run.trial, worker_lost=True)
    # One worker is left, with two trials: it gets nothing more until a suspect has it for itself.
    assert _begin(work) == {}
    work.end(_run(work, others[0]))
    assert _begin(work) == {}
    work.end(_run(work, others[2]))
    assert _begin(work) == {0: "b"}
    work.rooms["c"] = Room(2)
    assert _begin(work) == {2: "c"}
    work.rooms["d"] = Room(2)
    assert _begin(work) == {4: "d", 5: "d"}


def test_what_only_lost_its_process_is_no_suspect() -> None:
    trials = [_trial(number) for number in range(2)]
    work = _work(trials, {"a": Room(2)})
    _begin(work)
    work.end(_run(work, trials[0]))
    work.died(trials[0], worker_lost=False)
    assert _begin(work) == {0: "a"}


def test_where_nobody_is_left_all_wait_again_and_none_is_to_blame() -> None:
    trials = [_trial(number) for number in range(3)]
    work = _work(trials, {"a": Room(2)}, retries=0)
    _begin(work)
    work.all_back()
    assert (work.left(), work.running, work.rooms) == (3, {}, {})
    work.rooms["b"] = Room(3)
    assert sorted(_begin(work)) == [0, 1, 2]


def test_what_no_worker_can_hold_is_given_up_with_what_it_needs() -> None:
    work = _work([_trial(0, threads=2, memory=9.0)], {"a": Room(4, 8.0), "b": Room(8, 3.0)})
    assert _begin(work) == {}
    ((trial, reason),) = work.give_up()
    assert trial.params == {"a": 0}
    assert reason == (
        "no worker has room for it: it needs 2 threads and 9 GiB, the largest has 4 and 8"
    )
    assert work.left() == 0
