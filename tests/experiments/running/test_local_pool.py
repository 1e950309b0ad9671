"""Clients that are killed or interrupted, and two that share a store."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from extremal.experiments import Experiment, Outcome, Store, run, summarise, write_summary
from extremal.experiments.running.local_pool import _interrupts_later
from extremal.report import save_figure
from tests.experiments.helpers_toy import noted
from tests.experiments.running import helpers_client as client
from tests.experiments.running.helpers_client import experiment, open_gate
from tests.helpers_fork import ForkedProcess, ForkServer, alive, group, run_script, until

COUNT = 9
Start = Callable[[Path, int], ForkedProcess]


@pytest.fixture
def start(forks: ForkServer) -> Iterator[Start]:
    """Start a client; whatever is left of it and its workers ends with the test."""
    processes: list[ForkedProcess] = []

    def begin(place: Path, jobs: int) -> ForkedProcess:
        words = (str(place), str(jobs), str(COUNT))
        processes.append(forks.start(f"{client.__name__}:run_here", *words))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


def _finished(store: Store, record: Experiment) -> list[int]:
    return [trial.params["level"] for trial in record.trials("paper") if store.has(trial)]


def _killed(start: Start, place: Path, passing: int, jobs: int) -> None:
    """Kill a client whose jobs are in the middle of trials, after the first `passing`."""
    store, record = Store(place / "runs"), experiment(place, COUNT)
    before = len(noted(place / "log", "start"))
    open_gate(place, passing)
    process = start(place, jobs)
    wanted = set(range(passing, passing + jobs))
    until(lambda: len(_finished(store, record)) == passing)
    until(lambda: {level for level, _ in noted(place / "log", "start")[before:]} >= wanted)
    workers = {pid for _, pid in noted(place / "log", "start")[before:]}
    assert len(workers) == jobs
    assert all(alive(worker) for worker in workers)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not any(alive(worker) for worker in workers))
    until(lambda: group(process.pid) == [])
    assert _finished(store, record) == list(range(passing))


def _next(passing: int) -> set[float]:
    return {passing, passing + 1}


def test_killed_twice_and_run_again_loses_nothing_and_does_nothing_twice(
    start: Start, tmp_path: Path
) -> None:
    store, record = Store(tmp_path / "runs"), experiment(tmp_path, COUNT)
    trials = record.trials("paper")
    for passing, jobs in ((3, 2), (6, 1)):
        _killed(start, tmp_path, passing, jobs)
    open_gate(tmp_path, COUNT)
    report = run(trials, store, jobs=1)
    assert (report.done, report.skipped, report.failed) == (3, 6, 0)
    assert sorted(level for level, _ in noted(tmp_path / "log", "end")) == list(range(COUNT))

    other = Store(tmp_path / "elsewhere")
    run(trials, other, jobs=1)
    written, pictures = [], []
    for place in (store, other):
        summary = summarise(record, "paper", place)
        assert summary.pop("seconds") > 0
        write_summary(place.root / "summary.json", summary)
        written.append((place.root / "summary.json").read_bytes())
        pictures.append(save_figure(summary, place.root)[0].read_bytes())
    assert written[0] == written[1]
    assert pictures[0] == pictures[1]
    assert json.loads(written[0])["trials"] == {"done": COUNT, "failed": 0, "total": COUNT}


@pytest.mark.parametrize("whom", ["the client", "its group"])
def test_an_interrupt_ends_the_processes_at_once_and_quietly(
    start: Start, tmp_path: Path, whom: str
) -> None:
    store, record = Store(tmp_path / "runs"), experiment(tmp_path, COUNT)
    open_gate(tmp_path, 2)
    process = start(tmp_path, 2)
    until(lambda: {level for level, _ in noted(tmp_path / "log", "start")} >= _next(2))
    (os.kill if whom == "the client" else os.killpg)(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    until(lambda: group(process.pid) == [])
    assert _finished(store, record) == [0, 1]


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from extremal.experiments import Store, run
from tests.experiments import helpers_toy as toy
print("begun", flush=True)
run([toy.trial(0)], Store({store!r}), jobs=2)
"""


def test_a_script_without_a_main_guard_is_told_so(forks: ForkServer, tmp_path: Path) -> None:
    root, store = str(Path(__file__).parents[3]), Store(tmp_path / "runs")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=root, store=str(store.root)))
    ran = forks.start(f"{run_script.__module__}:run_script", str(script))
    out, errors = ran.communicate()
    assert ran.returncode == 1
    assert out.splitlines()[0] == "begun"
    assert errors.count("Traceback") == 1  # the client's own, and none of its processes'
    last = errors.splitlines()[-1]
    assert last.startswith("ValueError: processes for trials die as they start: ")
    assert last.endswith('or a script lacks `if __name__ == "__main__":`, which several jobs need')
    assert list(store.root.rglob("*.json")) == []  # No trial is blamed for it.


def test_an_interrupt_while_workers_start_is_quiet_too(start: Start, tmp_path: Path) -> None:
    record = experiment(tmp_path, COUNT)
    store = Store(tmp_path / "runs")
    for trial in record.trials("paper")[1:]:  # One is left, for which one worker is started.
        store.write(trial, Outcome({}), 0.0)
    process = start(tmp_path, 2)
    until(lambda: len(group(process.pid)) >= 3)  # The client, a worker and a helper of Python's.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    until(lambda: group(process.pid) == [])


def test_an_interrupt_that_another_thread_takes_waits_for_the_start_too() -> None:
    go, reached = threading.Event(), threading.Event()

    def take() -> None:
        go.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    # Started before the blocking, which it would inherit.
    thread = threading.Thread(target=take)
    thread.start()

    def begin() -> None:
        with _interrupts_later():
            go.set()
            thread.join()
            reached.set()

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert reached.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_clients_can_share_a_store(start: Start, tmp_path: Path) -> None:
    store, record = Store(tmp_path / "runs"), experiment(tmp_path, COUNT)
    clients = [start(tmp_path, 1) for _ in range(2)]
    # Both wait in the first trial before either may go on, so that all are written twice.
    until(lambda: len(noted(tmp_path / "log", "start")) == 2)
    open_gate(tmp_path, COUNT)
    for process in clients:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert _finished(store, record) == list(range(COUNT))
    endings = {path.suffix for path in store.root.rglob("*") if path.is_file()}
    assert endings == {".json", ".safetensors"}
