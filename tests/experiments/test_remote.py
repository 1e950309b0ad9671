"""What a Dask worker does with the processes that compute its trials, without any."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed")
from extremal.experiments import Store, remote, versions
from extremal.experiments.worker import compute

from . import toy


class Process:
    """In place of a worker process."""

    def __init__(self, alive: bool = True) -> None:
        self.alive, self.stopped, self.trial = alive, False, toy.trial(0)
        self.process = SimpleNamespace(is_alive=lambda: self.alive)

    def stop(self, *, at_once: bool) -> str:
        self.stopped = True
        return "SIGKILL"


@pytest.fixture(autouse=True)
def nothing_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process waits before a test, no thread looks after them, and new ones are no processes."""
    monkeypatch.setattr(remote, "_idle", {})
    monkeypatch.setattr(remote, "_janitors", [None])
    monkeypatch.setattr(remote, "_start", Process)


def _give_back(worker: Any, token: str) -> None:
    remote._give_back(worker, token)


def test_a_run_gets_its_own_processes_again_and_those_of_others_end() -> None:
    mine, dead, other = Process(), Process(alive=False), Process()
    more = Process()
    for worker, token in ((mine, "a"), (dead, "a"), (other, "b"), (more, "a")):
        _give_back(worker, token)
    found: list[Any] = [remote._take("a"), remote._take("a")]
    assert {id(worker) for worker in found} == {id(mine), id(more)}
    assert [worker.stopped for worker in (mine, dead, other, more)] == [False, True, True, False]
    assert remote._take("a") not in (mine, dead, other, more)


def test_the_digest_of_this_package_is_that_of_its_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has run for long must not tell what was written to its disk since."""
    before = versions.describe([])["extremal"]
    monkeypatch.setattr(versions, "_digest", lambda paths: "source of today")
    assert versions.describe([])["extremal"] == before
    assert versions.describe([toy.STUDY])[toy.__name__] == "source of today"


def _asked(store: Store) -> Any:
    return remote.compute_on_cluster(pickle.dumps((toy.trial(0), str(store.root), "token", "name")))


def test_a_worker_that_cannot_write_to_the_store_sends_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, store = compute(toy.trial(0)), Store(tmp_path)
    monkeypatch.setattr(remote, "_attempt", lambda trial, token, key: found)
    (tmp_path / "token").touch()
    (tmp_path / "trials").write_text("a file where a folder should be, as a disk that is full")
    assert _asked(store) == found
    (tmp_path / "trials").unlink()
    assert _asked(store) == found
    assert store.packed(toy.trial(0).key) == found


def test_how_a_process_died_is_for_the_client_to_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []
    monkeypatch.setattr(remote, "_attempt", lambda *asked: attempts.append(asked) or "SIGKILL")
    (tmp_path / "token").touch()
    assert _asked(Store(tmp_path)) == "SIGKILL"
    assert len(attempts) == 1
    assert Store(tmp_path).read(toy.trial(0)) is None
