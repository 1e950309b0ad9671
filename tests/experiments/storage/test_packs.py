"""Packs: a line a trial, of which a damaged one costs no other."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from pathlib import Path

import pytest

from extremal.experiments import FileError, Outcome, Store
from extremal.experiments.storage import maintenance, transfer
from tests.experiments.storage.helpers import (
    damage,
    filled,
    trial,
    trials,
    trials_of_one_pack,
)

*TRIALS, ONE_MORE = trials_of_one_pack(5)


def _packed(root: Path) -> Path:
    """The one pack of a store with `TRIALS`, in the order of its lines."""
    store = Store(root)
    for number, each in enumerate(TRIALS):
        store.write(each, Outcome({"value": number}), 0.5)
    maintenance.compact(store)
    (pack,) = (root / "packs").iterdir()
    return pack


def _values(store: Store) -> list[float]:
    return [found.numbers["value"] for found in store.read_all(TRIALS)]


def test_a_pack_has_a_line_a_trial_and_is_named_by_its_checksum(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for each in TRIALS:
        store.write(each, Outcome({"value": 1}), 0.5)
    texts = {each.key: store.path(each).read_text() for each in TRIALS}
    maintenance.compact(store)
    (pack,) = (tmp_path / "packs").iterdir()
    data = pack.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    assert pack.name == f"{TRIALS[0].key[:2]}-{checksum[:32]}.jsonl"
    lines = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    assert lines == [
        {"key": key, "sha256": hashlib.sha256((key + text).encode()).hexdigest(), "file": text}
        for key, text in sorted(texts.items())
    ]


def test_what_is_finished_in_a_pack_stays(tmp_path: Path) -> None:
    _packed(tmp_path)
    store = Store(tmp_path)
    store.fail(TRIALS[1], "late", 0.0)
    store.write(TRIALS[2], Outcome({"value": 100}), 0.0)
    assert _values(Store(tmp_path)) == [0, 1, 2, 3]
    assert list((tmp_path / "trials").rglob("*.json")) == []


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_damaged_line_costs_one_trial(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    pack = _packed(tmp_path)
    lines = pack.read_bytes().splitlines(keepends=True)
    lines[number] = lines[number].replace(b"numbers", b"nunbers")
    pack.write_bytes(b"".join(lines))
    store = Store(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert store.missing(TRIALS) == [TRIALS[number]]
    assert f"damaged pack {pack}" in caplog.text
    assert store.damaged == [pack]
    assert not pack.exists()
    assert pack.with_name(pack.name + ".corrupt").read_bytes() == b"".join(lines)
    again = Store(tmp_path)
    assert again.missing(TRIALS) == [TRIALS[number]]
    assert again.damaged == []
    again.write(TRIALS[number], Outcome({"value": number}), 0.0)
    maintenance.compact(again)
    assert _values(Store(tmp_path)) == [0, 1, 2, 3]
    assert len(Store(tmp_path).packs.files()) == 1


def test_any_flipped_byte_is_noticed_and_costs_no_other_line(tmp_path: Path) -> None:
    pack = _packed(tmp_path)
    data = pack.read_bytes()
    ends = [at for at, byte in enumerate(data) if byte == ord("\n")]
    for at in {*range(0, len(data), 5), *ends}:
        line = sum(end < at for end in ends)
        # A line break belongs to the lines on both sides.
        lost = TRIALS[line : line + 2] if at in ends else [TRIALS[line]]
        for path in (tmp_path / "packs").iterdir():
            path.unlink()
        pack.write_bytes(data)
        damage(pack, at)
        store = Store(tmp_path)
        assert store.missing(TRIALS) == lost
        assert store.damaged == [pack]
        assert maintenance.check(store).damaged == []


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_pack_that_ends_after_a_line_is_noticed(tmp_path: Path, kept: int) -> None:
    pack = _packed(tmp_path)
    lines = pack.read_bytes().splitlines(keepends=True)
    pack.write_bytes(b"".join(lines[:kept]))
    found = maintenance.check(Store(tmp_path))
    assert (found.done, found.damaged) == (kept, [str(pack)])
    assert found.leftovers == [f"{pack}.corrupt"]
    assert Store(tmp_path).missing(TRIALS) == TRIALS[kept:]


@pytest.mark.parametrize("change", ["without its last line break", "with more at its end"])
def test_damage_that_costs_no_line_is_mended(tmp_path: Path, change: str) -> None:
    pack = _packed(tmp_path)
    data = pack.read_bytes()
    pack.write_bytes(data[:-1] if change.startswith("without") else data + b"\0" * 100)
    store = Store(tmp_path)
    assert store.missing(TRIALS) == []
    assert store.damaged == [pack]
    assert store.missing(TRIALS) == Store(tmp_path).missing(TRIALS) == []
    assert pack.read_bytes() == data


def test_a_line_with_the_key_of_another_trial_is_not_kept(tmp_path: Path) -> None:
    pack = _packed(tmp_path)
    pack.write_bytes(pack.read_bytes().replace(TRIALS[1].key[2:].encode(), b"0" * 62))
    assert Store(tmp_path).missing(TRIALS) == [TRIALS[1]]
    found = maintenance.check(Store(tmp_path))
    assert (found.done, found.damaged) == (3, [])


def test_a_read_only_store_keeps_a_damaged_pack_and_its_whole_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = _packed(tmp_path)
    damage(pack)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "replace", refuse)
    store = Store(tmp_path)
    assert store.missing(TRIALS) == [TRIALS[-1]]
    assert store.damaged == [pack]
    assert os.listdir(tmp_path / "packs") == [pack.name]


def test_a_pack_that_cannot_be_read_is_not_set_aside_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _packed(tmp_path)
    read = Path.read_bytes

    def deny(path: Path) -> bytes:
        if path.suffix == ".jsonl":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", deny)
        with pytest.raises(FileError, match=r"^cannot read .*\.jsonl: Permission denied$"):
            Store(tmp_path).missing(TRIALS)
    assert Store(tmp_path).missing(TRIALS) == []


def test_arrays_of_a_packed_trial_that_are_damaged_are_noticed(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2, 3)
    maintenance.compact(store)
    path = store.path(trial(2)).with_suffix(".safetensors")
    data = path.read_bytes()
    damage(path)
    assert Store(tmp_path).missing(trials(1, 2, 3)) == [trial(2)]
    filled(tmp_path, 2)
    assert Store(tmp_path).missing(trials(1, 2, 3)) == []
    assert path.read_bytes() == data


def test_a_pack_of_the_older_form_is_one_clear_line(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    old = tmp_path / "packs" / f"{trial(2).key[:2]}-{'0' * 32}.pack"
    old.parent.mkdir()
    old.write_bytes(b"anything")
    assert Store(tmp_path).has(trial(1))  # It has a file of its own.
    advice = (
        r"is a pack of an older form: `store export` by the version that made it, `store import`"
    )
    for act in (
        lambda: Store(tmp_path).has(trial(2)),
        lambda: maintenance.check(Store(tmp_path)),
        lambda: maintenance.compact(Store(tmp_path)),
        lambda: maintenance.overview(Store(tmp_path)),
    ):
        with pytest.raises(FileError, match=advice) as caught:
            act()
        assert str(caught.value).startswith(str(old))
        assert "\n" not in str(caught.value)
    assert old.exists()


@pytest.mark.parametrize("what", ["one trial", "all keys"])
def test_a_pack_that_is_merged_into_another_meanwhile_is_found_there(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _packed(tmp_path)
    store = Store(tmp_path)
    real, happened = store.packs.files, list[str]()

    def merged_just_after(start: str = "") -> list[Path]:
        found = real(start)
        if not happened:
            happened.append(start)
            other = Store(tmp_path)
            other.write(ONE_MORE, Outcome({"value": 4}), 0.0)
            maintenance.compact(other)
        return found

    monkeypatch.setattr(store.packs, "files", merged_just_after)
    if what == "one trial":
        assert store.has(TRIALS[1])
    else:
        assert store.all_keys() == [each.key for each in (*TRIALS, ONE_MORE)]
    assert happened


def test_a_link_to_nothing_among_the_packs_stops_nobody(tmp_path: Path) -> None:
    pack = _packed(tmp_path)
    pack.with_name(f"{pack.name[:2]}-{'0' * 32}.jsonl").symlink_to(tmp_path / "nothing")
    store = Store(tmp_path)
    assert store.missing([*TRIALS, ONE_MORE]) == [ONE_MORE]
    assert store.all_keys() == [each.key for each in TRIALS]


def test_the_advice_for_an_older_form_leads_somewhere(tmp_path: Path) -> None:
    """What the version before has written as an archive is imported into a new folder."""
    written = filled(tmp_path / "before", 1, 2)
    transfer.export(written, tmp_path / "mine.tar")
    found = transfer.import_trials(Store(tmp_path / "new"), tmp_path / "mine.tar")
    assert found.added == 2
    old = tmp_path / "before" / "packs" / f"{trial(1).key[:2]}-00.pack"
    old.parent.mkdir()
    old.write_bytes(b"anything")
    assert Store(tmp_path / "new").missing([trial(1), trial(2)]) == []


@pytest.mark.parametrize("key", ["/home/me/model", "../../model", "ab/../../../model", "AB" * 32])
def test_a_strangers_pack_names_no_file_but_a_trials(tmp_path: Path, key: str) -> None:
    """The key of a line is part of a path, and its checksum no secret."""
    victim = tmp_path / "model.json"
    victim.write_text("mine")
    text = '{"study": "m:f"}'
    key = key.replace("/home/me", str(tmp_path))
    checksum = hashlib.sha256((key + text).encode()).hexdigest()
    line = json.dumps({"key": key, "sha256": checksum, "file": text}) + "\n"
    name = f"{key[:2].strip('/.') or 'ab'}-{hashlib.sha256(line.encode()).hexdigest()[:32]}.jsonl"
    folder = tmp_path / "theirs" / "packs"
    folder.mkdir(parents=True)
    (folder / name).write_text(line)
    found = transfer.import_trials(Store(tmp_path / "ours"), tmp_path / "theirs")
    assert found.added == 0
    maintenance.check(Store(tmp_path / "theirs"))
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "ours", "theirs"]
