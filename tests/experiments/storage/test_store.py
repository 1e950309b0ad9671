"""The store: whole trials or none, found again after crashes and damage, never replaced."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import struct
from pathlib import Path

import pytest
import torch

from extremal._files import json_file
from extremal.experiments import FileError, Outcome, Store, Trial
from extremal.experiments.storage import maintenance
from extremal.experiments.storage.trial_file import TrialFile, encode

TRIAL = Trial("m:f", {"a": 0.1, "b": [1, 2]}, 7)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def _files(store: Store) -> list[str]:
    return sorted(path.name for path in store.root.rglob("*") if path.is_file())


def test_nothing_is_there_before_anything_is_written(store: Store) -> None:
    assert not store.has(TRIAL)
    assert store.read(TRIAL) is None
    assert not store.root.exists()


def test_a_store_stays_in_its_place_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("runs")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    store.write(TRIAL, Outcome({"x": 1}), 0.0)
    assert Store(tmp_path / "runs").has(TRIAL)


def test_a_trial_comes_back_as_it_was_written(store: Store) -> None:
    base = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    arrays = {
        "turned": base.T,
        "shared": base,
        "whole": torch.tensor([1, -2]),
        "empty": torch.zeros(0, 3),
        "odd": torch.tensor([math.nan, math.inf, 0.1], dtype=torch.float32),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    numbers = {"x": 0.1 + 0.2, "n": 3, "list": [1.5, None], "inner": {"t": True}, "s": "é"}
    store.write(TRIAL, Outcome(numbers, arrays), 1.25)
    stored = Store(store.root).read(TRIAL)
    assert stored is not None
    assert (stored.status, stored.numbers, stored.reason) == ("done", numbers, "")
    assert (stored.trial, stored.seconds) == (TRIAL, 1.25)
    found = store.load(TRIAL.key)
    assert found is not None
    assert set(found.record["versions"]) == {"extremal", "torch", "python"}
    assert set(stored.arrays) == set(stored.array_names) == set(arrays)
    for name, array in arrays.items():
        found = stored.arrays[name]
        assert found.dtype == array.dtype
        assert torch.equal(found.nan_to_num(7.0), array.detach().nan_to_num(7.0))


def test_the_file_is_named_by_the_key_and_strict_json(store: Store) -> None:
    store.write(TRIAL, Outcome({"x": math.inf}, {"a": torch.ones(1)}), 0.0)
    key = TRIAL.key
    path = store.root / "trials" / key[:2] / f"{key}.json"
    assert _files(store) == [f"{key}.json", f"{key}.safetensors"]
    record = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert record["params"] == TRIAL.params
    assert (record["study"], record["seed"], record["status"]) == ("m:f", 7, "done")


def test_nan_and_infinities_survive(store: Store) -> None:
    numbers = {"nan": math.nan, "list": [math.inf, [-math.inf, 1.0]], "in": {"x": -math.inf}}
    store.write(TRIAL, Outcome(numbers), 0.0)
    stored = store.read(TRIAL)
    assert stored is not None
    found = stored.numbers
    assert math.isnan(found["nan"])
    assert found["list"] == [math.inf, [-math.inf, 1.0]]
    assert found["in"] == {"x": -math.inf}


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome({"x": torch.ones(1)}), "numbers.x must be a JSON value"),
        (Outcome({"x": {1: 2.0}}), "numbers.x must have strings as keys, got 1"),
        (Outcome({"x": {"$float": 1}}), r"numbers must not use the key '\$float'"),
        (Outcome({}, {"a": [1.0]}), "arrays.a must be a dense tensor, got list"),
        (Outcome({}, {"a": torch.ones(1).to_sparse()}), "arrays.a must be a dense tensor"),
    ],
)
def test_what_would_not_come_back_is_refused(store: Store, outcome: Outcome, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store.write(TRIAL, outcome, 0.0)
    assert not store.has(TRIAL)


def test_a_failure_is_kept_but_not_finished_until_the_trial_is(store: Store) -> None:
    store.fail(TRIAL, "ValueError: no", 0.5)
    stored = store.read(TRIAL)
    assert stored is not None
    assert (stored.status, stored.reason, dict(stored.arrays)) == ("failed", "ValueError: no", {})
    assert not store.has(TRIAL)
    store.write(TRIAL, Outcome({"x": 1}), 0.0)
    assert store.has(TRIAL)


def test_what_is_finished_stays(store: Store) -> None:
    store.write(TRIAL, Outcome({"x": 1}, {"a": torch.ones(1)}), 0.0)
    store.fail(TRIAL, "late", 0.0)
    store.write(TRIAL, Outcome({"x": 2}, {"a": torch.zeros(1)}), 0.0)
    stored = store.read(TRIAL)
    assert stored is not None
    assert (stored.numbers, stored.arrays["a"].tolist()) == ({"x": 1}, [1.0])


def test_a_failure_does_not_replace_what_another_client_finishes_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fail(TRIAL, "an earlier one", 0.0)
    look, looked = store._is_done, list[str]()

    def finished_just_after(key: str) -> bool:
        looked.append(key)
        found = look(key)
        if len(looked) == 1:
            Store(store.root).write(TRIAL, Outcome({"x": 1}), 0.0)
        return found

    monkeypatch.setattr(store, "_is_done", finished_just_after)
    store.fail(TRIAL, "late", 0.0)
    assert len(looked) == 2
    assert Store(store.root).has(TRIAL)


def test_trials_are_read_and_missed_in_their_order(store: Store) -> None:
    trials = [Trial("m:f", {"a": k}, 0) for k in range(6)]
    for k in (4, 1, 3):
        store.write(trials[k], Outcome({"x": k}), 0.0)
    store.fail(trials[0], "why", 0.0)
    assert store.missing(trials) == [trials[0], trials[2], trials[5]]
    assert [found.trial for found in store.read_all(trials)] == [trials[k] for k in (0, 1, 3, 4)]
    assert store.all_keys() == sorted(trials[k].key for k in (0, 1, 3, 4))


def _by_hand(root: Path, study: str, numbers: str, arrays: bytes | None) -> str:
    """Write a trial's files as the documentation describes them; its key."""
    trial = f'"study":"{study}","version":1'
    identity = f'{{"params":{{"a":0.1,"b":[1,2]}},"seed":7,{trial}}}'
    key = hashlib.sha256(identity.encode()).hexdigest()
    held = "null"
    if arrays is not None:
        held = f'{{"names":["w"],"sha256":"{hashlib.sha256(arrays).hexdigest()}"}}'
    rows = [
        f'"study": "{study}"',
        '"version": 1',
        '"params": {"a":0.1,"b":[1,2]}',
        '"seed": 7',
        '"status": "done"',
        f'"numbers": {numbers}',
        '"reason": ""',
        f'"arrays": {held}',
        '"seconds": 1.5',
        '"versions": {"extremal":"0.0.1","torch":"2.0.0","python":"3.11.0"}',
    ]
    body = "{\n" + ",\n".join(rows)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    folder = root / "trials" / key[:2]
    folder.mkdir(parents=True)
    (folder / f"{key}.json").write_bytes(f'{body},\n"checksum": "{checksum}"\n}}\n'.encode())
    if arrays is not None:
        (folder / f"{key}.safetensors").write_bytes(arrays)
    return key


def test_a_folder_of_an_earlier_version_is_read(store: Store) -> None:
    head = b'{"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}'
    arrays = struct.pack("<Q", len(head)) + head + struct.pack("<2d", 0.5, -3.0)
    key = _by_hand(store.root, "m:f", '{"x":{"$float":"nan"},"y":[0.5,{"$float":"-inf"}]}', arrays)
    _by_hand(store.root, "m:g", '{"x":2}', None)
    (store.root / "index").mkdir()  # which earlier versions had
    (store.root / "index" / f"{key[:2]}.index").write_bytes(b"anything")
    assert key == TRIAL.key
    stored = store.read(TRIAL)
    assert stored is not None
    assert math.isnan(stored.numbers["x"])
    assert stored.numbers["y"] == [0.5, -math.inf]
    assert stored.arrays["w"].tolist() == [0.5, -3.0]
    assert (stored.status, stored.seconds) == ("done", 1.5)
    plain = store.read(Trial("m:g", TRIAL.params, 7))
    assert plain is not None
    assert (plain.numbers, dict(plain.arrays)) == ({"x": 2}, {})
    assert store.damaged == []


def test_any_flipped_byte_of_the_json_is_noticed(store: Store) -> None:
    numbers = {"x": 0.125, "list": [1e-07, math.nan]}
    store.write(TRIAL, Outcome(numbers), 0.5)
    path = store.path(TRIAL)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x01]) + good[at + 1 :])
        assert store.read(TRIAL) is None
    path.write_bytes(good)
    assert store.has(TRIAL)


def test_a_file_with_denormal_numbers_is_whole_where_torch_flushes_them(store: Store) -> None:
    torch.set_flush_denormal(False)
    try:
        store.write(TRIAL, Outcome({"x": math.ldexp(1.0, -1070)}), 0.0)
        torch.set_flush_denormal(True)
        assert store.has(TRIAL)
    finally:
        torch.set_flush_denormal(True)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_truncated_files_are_named_and_set_aside(
    store: Store, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = Outcome({"x": 1.0}, {"a": torch.ones(3)})
    path = store.path(TRIAL).with_suffix(ending)
    lengths = range(0, 400, 7)
    for length in lengths:
        store.write(TRIAL, outcome, 0.0)
        whole = path.read_bytes()
        path.write_bytes(whole[: min(length, len(whole) - 1)])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert not store.has(TRIAL)
        assert str(path) in caplog.text
        assert not path.exists()
        assert path.with_name(path.name + ".corrupt").exists()
    store.write(TRIAL, outcome, 0.0)
    assert store.has(TRIAL)


def test_any_flipped_byte_of_the_arrays_is_noticed(store: Store) -> None:
    outcome = Outcome({"x": 1.0}, {"a": torch.ones(3)})
    path = store.path(TRIAL).with_suffix(".safetensors")
    store.write(TRIAL, outcome, 0.0)
    for at in range(len(path.read_bytes())):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)
        assert store.read(TRIAL) is None
        store.write(TRIAL, outcome, 0.0)


def test_missing_arrays_and_files_of_other_trials_do_not_count(store: Store) -> None:
    store.write(TRIAL, Outcome({"x": 1.0}, {"a": torch.ones(3)}), 0.0)
    store.path(TRIAL).with_suffix(".safetensors").unlink()
    assert not store.has(TRIAL)
    other = Trial("m:f", {}, 0)
    store.write(other, Outcome({"x": 2.0}), 0.0)
    os.replace(store.path(other), store.path(TRIAL))
    assert not store.has(TRIAL)


def test_arrays_that_are_gone_when_they_are_asked_for_are_one_clear_line(store: Store) -> None:
    store.write(TRIAL, Outcome({"x": 1.0}, {"a": torch.ones(3)}), 0.0)
    stored = store.read(TRIAL)
    assert stored is not None
    store.path(TRIAL).with_suffix(".safetensors").unlink()
    with pytest.raises(FileError, match=r"^cannot read .*\.safetensors: it was there a m"):
        _ = stored.arrays


def test_a_store_that_is_read_only_is_read_and_keeps_its_damaged_files(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = Trial("m:f", {}, 0)
    for trial in (TRIAL, other):
        store.write(trial, Outcome({"x": 1.0}), 0.0)
    path = store.path(other)
    path.write_bytes(path.read_bytes()[:-1])

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "replace", refuse)
    reader = Store(store.root)
    with caplog.at_level(logging.WARNING):
        assert reader.missing([TRIAL, other]) == [other]
    assert str(path) in caplog.text
    assert reader.damaged == [path]
    assert path.exists()
    with pytest.raises(FileError, match=r"^cannot write .*: Permission denied$"):
        reader.write(other, Outcome({"x": 1.0}), 0.0)


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"^cannot write .*: No space left on device$"):
        store.write(TRIAL, Outcome({"x": 1.0}, {"a": torch.ones(3)}), 0.0)
    with pytest.raises(FileError, match="No space left"):
        store.fail(TRIAL, "why", 0.0)
    assert _files(store) == []


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "runs")
    assert not store.has(TRIAL)
    with pytest.raises(FileError, match=r"^cannot write .*: Not a directory$"):
        store.write(TRIAL, Outcome({}), 0.0)
    with pytest.raises(FileError, match=r"^cannot write .*: Not a directory$"):
        store.prepare()


@pytest.mark.parametrize("step", [0, 1])
def test_a_crash_between_the_two_files_leaves_the_trial_to_do(
    store: Store, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[str] = []
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if len(renamed) == step:
            raise KeyboardInterrupt
        renamed.append(target.suffix)
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        store.write(TRIAL, Outcome({"x": 1.0}, {"a": torch.ones(3)}), 0.0)
    assert renamed == [".safetensors"][:step]
    assert not store.has(TRIAL)


def test_old_temporary_files_are_removed_and_young_ones_left(store: Store) -> None:
    store.write(TRIAL, Outcome({"x": 1.0}), 0.0)
    folder = store.path(TRIAL).parent
    old, young = folder / ".x.json.1-a.tmp", folder / ".y.json.2-b.tmp"
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (0, 0))
    os.utime(store.path(TRIAL), (0, 0))
    store.prepare()
    assert not old.exists()
    assert young.exists()
    assert store.has(TRIAL)


def test_files_can_be_read_by_those_whom_the_umask_allows(store: Store) -> None:
    before = os.umask(0o022)
    try:
        store.write(TRIAL, Outcome({"x": 1.0}, {"a": torch.ones(3)}), 0.0)
    finally:
        os.umask(before)
    for path in store.path(TRIAL).parent.iterdir():
        assert path.stat().st_mode & 0o777 == 0o644


def test_what_is_not_whole_is_not_stored(store: Store) -> None:
    """A result that came over a network, with a byte changed on its way."""
    good = encode(TRIAL, Outcome({"x": 1.5}, {"w": torch.ones(3)}), 0.0)
    assert good.arrays is not None
    for text, arrays in (
        (good.text.replace(b"1.5", b"2.5"), good.arrays),
        (good.text, good.arrays[:-1] + b"!"),
        (good.text, None),
    ):
        with pytest.raises(ValueError, match="checksum"):
            store.put(TrialFile(TRIAL.key, text, arrays))
    with pytest.raises(ValueError, match="key must be"):
        store.put(TrialFile("0" * 64, good.text, good.arrays))
    assert store.read(TRIAL) is None


@pytest.mark.parametrize("changes", [{"status": "weird"}, {"numbers": None}, {"seconds": None}])
def test_a_record_without_its_parts_is_damaged(
    store: Store, changes: dict[str, str | None]
) -> None:
    """With a right checksum, as another program may write it."""
    store.write(TRIAL, Outcome({"x": 1}), 0.0)
    record = json.loads(store.path(TRIAL).read_bytes())
    del record["checksum"]
    for key, value in changes.items():
        if value is None:
            del record[key]
        else:
            record[key] = value
    body = json_file(record).removesuffix(b"\n}\n")
    checksum = hashlib.sha256(body).hexdigest().encode()
    store.path(TRIAL).write_bytes(body + b',\n"checksum": "' + checksum + b'"\n}\n')
    assert not Store(store.root).has(TRIAL)
    assert maintenance.overview(Store(store.root)) == []
    assert len(list(store.root.rglob("*.corrupt"))) == 1
