"""The index of a store: faster, and never believed where a file has changed; and packs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import torch

from extremal.experiments import Outcome, Store, Trial, bundle, index, maintain
from extremal.experiments import store as store_module

COUNT = 3000


@pytest.fixture(autouse=True)
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are taken for old at once, so that no test waits for them to become so."""
    monkeypatch.setattr(index, "_YOUNG", -(10**18))
    monkeypatch.setattr(index, "_FEW", 0)


def _trials(count: int, arrays: bool = False) -> list[Trial]:
    return [Trial("m:f", {"a": k, "arrays": arrays}, 0) for k in range(count)]


def _fill(store: Store, trials: list[Trial]) -> None:
    for trial in trials:
        arrays = {"x": torch.full((2,), float(trial.params["a"]))} if trial.params["arrays"] else {}
        store.write(trial, Outcome({"value": 2.0 * trial.params["a"]}, arrays), 0.5)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the trials' files that are read."""
    seen: list[str] = []
    read = store_module.read_whole

    def watched(path: Path) -> bytes | None:
        seen.append(path.name)
        return read(path)

    monkeypatch.setattr(store_module, "read_whole", watched)
    return seen


@pytest.mark.parametrize("arrays", [False, True])
def test_what_was_read_once_is_not_read_again(
    tmp_path: Path, reads: list[str], arrays: bool
) -> None:
    trials = _trials(20, arrays)
    _fill(Store(tmp_path), trials)
    first = Store(tmp_path).read_all(trials)
    assert len([name for name in reads if name.endswith(".json")]) >= 20
    reads.clear()
    again = Store(tmp_path).read_all(trials)
    assert reads == []
    assert [(found.numbers, found.seconds) for found in again] == [
        (found.numbers, found.seconds) for found in first
    ]
    assert Store(tmp_path).without(trials) == []
    assert reads == []
    if arrays:
        assert again[7].arrays["x"].tolist() == [7.0, 7.0]


def test_a_young_file_is_read_again(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_YOUNG", 10**12)
    trials = _trials(20)
    _fill(Store(tmp_path), trials)
    for _ in range(2):
        reads.clear()
        Store(tmp_path).read_all(trials)
        assert len(reads) == 20
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_a_file_that_changes_under_the_index_is_noticed(
    tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    trials = _trials(6, arrays=True)
    store = Store(tmp_path)
    _fill(store, trials)
    store.read_all(trials)
    path = store.path(trials[2]).with_suffix(ending)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)  # of the same length
    with caplog.at_level(logging.WARNING):
        assert Store(tmp_path).without(trials) == [trials[2]]
    assert str(path) in caplog.text
    assert path.with_name(path.name + ".corrupt").exists()


def test_a_file_that_is_gone_is_gone(tmp_path: Path) -> None:
    trials = _trials(6)
    store = Store(tmp_path)
    _fill(store, trials)
    store.read_all(trials)
    store.path(trials[0]).unlink()
    assert store.without(trials) == Store(tmp_path).without(trials) == [trials[0]]


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    trials = _trials(6)
    store = Store(tmp_path)
    _fill(store, trials)
    store.read_all(trials)
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    assert [found.numbers["value"] for found in Store(tmp_path).read_all(trials)] == [
        2.0 * k for k in range(6)
    ]
    for path in (tmp_path / "index").iterdir():
        assert bundle.load(path.read_bytes())


def test_small_stores_have_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_FEW", 8)
    trials = _trials(20)
    _fill(Store(tmp_path), trials)
    Store(tmp_path).read_all(trials)
    assert not (tmp_path / "index").exists()


def test_any_flipped_byte_of_a_bundle_is_noticed_and_the_rest_is_saved(tmp_path: Path) -> None:
    trials = _trials(3)
    store = Store(tmp_path)
    _fill(store, trials)
    entries = [
        bundle.Entry(trial.key, store.path(trial).read_bytes(), (1, 2, 3), None) for trial in trials
    ]
    data = bundle.dump(entries)
    assert bundle.load(data) == {entry.key: entry for entry in entries}
    assert bundle.dump(reversed(entries)) == data
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(ValueError, match="checksum"):
            bundle.load(flipped)
        saved = bundle.salvage(flipped)
        assert len(saved) >= 2
        assert all(saved[key].text == store.file(key).read_bytes() for key in saved)


def test_compact_keeps_every_result_in_few_files(tmp_path: Path) -> None:
    trials, store = _trials(24, arrays=True), Store(tmp_path)
    _fill(store, trials)
    failed = Trial("m:f", {"a": -1}, 0)
    store.fail(failed, "why", 0.0)
    open_before = Store(tmp_path)
    assert open_before.without(trials) == []
    before = [(found.numbers, found.seconds) for found in store.read_all(trials)]
    packed = [store.packed(trial.key) for trial in trials]
    done = maintain.compact(store)
    starts = {trial.key[:2] for trial in trials}
    assert (done.before, done.after) == (25, len(starts) + 1)
    assert {path.suffix for path in (tmp_path / "packs").iterdir()} == {".pack"}
    for seen in (store, Store(tmp_path), open_before):
        assert seen.without(trials) == []
        assert [(found.numbers, found.seconds) for found in seen.read_all(trials)] == before
        assert [seen.packed(trial.key) for trial in trials] == packed
        assert seen.read(failed) is not None
    assert store.read_all(trials)[5].arrays["x"].tolist() == [5.0, 5.0]
    assert maintain.compact(store).after == done.after
    more = Trial("m:f", {"a": 1000}, 0)
    store.write(more, Outcome({"value": 1}), 0.0)
    store.write(failed, Outcome({"value": 2}), 0.0)
    assert Store(tmp_path).without([*trials, more, failed]) == []
    maintain.compact(Store(tmp_path))
    assert list((tmp_path / "trials").glob("*/*.json")) == []
    assert Store(tmp_path).without([*trials, more, failed]) == []
    assert len(list((tmp_path / "packs").iterdir())) == len(starts | {more.key[:2], failed.key[:2]})


def test_a_damaged_pack_is_named_and_loses_one_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trials, store = _trials(COUNT // 3), Store(tmp_path)
    start = trials[0].key[:2]
    trials = [trial for trial in trials if trial.key.startswith(start)]
    assert len(trials) > 2
    _fill(store, trials)
    maintain.compact(store)
    (pack,) = (tmp_path / "packs").iterdir()
    data = pack.read_bytes()
    at = data.index(b'"numbers"')
    pack.write_bytes(data[:at] + b"?" + data[at + 1 :])
    with caplog.at_level(logging.WARNING):
        (lost,) = Store(tmp_path).without(trials)
    assert str(pack) in caplog.text
    assert lost.key in caplog.text
    assert not pack.exists()
    assert pack.with_name(pack.name + ".corrupt").exists()
    again = Store(tmp_path)
    assert again.without(trials) == [lost]
    again.write(lost, Outcome({"value": 0.0}), 0.0)
    assert Store(tmp_path).without(trials) == []


def test_arrays_of_a_packed_trial_that_are_damaged_are_noticed(tmp_path: Path) -> None:
    trials, store = _trials(3, arrays=True), Store(tmp_path)
    _fill(store, trials)
    maintain.compact(store)
    path = store.path(trials[1]).with_suffix(".safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert Store(tmp_path).without(trials) == [trials[1]]
    _fill(Store(tmp_path), [trials[1]])
    assert Store(tmp_path).without(trials) == []
    assert path.read_bytes() == data


def test_a_store_that_is_read_only_works_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = _trials(6)
    _fill(Store(tmp_path), trials)

    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(os, "replace", refuse)
    assert Store(tmp_path).without(trials) == []
