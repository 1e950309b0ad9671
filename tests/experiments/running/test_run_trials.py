from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from extremal.data import DataError
from extremal.experiments import FileError, Outcome, Store, Trial, run
from extremal.experiments.running import local_pool
from tests.experiments import helpers_toy as toy
from tests.helpers_fork import until


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked from one that has imported torch.

    The others here, and those of test_local_pool.py, start as they do for users.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([toy.__name__, local_pool.__name__])
    monkeypatch.setattr(local_pool, "_SPAWN", context)


def _reason(store: Store, trial: Trial) -> str:
    stored = store.read(trial)
    assert stored is not None
    assert stored.status == "failed"
    return stored.reason


def test_finished_trials_are_skipped_and_equal_ones_run_once(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    trials = [toy.trial(level, log=str(log)) for level in (0, 1, 2)]
    first = run([trials[0], trials[0]], store, jobs=1)
    assert (first.done, first.skipped, first.failed) == (1, 0, 0)
    second = run(trials, store, jobs=1)
    assert (second.done, second.skipped, second.failed) == (2, 1, 0)
    assert [level for level, _ in toy.noted(log, "start")] == [0, 1, 2]


def test_workers_and_this_process_give_the_same_bytes(store: Store, tmp_path: Path) -> None:
    here, log = Store(tmp_path / "here"), tmp_path / "log"
    trials = [toy.trial(level, seed, log=str(log)) for level in (0.1, 0.2) for seed in (0, 1)]
    run(trials, here, jobs=1)
    assert {pid for _, pid in toy.noted(log, "end")} == {os.getpid()}
    log.unlink()
    seen: list[tuple[int, int, int]] = []
    report = run(trials, store, jobs=2, progress=lambda *counts: seen.append(counts))
    assert (report.done, report.skipped, report.failed) == (4, 0, 0)
    assert seen == [(done, 0, 4) for done in range(5)]
    assert os.getpid() not in {pid for _, pid in toy.noted(log, "end")}
    for trial in trials:
        paths = store.path(trial), here.path(trial)
        ours, theirs = (path.read_bytes().splitlines() for path in paths)
        fixed = [not row.startswith((b'"seconds"', b'"checksum"')) for row in ours]
        assert sum(fixed) == len(ours) - 2
        kept = list(zip(ours, theirs, fixed, strict=True))
        assert [a for a, _, keep in kept if keep] == [b for _, b, keep in kept if keep]
        ours, theirs = (path.with_suffix(".safetensors").read_bytes() for path in paths)
        assert ours == theirs
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("quick_starts")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_is_kept_with_its_reason_and_tried_again(
    store: Store, tmp_path: Path, jobs: int
) -> None:
    bad = [
        toy.trial(1, mode="raise"),
        toy.trial(2, mode="exit"),
        Trial("no.such.module:study", {}, 0),
        Trial(f"{toy.__name__}:no_outcome", {}, 0),
    ]
    good = toy.trial(3)
    report = run([*bad, good], store, jobs=jobs)
    assert (report.done, report.skipped, report.failed) == (1, 0, 4)
    assert store.has(good)
    reasons = [_reason(store, trial) for trial in bad]
    first, *lines = reasons[0].splitlines()
    assert first == "ArithmeticError: level 1 is too much"
    assert 'raise ArithmeticError(f"level' in lines[-1] or "^" in lines[-1]
    assert "_misbehave" in reasons[0]
    assert reasons[1].startswith("SystemExit: 3")
    assert reasons[2].startswith("ModuleNotFoundError: No module named 'no'")
    assert reasons[3].startswith("ValueError: ")
    again = run([bad[0], good], store, jobs=1)
    assert (again.done, again.skipped, again.failed) == (0, 1, 1)


@pytest.mark.usefixtures("quick_starts")
def test_a_trial_that_kills_its_process_fails_alone(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    deadly = toy.trial(0, mode="kill", log=str(log))
    once = toy.trial(1, mode="kill once", marker=str(tmp_path / "marker"), log=str(log))
    others = [toy.trial(level, sleep=0.5, log=str(log)) for level in range(2, 4)]
    report = run([deadly, *others, once], store, jobs=2)
    assert (report.done, report.skipped, report.failed) == (3, 0, 1)
    assert _reason(store, deadly) == "its process died (a crash, or out of memory)"
    assert all(store.has(trial) for trial in [once, *others])
    starts = Counter(level for level, _ in toy.noted(log, "start"))
    assert starts == {0: 2, 1: 2, 2: 1, 3: 1}
    # The two that died ran again after all others, one by one.
    assert {level for level, _ in toy.noted(log, "start")[-2:]} == {0, 1}
    assert multiprocessing.active_children() == []


def test_progress_counts_what_was_done_before(store: Store) -> None:
    trials = [toy.trial(0), toy.trial(1, mode="raise"), toy.trial(2)]
    run(trials[:1], store, jobs=1)
    seen: list[tuple[int, int, int]] = []
    run(trials, store, jobs=1, progress=lambda *counts: seen.append(counts))
    assert seen == [(1, 0, 3), (1, 1, 3), (2, 1, 3)]


@pytest.mark.usefixtures("quick_starts")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_store_that_cannot_be_written_ends_the_run(store: Store, jobs: int) -> None:
    trials = [toy.trial(level) for level in range(3)]
    store.prepare()
    for trial in trials:
        store.path(trial).parent.write_text("a file where a folder should be")
    with pytest.raises(FileError, match=r"^cannot write .*(exists|directory)$"):
        run(trials, store, jobs=jobs)
    assert multiprocessing.active_children() == []


def test_a_disk_too_full_for_the_arrays_is_no_failure_of_the_trial(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def nearly_full(source: Path, target: Path) -> None:
        if target.suffix == ".safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", nearly_full)
    trial = toy.trial(0)
    with pytest.raises(FileError, match="No space left on device"):
        run([trial], store, jobs=1)
    assert store.read(trial) is None


@pytest.mark.usefixtures("quick_starts")
@pytest.mark.parametrize("jobs", [1, 2])
def test_data_that_cannot_be_had_end_the_run_and_are_no_failure(
    store: Store, tmp_path: Path, jobs: int
) -> None:
    log, data, gate = str(tmp_path / "log"), tmp_path / "toys", tmp_path / "gate"
    gate.mkdir()
    trials = [
        toy.trial(0, log=log),
        toy.trial(1, log=log, gate=str(gate), mode="data", data=str(data)),
        toy.trial(2, log=log, gate=str(gate)),
        toy.trial(3, log=log),
    ]

    def open_gates(done: int, failed: int, total: int) -> None:
        """Let trial 1 miss its data once trial 0 is done; trial 2 waits for what never comes."""
        for level in [1] * bool(done) + [2] * bool(failed):
            (gate / str(level)).touch()

    with pytest.raises(DataError) as caught:
        run(trials, store, jobs=jobs, progress=open_gates)
    wanted = f"cannot load toys: EXTREMAL_DATA is not set; no {data} — 100 %"
    assert (type(caught.value), str(caught.value)) == (DataError, wanted)
    assert multiprocessing.active_children() == []
    assert {level for level, _ in toy.noted(tmp_path / "log", "start")} <= {0, 1, 2}
    assert [store.read(trial) is not None for trial in trials] == [True, False, False, False]
    assert store.has(trials[0])
    data.touch()
    (gate / "2").touch()
    again = run(trials, store, jobs=1)
    assert (again.done, again.skipped, again.failed) == (3, 1, 0)


@pytest.mark.usefixtures("quick_starts")
def test_what_is_finished_is_stored_before_an_error_ends_the_run(
    store: Store, tmp_path: Path
) -> None:
    """Two trials end while the client is busy with a third: one lacks its data, one is done."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    gate.mkdir()
    held = {"log": str(log), "gate": str(gate)}
    first = toy.trial(0, log=str(log))
    missing = toy.trial(1, **held, mode="data", data=str(tmp_path / "toys"))
    good = toy.trial(2, **held)

    def wait_for_both(done: int, failed: int, total: int) -> None:
        if done == 1:
            until(lambda: len(toy.noted(log, "start")) == 3)
            for level in (1, 2):
                (gate / str(level)).touch()
            until(lambda: len(toy.noted(log, "end")) == 2)
            time.sleep(0.5)  # Results have come by then.

    with pytest.raises(DataError):
        run([first, missing, good], store, jobs=3, progress=wait_for_both)
    assert [store.has(trial) for trial in (first, missing, good)] == [True, False, True]


def test_a_folder_that_cannot_be_made_is_found_before_any_work(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "file"
    file.write_text("")
    with pytest.raises(FileError, match="Not a directory"):
        run([toy.trial(0, log=str(log))], Store(file / "runs"), jobs=1)
    assert not log.exists()


def test_an_interrupt_here_passes_and_keeps_what_is_finished(store: Store) -> None:
    trials = [toy.trial(0), toy.trial(1, mode="interrupt"), toy.trial(2)]
    with pytest.raises(KeyboardInterrupt):
        run(trials, store, jobs=1)
    assert [store.has(trial) for trial in trials] == [True, False, False]
    assert store.read(trials[1]) is None


@pytest.mark.usefixtures("quick_starts")
def test_an_error_of_the_client_ends_its_workers(store: Store) -> None:
    def stop(done: int, failed: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    trials = [toy.trial(0), toy.trial(1, sleep=4.0)]
    with pytest.raises(KeyboardInterrupt):
        run(trials, store, jobs=2, progress=stop)
    assert multiprocessing.active_children() == []
    assert [store.has(trial) for trial in trials] == [True, False]


def test_damaged_results_are_computed_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    trials = [toy.trial(level) for level in range(3)]
    run(trials, store, jobs=1)
    broken, flipped = store.path(trials[0]), store.path(trials[1]).with_suffix(".safetensors")
    original = flipped.read_bytes()
    broken.write_bytes(broken.read_bytes()[:50])
    flipped.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    with caplog.at_level(logging.WARNING):
        report = run(trials, store, jobs=1)
    assert (report.done, report.skipped, report.failed) == (2, 1, 0)
    assert broken.name in caplog.text
    assert flipped.name in caplog.text
    assert flipped.read_bytes() == original


@pytest.mark.parametrize(("jobs", "threads"), [(0, 1), (2.0, 1), (1, 0), (1, "2")])
def test_bad_counts_are_refused(store: Store, jobs: int, threads: int) -> None:
    with pytest.raises(ValueError, match=r"^(jobs|threads) must be an integer"):
        run([], store, jobs=jobs, threads=threads)
    assert not store.root.exists()


@pytest.mark.usefixtures("quick_starts")
@pytest.mark.parametrize("jobs", [1, 2])
def test_each_trial_has_one_thread_unless_said(store: Store, jobs: int) -> None:
    trials = [Trial(f"{toy.__name__}:rounding", {}, seed) for seed in range(2)]
    for threads, trial in zip((1, 2), trials, strict=True):
        run([trial], store, jobs=jobs, threads=threads)
        stored = store.read(trial)
        assert stored is not None
        assert stored.numbers == {"threads": threads, "flushed": True}


def test_a_trial_that_another_client_finishes_meanwhile_is_not_computed(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    trials = [toy.trial(level, log=str(log)) for level in range(3)]

    def meanwhile(done: int, failed: int, total: int) -> None:
        if done == 1:
            store.write(trials[2], Outcome({"value": -1.0}), 0.0)

    report = run(trials, store, progress=meanwhile)
    assert (report.done, report.skipped, report.failed) == (2, 1, 0)
    assert [level for level, _ in toy.noted(log, "start")] == [0, 1]
