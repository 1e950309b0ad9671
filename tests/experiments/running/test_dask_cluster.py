"""Trials on a real Dask scheduler and real worker processes, which are killed at bad moments."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import extremal
from extremal.data import DataError
from extremal.experiments import ClusterError, Store, Trial, run
from tests.experiments import helpers_toy as toy
from tests.experiments.helpers_toy import noted
from tests.experiments.running import helpers_client as client
from tests.experiments.running.helpers_client import open_gate
from tests.helpers_fork import ForkedProcess, ForkServer, group, until

distributed = pytest.importorskip("distributed")
from tests.experiments.running.helpers_cluster import (  # noqa: E402 - only where Dask is
    ALLOWED_FAILURES,
    Cluster,
    scheduler_options,
    start_other,
    stop_other,
)

COUNT = 30
Start = Callable[..., ForkedProcess]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, forks: ForkServer) -> Iterator[Cluster]:
    """A scheduler and two workers of one thread each, with a memory of 1 GiB each."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), forks)
    try:
        made.start_nannies(2, "1GiB")
        yield made
    finally:
        made.stop()


@pytest.fixture
def own(tmp_path: Path, forks: ForkServer) -> Iterator[Cluster]:
    """A scheduler without workers, for a test that does to it what it likes."""
    made = Cluster(tmp_path, forks)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def start(forks: ForkServer) -> Iterator[Start]:
    """Start `run --cluster` in a process of its own, which ends with the test."""
    processes: list[ForkedProcess] = []

    def begin(place: Path, address: str, count: int = COUNT, runs: str = "runs") -> ForkedProcess:
        words = (str(place), address, str(count), runs)
        processes.append(forks.start(f"{client.__name__}:run_on_cluster", *words))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


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


def _starts(log: Path) -> Counter[float]:
    return Counter(level for level, _ in noted(log, "start"))


def _until(process: ForkedProcess, condition: Callable[[], bool]) -> None:
    """Wait for what the process is to do, as long as it lives."""

    def over() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return condition()

    until(over)


def test_killed_workers_and_a_killed_client_lose_nothing_and_do_nothing_twice(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    store, log = Store(tmp_path / "runs"), tmp_path / "log"
    trials = client.experiment(tmp_path, COUNT).trials("paper")

    def finished() -> int:
        return sum(map(store.has, trials))

    open_gate(tmp_path, 10)
    process = start(tmp_path, cluster.address)
    _until(process, lambda: finished() == 10)
    _until(process, lambda: len(noted(log, "start")) == 12)  # Both workers wait at the gate.
    os.kill(noted(log, "start")[-1][1], signal.SIGKILL)
    _until(process, lambda: len(noted(log, "start")) == 13)  # Its nanny has started it again.
    open_gate(tmp_path, 20)
    _until(process, lambda: finished() == 20)
    _until(process, lambda: len(noted(log, "start")) == 23)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert group(process.pid) == []
    assert finished() == 20

    before = _starts(log)
    assert sorted(level for level, _ in noted(log, "end")) == list(range(20))
    open_gate(tmp_path, COUNT)
    report = run(trials, store, cluster=cluster.address)
    assert (report.done, report.skipped, report.failed) == (10, 20, 0)
    again = _starts(log) - before
    assert set(again) <= set(range(20, COUNT))  # What is finished is not begun again,
    assert max(again.values()) == 1  # and what is not at most once: a worker may still be in it.

    here = Store(tmp_path / "here")  # `test_run_trials.py` compares it with two processes.
    run(trials, here, jobs=1)
    for trial in trials:
        assert _bytes(store, trial) == _bytes(here, trial)


def test_what_goes_wrong_in_a_trial_is_its_own_matter(cluster: Cluster, tmp_path: Path) -> None:
    """One that dies, one too large for any worker and one that raises, beside long ones."""
    store, log, told = Store(tmp_path / "runs"), tmp_path / "log", list[str]()
    # It dies after a while, by when its worker's last result has been sent and released: one that
    # dies within milliseconds of it may make Dask compute that one again.
    deadly = toy.trial(0, mode="kill", sleep=0.75, log=str(log))
    huge = toy.trial(1, mode="memory", gib=2.0, log=str(log))
    bad = toy.trial(2, mode="raise", log=str(log))
    others = [toy.trial(level, sleep=0.3, log=str(log)) for level in range(3, 9)]
    seen, begun = list[tuple[int, int, int]](), dict[float, int]()

    def progress(*counts: int) -> None:
        seen.append(counts)
        for trial in others:
            if store.has(trial):
                level = trial.params["level"]
                begun.setdefault(level, _starts(log)[level])

    trials = [deadly, *others[:3], huge, bad, *others[3:]]
    report = run(trials, store, cluster=cluster.address, progress=progress, notice=told.append)
    assert (report.done, report.skipped, report.failed) == (6, 0, 3)
    assert _reason(store, bad).startswith("ArithmeticError: level 2 is too much")
    for trial in (deadly, huge):
        assert _reason(store, trial).startswith("its Dask worker died each time (a crash, or mem")
    assert seen[-1] == (6, 3, 9)
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    # None whose result was here has run again.
    assert begun == {level: _starts(log)[level] for level in range(3, 9)}
    # As often as Dask tries, less the deaths that it met while it waited, and once more, alone.
    assert 2 <= _starts(log)[0] <= ALLOWED_FAILURES + 2
    assert told[0].startswith(f"cluster {cluster.address}: 2 workers; http")


def test_two_clients_of_one_scheduler_compute_what_both_want_once(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    log, count = tmp_path / "log", 6
    names = ("one", "two")
    clients = [start(tmp_path, cluster.address, count, name) for name in names]
    for process in clients:  # Both have asked for all of it, since none can pass the gate.
        _until(process, lambda: len(noted(log, "start")) == 2)
    with distributed.Client(cluster.address, set_as_default=False) as watching:

        def wanted() -> int:
            return watching.run_on_scheduler(
                lambda dask_scheduler: min(
                    [len(task.who_wants) for task in dask_scheduler.tasks.values()], default=0
                )
            )

        until(lambda: wanted() == 2)
    open_gate(tmp_path, count)
    for process in clients:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert _starts(log) == Counter(range(count))
    for name in names:
        store = Store(tmp_path / name)
        assert store.missing(client.experiment(tmp_path, count).trials("paper")) == []


USERS_OWN = """
import functools
import threading
from dataclasses import dataclass
from extremal.experiments import Outcome

SCALE = %s
LOCK = threading.Lock()
assert __file__.endswith("users_own.py")

@dataclass
class Found:
    value: float

@functools.lru_cache
def scaled(x):
    return Found(SCALE * x)

def plain(params, generator, power=1):
    with LOCK:
        return Outcome({"value": scaled(1.0).value ** power, "kept": scaled.cache_info().currsize})

squared = functools.partial(plain, power=2)
"""


def test_a_users_function_is_the_one_that_the_client_has(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers have no such file, and after the first run they have an older one in memory."""
    monkeypatch.syspath_prepend(tmp_path)
    store = Store(tmp_path / "runs")
    for version, scale in ((1, 1.0), (2, 22.0)):
        (tmp_path / "users_own.py").write_text(USERS_OWN % scale)
        sys.modules.pop("users_own", None)
        trials = [Trial(f"users_own:{name}", {}, 0, version) for name in ("plain", "squared")]
        run(trials, store, cluster=cluster.address)
        values = [stored.numbers.get("value") for stored in store.read_all(trials)]
        assert values == [scale, scale**2], [stored.reason for stored in store.read_all(trials)]
    del sys.modules["users_own"]


def test_a_function_whose_helpers_workers_lack_ends_the_run_in_one_line(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_helper.py").write_text("")
    (tmp_path / "users_needy.py").write_text("import users_helper\ndef f(p, g): pass\n")
    trial = Trial("users_needy:f", {}, 0)
    store = Store(tmp_path / "runs")
    assert run([trial], store, cluster=cluster.address).failed == 1
    assert _reason(store, trial).startswith("ModuleNotFoundError: No module named 'users_helper'")


def test_a_function_that_nobody_has_is_its_trials_failure(cluster: Cluster, tmp_path: Path) -> None:
    store, lost = Store(tmp_path / "runs"), Trial("no.such.module:study", {}, 0)
    assert run([lost], store, cluster=cluster.address).failed == 1
    assert _reason(store, lost).startswith("ModuleNotFoundError: No module named 'no'")


def test_data_that_cannot_be_had_end_the_run(cluster: Cluster, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    missing = toy.trial(1, mode="data", data=str(tmp_path / "toys"))
    with pytest.raises(DataError, match=r"^cannot load toys: EXTREMAL_DATA is not set"):
        run([missing], store, cluster=cluster.address)
    assert store.read(missing) is None


@pytest.mark.parametrize("whom", ["the client", "its group"])
def test_an_interrupt_is_quiet_and_keeps_what_is_finished(
    cluster: Cluster, start: Start, tmp_path: Path, whom: str
) -> None:
    store, log = Store(tmp_path / "runs"), tmp_path / "log"
    trials = client.experiment(tmp_path, COUNT).trials("paper")
    open_gate(tmp_path, 3)
    process = start(tmp_path, cluster.address)
    _until(process, lambda: sum(map(store.has, trials)) == 3 and len(noted(log, "start")) == 5)
    (os.kill if whom == "the client" else os.killpg)(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert group(process.pid) == []
    assert [trial.params["level"] for trial in trials if store.has(trial)] == [0, 1, 2]
    open_gate(tmp_path, COUNT)  # The two that workers are in run to their end.
    until(lambda: len(noted(log, "end")) == 5)
    assert len(noted(log, "start")) == 5  # No other one was begun.


def test_a_scheduler_that_restarts_is_waited_for(own: Cluster, tmp_path: Path) -> None:
    own.start_worker()
    port, told, log = int(own.address.rsplit(":", 1)[1]), list[str](), tmp_path / "log"
    trials = client.experiment(tmp_path, 4).trials("paper")
    open_gate(tmp_path, 2)

    def restart(line: str) -> None:
        told.append(line)
        if line.startswith("lost the scheduler"):
            own.start_scheduler(port)
            own.start_worker()
            open_gate(tmp_path, 4)

    def progress(done: int, failed: int, total: int) -> None:
        if done == 2 and own.scheduler.poll() is None:
            until(lambda: len(noted(log, "start")) == 3)
            own.scheduler.kill()

    store = Store(tmp_path / "runs")
    report = run(trials, store, cluster=own.address, progress=progress, notice=restart)
    assert (report.done, report.failed) == (4, 0)
    assert any(line.startswith("lost the scheduler at tcp://") for line in told)
    starts = _starts(log)
    assert (starts[0], starts[1]) == (1, 1)


def test_a_scheduler_that_is_gone_for_good_ends_the_run_in_one_line(
    own: Cluster, forks: ForkServer, tmp_path: Path
) -> None:
    own.start_worker()
    open_gate(tmp_path, 1)
    words = (str(tmp_path), own.address, str(own.scheduler.pid))
    out, errors = forks.start(
        f"{client.__name__}:run_until_the_scheduler_dies", *words
    ).communicate()
    assert errors == ""
    first, second, *rest, last = out.splitlines()
    assert first.startswith("cluster tcp://")
    assert [second, *rest][-1].startswith("lost the scheduler at tcp://")
    assert last.startswith("ClusterError no Dask scheduler answers at tcp://")
    trials = client.experiment(tmp_path, 3).trials("paper")
    assert Store(tmp_path / "runs").missing(trials) == trials[1:]


def test_a_worker_that_comes_late_with_another_source_and_version_ends_the_run(
    own: Cluster, tmp_path: Path
) -> None:
    """When the run begins nobody is there who could differ; the first trial finds it out."""
    other, log, told = tmp_path / "other", tmp_path / "trials", list[str]()
    package = Path(extremal.__file__).parent
    shutil.copytree(package, other / "extremal", ignore=shutil.ignore_patterns("__pycache__"))
    with open(other / "extremal/_version.py", "a") as source:
        source.write("# edited\n")
    info = other / "numpy-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")

    def notice(line: str) -> None:
        told.append(line)
        if line == "waiting for workers":
            own.start_other_worker(other)

    def start() -> None:
        store = Store(tmp_path / "runs")
        run([toy.trial(0, log=str(log))], store, cluster=own.address, notice=notice)

    rule = (
        r"^worker tcp://\S+ differs from this client: extremal source \w+ here, source \w+ there; "
        r"numpy \S+ here, 0\.1 there; install the same on both, and run again$"
    )
    with pytest.raises(ClusterError, match=rule):
        start()
    with pytest.raises(ClusterError, match=rule):  # Now it is found before the first trial.
        start()
    assert told.count("waiting for workers") == 1
    assert not log.exists()


def test_a_scheduler_of_another_version_is_named(tmp_path: Path) -> None:
    info = tmp_path / "other" / "cloudpickle-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudpickle\nVersion: 0.1\n")
    file = tmp_path / "scheduler.json"
    options = scheduler_options(0, file)
    made = start_other("dask_scheduler", info.parent, tmp_path / "scheduler.log", *options)
    try:
        until(lambda: file.is_file() and bool(file.read_text()))
        address = json.loads(file.read_text())["address"]
        rule = r"^the scheduler differs from this client: cloudpickle \S+ here, 0\.1 there; install"
        with pytest.raises(ClusterError, match=rule):
            run([toy.trial(0)], Store(tmp_path / "runs"), cluster=address)
    finally:
        stop_other(made)


def test_a_worker_without_the_package_is_named(own: Cluster, tmp_path: Path) -> None:
    empty = tmp_path / "empty" / "extremal"
    empty.mkdir(parents=True)
    (empty / "__init__.py").write_text("raise ImportError('no such package here')\n")
    log = own.start_other_worker(empty.parent)
    until(lambda: b"Registered to" in log.read_bytes())
    rule = r"^worker tcp://\S+ differs from this client: .*extremal source \w+ here, none \("
    with pytest.raises(ClusterError, match=rule) as caught:
        run([toy.trial(0)], Store(tmp_path / "runs"), cluster=own.address)
    assert "\n" not in str(caught.value)


def _threads(**options: int) -> Any:
    """A scheduler and workers that are threads of this process, which begin at once."""
    fixed = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    return distributed.LocalCluster(**fixed, **options, dashboard_address=":0")


def test_workers_that_come_when_there_is_work_and_go_when_there_is_none(tmp_path: Path) -> None:
    """What dask-jobqueue's and dask-kubernetes' `adapt` do, without their machines."""
    with _threads(n_workers=0, threads_per_worker=1) as adaptive:
        adaptive.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
        trials = [toy.trial(level, sleep=0.1) for level in range(8)]
        report = run(trials, Store(tmp_path), cluster=adaptive.scheduler_address)
        assert (report.done, report.failed) == (8, 0)
        until(lambda: not adaptive.scheduler.workers)


def test_workers_of_many_threads_compute_one_trial_at_a_time(tmp_path: Path) -> None:
    log, told = tmp_path / "log", list[str]()
    trials = [toy.trial(level, sleep=0.1, log=str(log)) for level in range(6)]
    with _threads(n_workers=1, threads_per_worker=4) as threads:
        address = threads.scheduler_address
        run(trials, Store(tmp_path / "runs"), cluster=address, notice=told.append)
    words = [row.split()[0] for row in log.read_text().splitlines()]
    assert words == ["start", "end"] * 6
    assert "--nthreads 1" in told[-1]


@pytest.mark.parametrize("address", ["host:8786", "tcp://", 8786])
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match=r"^cluster must be an address such as tcp://host:8786"):
        run([toy.trial(0)], Store(tmp_path), cluster=address)


def test_tls_without_its_settings_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^cluster must be tls:// only with Dask's settings"):
        run([toy.trial(0)], Store(tmp_path / "runs"), cluster="tls://127.0.0.1:9")
    assert not (tmp_path / "runs").exists()


def test_a_scheduler_that_nobody_runs_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extremal.experiments.running.dask_cluster.CONNECT_SECONDS", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        run([toy.trial(0)], Store(tmp_path), cluster="tcp://127.0.0.1:9")
