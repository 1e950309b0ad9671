"""Workers that are stuck, broken or of other versions, played by a client that is none."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extremal.data import DataError
from extremal.experiments import ClusterError, Store, Trial, fleet, versions
from extremal.experiments.connection import LostSchedulerError
from extremal.experiments.executor import Tally
from extremal.experiments.fleet import Fleet
from extremal.experiments.sealed import Packed
from extremal.experiments.worker import compute
from extremal.experiments.workload import Workload

from . import toy
from .client import until

pytest.importorskip("distributed")
Behaviour = Callable[[Trial], Any]


class Future:
    """Finished as soon as it is made."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.status = "error" if isinstance(found, Exception) else "finished"

    def done(self) -> bool:
        return True

    def result(self, timeout: float) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        call(self)

    def release(self) -> None:
        pass


class Client:
    """A Dask client whose workers do as they are told: one `Behaviour` an address."""

    def __init__(self, **workers: Behaviour) -> None:
        self.workers, self.status, self.sent = dict(workers), "running", list[tuple[str, Any]]()
        self.scheduler, self.dashboard_link = SimpleNamespace(address="tcp://s"), "http://s"
        self.has: dict[str, dict[str, str]] = {}  # the versions of those that differ
        self.stuck: dict[str, threading.Event] = {}
        self.closed: set[str] = set()

    def get_versions(self) -> dict[str, Any]:
        names = ("python", "dask", "distributed", "cloudpickle")
        side = {"packages": dict.fromkeys(names, "1")}
        return {"client": side, "scheduler": side}

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 1)

    def run(self, ask: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        if address in self.stuck:
            self.stuck[address].wait()
        if address in self.closed:
            raise OSError("closed")
        return {address: ({**versions.describe([toy.STUDY]), **self.has.get(address, {})}, 0)}

    def submit(self, function: Any, asked: bytes, workers: list[str], **rest: Any) -> Future:
        (address,), trial = workers, pickle.loads(asked)[0]
        self.sent.append((address, trial.params["level"]))
        return Future(self.workers[address](trial))

    def cancel(self, futures: list[Future], force: bool) -> None:
        pass


def broken(trial: Trial) -> Exception:
    return RuntimeError("processes for trials do not start on this worker (SIGKILL)")


def killed(trial: Trial) -> str:
    return "SIGKILL"


def lost(trial: Trial) -> Exception:
    from distributed import KilledWorker

    return KilledWorker("name", SimpleNamespace(address="tcp://w"), 1)


def garbled(trial: Trial) -> Packed:
    found = compute(trial)
    return Packed(found.text.replace(b'"seed": 0', b'"seed": 1'), found.arrays, found.done)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_EVERY", 0.0)


class Run:
    """A fleet with some trials, and what came of it."""

    def __init__(self, place: Path, client: Client, count: int = 4, retries: int = 1) -> None:
        self.trials = [toy.trial(level) for level in range(count)]
        self.store, self.told = Store(place / "runs"), list[str]()
        self.store.prepare()
        self.tally = Tally(count, 0, None)
        self.work = Workload(self.trials, retries)
        self.fleet = Fleet(client, self.work, self.store, self.tally, "token", self.told.append)

    def counts(self) -> tuple[int, int]:
        self.fleet.run()
        return self.tally.done, self.tally.failed


@pytest.mark.parametrize("bad", [broken, garbled])
def test_a_worker_that_cannot_compute_gets_no_more_and_its_trials_go_elsewhere(
    tmp_path: Path, bad: Behaviour
) -> None:
    client = Client(a=bad, b=compute)
    run = Run(tmp_path, client, retries=0)
    assert run.counts() == (4, 0)
    assert [address for address, _ in client.sent].count("a") == 1
    (line,) = [line for line in run.told if line.startswith("worker a can't compute trials: ")]
    assert line.endswith("; it gets no more")


def test_a_run_ends_when_no_worker_is_left_that_can_compute(tmp_path: Path) -> None:
    client = Client(a=broken, b=broken)
    run = Run(tmp_path, client)
    with pytest.raises(ClusterError, match=r"worker b can't compute .*no other worker is there"):
        run.counts()
    assert sorted(address for address, _ in client.sent) == ["a", "b"]
    assert [run.store.read(trial) for trial in run.trials] == [None] * 4


def test_data_that_cannot_be_had_end_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, Client(a=lambda trial: DataError("cannot load toys")))
    with pytest.raises(DataError, match=r"^cannot load toys$"):
        run.counts()


def test_a_worker_that_is_stuck_stops_nobody_and_is_taken_in_once_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_ANSWER", 0.1)
    free = threading.Event()

    def compute_and_free(trial: Trial) -> Any:
        if trial.params["level"] == 2:
            free.set()
            until(lambda: not run.fleet.answers.empty())
        return compute(trial)

    client = Client(a=compute_and_free, stuck=compute)
    client.stuck["stuck"] = free
    run = Run(tmp_path, client, count=6)
    assert run.counts() == (6, 0)
    assert run.told[0].startswith("no answer from 1 workers, such as stuck")
    assert run.told[1].startswith("cluster tcp://s: 1 workers with 1 threads")
    assert [address for address, _ in client.sent[:3]] == ["a"] * 3
    assert "stuck" in {address for address, _ in client.sent}


def test_a_worker_that_cannot_be_reached_ends_no_run(tmp_path: Path) -> None:
    client = Client(a=compute, dying=compute)
    client.closed.add("dying")
    run = Run(tmp_path, client)
    assert run.counts() == (4, 0)
    assert run.told[0] == "worker dying can't be reached (closed); it gets no trials"
    assert {address for address, _ in client.sent} == {"a"}


def test_workers_of_other_versions_end_the_run_at_first(tmp_path: Path) -> None:
    client = Client(a=compute, other=compute)
    client.has["other"] = {"numpy": "0.1"}
    with pytest.raises(ClusterError, match=r"worker other .* numpy .* here, 0\.1 there; install"):
        Run(tmp_path, client).counts()
    assert client.sent == []


def test_workers_of_other_versions_that_come_later_get_no_trials(tmp_path: Path) -> None:
    def with_another(trial: Trial) -> Any:
        client.workers.setdefault("other", compute)
        until(lambda: "other" not in run.fleet.silent or not run.fleet.answers.empty())
        return compute(trial)

    client = Client(a=with_another)
    client.has["other"] = {"numpy": "0.1"}
    run = Run(tmp_path, client)
    assert run.counts() == (4, 0)
    assert {address for address, _ in client.sent} == {"a"}
    assert run.told[-1].startswith("worker other differs from this client: numpy ")
    assert run.told[-1].endswith("; it gets no trials")


@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ((killed, killed, killed), r"its worker process died \(SIGKILL\), 3 of 3 times"),
        ((killed, lost, lost), r"its Dask worker was lost, 3 of 3 times, last a"),
        ((lost, killed, killed), r"its worker process died \(SIGKILL\), 3 of 3 times"),
    ],
)
def test_a_trial_that_dies_is_tried_so_often_in_all_however_it_dies(
    tmp_path: Path, deaths: tuple[Behaviour, ...], reason: str
) -> None:
    left = list(deaths)

    def die(trial: Trial) -> Any:
        return left.pop(0)(trial)

    client = Client(a=die)
    run = Run(tmp_path, client, count=1, retries=2)
    assert run.counts() == (0, 1)
    assert (len(client.sent), left) == (3, [])
    stored = run.store.read(run.trials[0])
    assert stored is not None
    assert (stored.status, stored.reason) == ("failed", reason.replace("\\", ""))


def test_a_trial_that_its_lost_worker_has_stored_is_done(tmp_path: Path) -> None:
    run = Run(tmp_path, Client(a=lost), count=1)
    trial = run.trials[0]
    packed = compute(trial)

    def stored_and_lost(trial: Trial) -> Any:
        run.store.put(trial.key, packed)
        return lost(trial)

    run.fleet.client.workers["a"] = stored_and_lost
    assert run.counts() == (1, 0)


def test_what_is_finished_is_kept_though_one_of_it_ends_the_run(tmp_path: Path) -> None:
    """Four workers answer in one moment, and the first of them has no data."""

    def without_data(trial: Trial) -> Exception:
        return DataError("cannot load toys")

    run = Run(tmp_path, Client(a=without_data, b=broken, c=compute, d=compute))
    with pytest.raises(DataError):
        run.counts()
    assert [run.store.has(trial) for trial in run.trials] == [False, False, True, True]


def test_a_scheduler_that_is_lost_while_trials_are_sent_loses_none(tmp_path: Path) -> None:
    def gone(trial: Trial) -> Any:
        raise OSError("closed")

    run = Run(tmp_path, Client(a=compute, b=gone), retries=0)
    with pytest.raises(LostSchedulerError):
        run.counts()
    run.work.all_back()
    # The first was finished, and is kept; none of the others has gone or failed.
    assert (run.work.left(), run.tally.done, run.tally.failed) == (3, 1, 0)
