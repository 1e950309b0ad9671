"""Two clients with one folder: what each may do while the other is at work, in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from extremal.experiments.sealed import pack_failure

from extremal.experiments import Outcome, Store, Trial, cluster, worker

TRIAL = Trial("m:f", {"a": 1}, 0)


def test_the_file_of_a_long_run_is_not_cleaned_away(tmp_path: Path) -> None:
    """By it workers know that they see the client's folder; a killed client's goes at last."""
    store = Store(tmp_path)
    with cluster._token(store) as token:
        for days, there in ((2, True), (40, False)):
            then = time.time() - days * 86400.0
            os.utime(tmp_path / token, (then, then))
            Store(tmp_path).prepare()
            assert (tmp_path / token).exists() is there
    assert list(tmp_path.glob(".cluster*")) == []


def test_a_second_client_begins_elsewhere(tmp_path: Path) -> None:
    trials = [Trial("m:f", {"a": k}, 0) for k in range(1000)]
    store = Store(tmp_path)
    with cluster._token(store) as first:
        assert cluster._turned(trials, store, first) == trials
        with cluster._token(store) as second:
            turned = cluster._turned(trials, store, second)
            assert turned == cluster._turned(trials, store, second)
            start = trials.index(turned[0])
            assert turned == trials[start:] + trials[:start]
            starts = {cluster._turned(trials, store, name)[0].key for name in "abcde"}
            assert len(starts) > 1


def test_what_another_client_has_finished_is_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "compute", lambda trial: pytest.fail("computed"))
    Store(tmp_path).write(TRIAL, Outcome({"value": 1}), 0.0)
    assert worker.perform(TRIAL, Store(tmp_path))


def _after(call: Callable[..., Any], event: Callable[[], None]) -> Callable[..., Any]:
    """The same call, after whose first answer something happens."""
    happened: list[bool] = []

    def called(*arguments: Any, **named: Any) -> Any:
        found = call(*arguments, **named)
        if not happened:
            happened.append(True)
            event()
        return found

    return called


@pytest.mark.parametrize("failed_before", [False, True])
@pytest.mark.parametrize("links", [True, False])
def test_a_failure_never_replaces_what_another_client_finishes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed_before: bool, links: bool
) -> None:
    ours, theirs = Store(tmp_path), Store(tmp_path)
    if failed_before:
        ours.fail(TRIAL, "first", 0.0)
    if not links:
        monkeypatch.setattr(os, "link", _refuse)

    def finish() -> None:
        theirs.write(TRIAL, Outcome({"value": 1}), 0.0)

    monkeypatch.setattr(ours, "record", _after(ours.record, finish))
    ours.fail(TRIAL, "its worker died", 0.0)
    assert Store(tmp_path).has(TRIAL)
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".json"]


@pytest.mark.parametrize("links", [True, False])
def test_a_later_failure_replaces_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _refuse)
    store = Store(tmp_path)
    for reason in ("first", "second"):
        store.fail(TRIAL, reason, 0.0)
    assert store.packed(TRIAL.key) == pack_failure(TRIAL, "second", 0.0)


def _refuse(source: Path, target: Path) -> None:
    raise PermissionError(1, "a file system without links")
