"""What a Dask worker does with the processes that compute its trials, without any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("distributed")
from extremal.experiments import remote, versions  # noqa: E402 - only where Dask is

from . import toy  # noqa: E402


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
