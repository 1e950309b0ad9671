"""Trials on a real Dask scheduler and real worker processes, which are killed at bad moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extremal.data import DataError
from extremal.experiments import ClusterError, Store, Trial, run, versions

from . import client, toy
from .client import alive, group, open_gate, until
from .toy import noted

distributed = pytest.importorskip("distributed")
from .dask_cluster import Cluster, kill  # noqa: E402 - only where Dask is

COUNT = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers of one thread each, the second one small."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.first = made.start_worker("--memory-limit", "8GiB")
        made.second = made.start_worker("--memory-limit", "3GiB")
        until(lambda: made.log.read_bytes().count(b"Registered to") == 2)
        yield made
    finally:
        made.stop()


def _bytes(store: Store, trial: Trial) -> list[bytes]:
    """Everything that is stored of a trial but the time that it took."""
    path = store.path(trial)
    rows = path.read_bytes().splitlines()
    fixed = [row for row in rows if not row.startswith((b'"seconds"', b'"checksum"'))]
    assert len(fixed) == len(rows) - 2
    return [*fixed, path.with_suffix(".safetensors").read_bytes()]


def _reason(store: Store, trial: Trial) -> str:
    stored = store.read(trial)
    assert stored is not None
    assert stored.status == "failed"
    return stored.reason


def _start_client(place: Path, address: str) -> subprocess.Popen[str]:
    """`run --cluster` in a process of its own."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    command = [sys.executable, "-c", code, str(place), address]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)


def _until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Wait for what the process is to do, as long as it lives."""

    def over() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return condition()

    until(over)


def main() -> None:
    """What the process does that is killed."""
    place = Path(sys.argv[1])
    trials = client.experiment(place, COUNT).trials("paper")
    run(trials, Store(place / "runs"), cluster=sys.argv[2], retries=2)


def test_killed_workers_and_a_killed_client_lose_nothing_and_do_nothing_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    store, log = Store(tmp_path / "runs"), tmp_path / "log"
    trials = client.experiment(tmp_path, COUNT).trials("paper")

    def finished() -> int:
        return sum(map(store.has, trials))

    open_gate(tmp_path, 10)
    process = _start_client(tmp_path, cluster.address)
    _until(process, lambda: finished() == 10)
    # Both workers wait at the gate.
    _until(process, lambda: len(noted(log, "start")) == 12)
    doomed, computing = cluster.first, {pid for _, pid in noted(log, "start")[-2:]}
    kill(doomed)
    # A trial's process ends with its worker.
    _until(process, lambda: sum(map(alive, computing)) == 1)
    cluster.first = cluster.start_worker("--memory-limit", "8GiB")
    open_gate(tmp_path, 20)
    _until(process, lambda: finished() == 20)
    # The first 20, the lost one again, and two that wait at the gate.
    _until(process, lambda: len(noted(log, "start")) == 23)
    running = {pid for _, pid in noted(log, "start")[-2:]}
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not any(map(alive, running)))  # Nobody waits for them any more.
    assert finished() == 20

    before = Counter(level for level, _ in noted(log, "start"))
    assert sorted(level for level, _ in noted(log, "end")) == list(range(20))
    open_gate(tmp_path, COUNT)
    report = run(trials, store, cluster=cluster.address)
    assert (report.done, report.skipped, report.failed) == (20, 20, 0)
    after = Counter(level for level, _ in noted(log, "start")) - before
    assert after == Counter(range(20, COUNT))
    assert sorted(level for level, _ in noted(log, "end")) == list(range(COUNT))

    here = Store(tmp_path / "here")  # `test_runner.py` compares it with two worker processes.
    run(trials, here, jobs=1)
    for trial in trials:
        assert _bytes(store, trial) == _bytes(here, trial)


def test_what_goes_wrong_in_a_trial_is_its_own_matter(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extremal.experiments.fleet._ROOM", 0.5)
    store, told = Store(tmp_path / "runs"), []
    deadly, bad = toy.trial(0, mode="kill"), toy.trial(1, mode="raise")
    once = toy.trial(2, mode="kill once", marker=str(tmp_path / "marker"))
    others = [toy.trial(level) for level in range(4, 8)]
    huge = Trial(toy.STUDY, {"level": 9}, 0, memory=9.0)
    seen: list[tuple[int, int, int, int]] = []
    report = run(
        [deadly, bad, once, *others, huge],
        store,
        cluster=cluster.address,
        progress=lambda *counts: seen.append(counts),
        notice=told.append,
    )
    assert (report.done, report.skipped, report.failed) == (5, 0, 3)
    assert _reason(store, deadly) == "its worker process died (SIGKILL), 2 of 2 times"
    assert _reason(store, bad).startswith("ArithmeticError: level 1 is too much")
    assert _reason(store, huge).startswith("no worker has room for it: it needs 1 threads and 9 ")
    assert seen[-1] == (5, 3, 8, 0)
    assert max(running for *_, running in seen) == 2
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert told[0].startswith(
        f"cluster {cluster.address}: 2 workers with 2 threads; dashboard http"
    )


def test_large_trials_wait_for_each_other(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    params = {"log": str(log), "sleep": 0.3}
    large = [
        Trial(toy.STUDY, {"level": level, **params}, 0, memory=4.0, threads=1) for level in range(3)
    ]
    seen: list[int] = []
    store = Store(tmp_path / "runs")
    run(large, store, cluster=cluster.address, progress=lambda *counts: seen.append(counts[3]))
    assert max(seen) == 1  # Only the first worker has so much memory, and for one at a time.
    assert len({pid for _, pid in noted(log, "end")}) == 1


def test_workers_that_do_not_see_the_store_send_what_they_find(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, apart = Store(tmp_path / "shared"), Store(tmp_path / "apart")
    trials = [toy.trial(level) for level in range(3)]
    run(trials, shared, cluster=cluster.address)
    monkeypatch.setattr("extremal.experiments.cluster.write_whole", lambda path, data: None)
    assert run(trials, apart, cluster=cluster.address).done == 3
    for trial in trials:
        assert _bytes(shared, trial) == _bytes(apart, trial)


def test_workers_that_see_the_store_do_nothing_twice(cluster: Cluster, tmp_path: Path) -> None:
    """Another client finishes the trials between this one's look and its workers' turn."""
    store, log = Store(tmp_path / "runs"), tmp_path / "log"
    trials = [toy.trial(level, log=str(log)) for level in range(2)]
    looked = store.without

    def late(wanted: list[Trial]) -> list[Trial]:
        left = looked(wanted)
        run(trials, Store(tmp_path / "runs"), jobs=1)
        return left

    store.without = late  # type: ignore[method-assign]
    report = run(trials, store, cluster=cluster.address)
    assert (report.done, len(noted(log, "start"))) == (2, 2)


def test_a_function_that_was_edited_between_two_runs_is_the_new_one(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers' processes of the first run have the old one loaded."""
    monkeypatch.syspath_prepend(cluster.place)  # The workers' own folder is on their path.
    code = "from extremal.experiments import Outcome\ndef f(p, g): return Outcome({'value': %s})\n"
    store = Store(tmp_path / "runs")
    for version, value in ((1, 1.0), (2, 22.0)):
        (cluster.place / "edited.py").write_text(code % value)
        trial = Trial("edited:f", {}, 0, version)
        run([trial], store, cluster=cluster.address)
        found = store.read(trial)
        assert found is not None
        assert found.numbers == {"value": value}


def test_data_that_cannot_be_had_end_the_run(cluster: Cluster, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    missing = toy.trial(1, mode="data", data=str(tmp_path / "toys"))
    with pytest.raises(DataError, match=r"^cannot load toys: EXTREMAL_DATA is not set"):
        run([missing], store, cluster=cluster.address)
    assert store.read(missing) is None


def test_an_interrupt_cancels_what_runs_and_keeps_what_is_finished(
    cluster: Cluster, tmp_path: Path
) -> None:
    store, log = Store(tmp_path / "runs"), tmp_path / "log"
    trials = client.experiment(tmp_path, COUNT).trials("paper")
    open_gate(tmp_path, 3)
    process = _start_client(tmp_path, cluster.address)
    _until(process, lambda: len(noted(log, "start")) == 5)
    running = {pid for _, pid in noted(log, "start")[-2:]}
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    until(lambda: not any(map(alive, running)))
    assert group(process.pid) == []
    assert [trial.params["level"] for trial in trials if store.has(trial)] == [0, 1, 2]
    assert list(store.root.glob(".cluster*")) == []


def test_a_trial_that_kills_its_dask_worker_each_time_fails_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The last of those with this cluster, of which it takes a worker along.

    That it is tried again alone, and how often in all, is shown without processes.
    """
    store = Store(tmp_path / "runs")
    deadly = Trial(toy.STUDY, {"level": 0, "mode": "kill parent"}, 0, memory=5.0)
    others = [Trial(toy.STUDY, {"level": level, "sleep": 0.5}, 0) for level in range(1, 5)]
    report = run([deadly, *others], store, cluster=cluster.address, retries=0)
    assert (report.done, report.failed) == (4, 1)
    assert _reason(store, deadly).startswith("its Dask worker was lost, 1 of 1 times, last tcp://")


def test_a_scheduler_that_restarts_is_waited_for(tmp_path: Path) -> None:
    own = Cluster(tmp_path)
    try:
        own.start_worker()
        port, told = int(own.address.rsplit(":", 1)[1]), []
        trials = client.experiment(tmp_path / "place", 4).trials("paper")
        (tmp_path / "place").mkdir()
        open_gate(tmp_path / "place", 2)
        store = Store(tmp_path / "runs")

        def restart(line: str) -> None:
            told.append(line)
            if line.startswith("lost the scheduler"):
                own.start_scheduler(port)
                own.start_worker()
                open_gate(tmp_path / "place", 4)

        def progress(done: int, failed: int, total: int, running: int) -> None:
            if done == 2 and running == 1 and own.scheduler.poll() is None:
                kill(own.scheduler)

        report = run(trials, store, cluster=own.address, progress=progress, notice=restart)
        assert (report.done, report.failed) == (4, 0)
        assert any(line.startswith("lost the scheduler at tcp://") for line in told)
    finally:
        own.stop()


def test_workers_of_other_versions_are_found_before_the_first_trial(tmp_path: Path) -> None:
    own, log = Cluster(tmp_path), tmp_path / "trials"
    try:
        info = tmp_path / "other" / "numpy-0.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
        own.start_worker(path=os.pathsep.join([str(tmp_path / "other"), *sys.path]))
        until(lambda: b"Registered to" in own.log.read_bytes())
        with pytest.raises(ClusterError, match=r"worker tcp.* numpy .* here, 0\.1 there; install"):
            run([toy.trial(0, log=str(log))], Store(tmp_path / "runs"), cluster=own.address)
        assert not log.exists()
    finally:
        own.stop()


def test_what_differs_is_told_apart() -> None:
    ours = versions.describe([toy.STUDY, "extremal.experiments.studies.images:images"])
    assert set(ours) >= {"python", "extremal", "torch", "numpy", "distributed", toy.__name__}
    assert ours[toy.__name__].startswith("source ")
    assert versions.differences(ours, dict(ours)) == []
    theirs = {**ours, "torch": "0.1"}
    del theirs["numpy"]
    assert versions.differences(ours, theirs) == [
        f"torch {ours['torch']} here, 0.1 there",
        f"numpy {ours['numpy']} here, none there",
    ]
    missing = versions.describe(["no.such.module:study"])["no.such.module"]
    assert missing == "none (No module named 'no')"


@pytest.mark.parametrize("address", ["host:8786", "tcp://"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match=r"^cluster must be an address such as tcp://host:8786"):
        run([toy.trial(0)], Store(tmp_path), cluster=address)


def test_a_scheduler_that_nobody_runs_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extremal.experiments.cluster._CONNECT", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        run([toy.trial(0)], Store(tmp_path), cluster="tcp://127.0.0.1:9")
