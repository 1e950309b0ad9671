"""Stores of several machines: verified, written as one file, brought together."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from extremal.experiments import Outcome, Store, StoreError, Trial, index, maintain

Event = Callable[[Path, Trial], None]


def _trial(number: int) -> Trial:
    return Trial("m:f", {"a": number}, 0)


def _filled(root: Path, *numbers: int) -> Store:
    store = Store(root)
    for number in numbers:
        arrays = {"x": torch.tensor([float(number)])}
        store.write(_trial(number), Outcome({"value": number}, arrays), 0.5 * number)
    return store


def _damage(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-9] + b"?" + data[-8:])


def test_an_overview_counts_studies(tmp_path: Path) -> None:
    store = _filled(tmp_path, 1, 2)
    store.fail(Trial("m:other", {}, 0), "why", 1.0)
    maintain.compact(store)
    assert maintain.overview(store) == [
        {"study": "m:f", "done": 2, "failed": 0, "seconds": 1.5},
        {"study": "m:other", "done": 0, "failed": 1, "seconds": 1.0},
    ]


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_check_names_what_is_damaged_and_what_belongs_to_nothing(
    tmp_path: Path, ending: str
) -> None:
    store = _filled(tmp_path, 1, 2, 3)
    found = maintain.check(store)
    assert (found.done, found.failed, found.damaged, found.leftovers) == (3, 0, [], [])
    bad = store.path(_trial(2)).with_suffix(ending)
    _damage(bad)
    orphan = store.path(_trial(9)).with_suffix(".safetensors")
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"")
    found = maintain.check(Store(tmp_path))
    assert (found.done, found.damaged) == (2, [str(bad)])
    assert str(orphan) in found.leftovers
    assert f"{bad}.corrupt" in found.leftovers


def test_check_finds_what_the_index_believes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that flips on the disk changes no time of the file."""
    store = _filled(tmp_path, 1, 2)
    path = store.path(_trial(1))
    monkeypatch.setattr("extremal.experiments.index._YOUNG", -(10**18))
    monkeypatch.setattr("extremal.experiments.store.stamp_of", lambda path: (1, 1, 1))
    assert store.without([_trial(1)]) == []
    _damage(path)
    assert store.without([_trial(1)]) == []
    assert maintain.check(store).damaged == [str(path)]


@pytest.mark.parametrize("name", ["mine.tar", "mine.tar.gz"])
def test_what_is_exported_comes_back_elsewhere(tmp_path: Path, name: str) -> None:
    store = _filled(tmp_path / "one", 1, 2, 3)
    store.fail(_trial(4), "why", 0.0)
    maintain.compact(store)
    assert maintain.export(store, tmp_path / name) == 4
    other = _filled(tmp_path / "two", 3)
    other.fail(_trial(1), "here it failed", 0.0)
    merged = maintain.merge(other, tmp_path / name)
    assert (merged.added, merged.known, merged.differing, merged.damaged) == (3, 1, [], [])
    for number in (1, 2, 3, 4):
        assert other.packed(_trial(number).key) == store.packed(_trial(number).key)
    assert maintain.merge(other, tmp_path / name).added == 0
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path / "three", filter="data")
    assert Store(tmp_path / "three").without([_trial(k) for k in (1, 2, 3)]) == []


def test_some_trials_can_be_exported(tmp_path: Path) -> None:
    store = _filled(tmp_path / "one", 1, 2, 3)
    assert maintain.export(store, tmp_path / "a.tar", [_trial(2).key, _trial(8).key]) == 1
    other = Store(tmp_path / "two")
    maintain.merge(other, tmp_path / "a.tar")
    assert list(other.all_keys()) == [_trial(2).key]


def test_a_folder_is_merged_and_other_numbers_are_named(tmp_path: Path) -> None:
    ours, theirs = _filled(tmp_path / "ours", 1, 2), _filled(tmp_path / "theirs", 2, 3, 5)
    theirs.path(_trial(2)).unlink()
    theirs.write(_trial(2), Outcome({"value": 2.0000001}), 0.0)
    bad = theirs.path(_trial(5))
    _damage(bad)
    merged = maintain.merge(ours, tmp_path / "theirs")
    assert (merged.added, merged.known) == (1, 1)
    assert merged.differing == [_trial(2).key]
    assert merged.damaged == [str(bad)]
    kept = ours.read(_trial(2))
    assert kept is not None
    assert kept.numbers == {"value": 2}
    assert ours.has(_trial(3))


DAMAGE = {
    "cut at a member": "is cut short: 4 trials were taken",
    "cut in a header": "cannot read .*; 4 trials were taken|is cut short: 4 trials were taken",
    "cut in a content": "cannot read .*unexpected end of data; 4 trials were taken",
    "a bit of a header": "is cut short: 4 trials were taken",
    "a block of zeros": "is cut short: 4 trials were taken",
    "without its end": "is cut short: 10 trials were taken",
    "a trial left out": "is cut short: 9 trials were taken",
}


def _damaged(data: bytes, how: str) -> bytes:
    """An archive of ten trials of two files each, with something wrong from the ninth file on."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        at = [member.offset for member in archive]
    ninth, flipped = at[8], bytes([data[at[8] + 10] ^ 1])
    return {
        "cut at a member": data[:ninth],
        "cut in a header": data[: ninth + 100],
        "cut in a content": data[: ninth + 512 + 10],
        "a bit of a header": data[: ninth + 10] + flipped + data[ninth + 11 :],
        "a block of zeros": data[:ninth] + bytes(512) + data[ninth + 512 :],
        "without its end": data[: at[-1]] + bytes(1024),
        "a trial left out": data[:ninth] + data[at[10] :],
    }[how]


@pytest.mark.parametrize("how", DAMAGE)
def test_half_an_archive_is_not_taken_for_a_whole_one(tmp_path: Path, how: str) -> None:
    maintain.export(_filled(tmp_path / "one", *range(10)), tmp_path / "a.tar")
    bad = tmp_path / "bad.tar"
    bad.write_bytes(_damaged((tmp_path / "a.tar").read_bytes(), how))
    with pytest.raises(StoreError, match=DAMAGE[how]) as caught:
        maintain.merge(Store(tmp_path / "two"), bad)
    assert str(bad) in str(caught.value)
    taken = int(str(caught.value).split()[-4])
    assert len(list(Store(tmp_path / "two").all_keys())) == taken


def test_a_compressed_archive_that_is_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    maintain.export(_filled(tmp_path / "one", *range(10)), tmp_path / "a.tar.gz")
    data = (tmp_path / "a.tar.gz").read_bytes()
    bad = tmp_path / "bad.tar.gz"
    for at in range(100, len(data) - 100, len(data) // 9):
        bad.write_bytes(data[:at] + b"\xff" * 20 + data[at + 20 :])
        with pytest.raises(StoreError, match=r"bad\.tar\.gz"):
            maintain.merge(Store(tmp_path / f"two {at}"), bad)


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    key = _trial(1).key
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo(f"trials/{key[:2]}/{key}.json")
        member.type, member.linkname = tarfile.SYMTYPE, "nowhere"
        archive.addfile(member)
    with pytest.raises(ValueError, match=r"a\.tar must hold files only, got trials/"):
        maintain.merge(Store(tmp_path / "two"), tmp_path / "a.tar")


def _archive(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_files_that_are_no_export_are_refused(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "runs"), tmp_path / "odd.tar"
    path.write_bytes(b"not a tar file")
    with pytest.raises(StoreError, match=r"^cannot read .*odd\.tar"):
        maintain.merge(store, path)
    with pytest.raises(StoreError, match=r"^cannot read .*none\.tar"):
        maintain.merge(store, tmp_path / "none.tar")
    _archive(path, {"../../evil.json": b"{}"})
    with pytest.raises(ValueError, match=r"odd\.tar must hold trials only, got \.\./"):
        maintain.merge(store, path)
    with pytest.raises(ValueError, match="store must be a folder with trials"):
        maintain.merge(store, tmp_path)
    with pytest.raises(ValueError, match="store must be a folder with trials"):
        maintain.check(Store(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=r"path must end in \.tar or \.tar\.gz"):
        maintain.export(_filled(tmp_path / "one", 1), tmp_path / "x.zip")


def test_damaged_trials_of_an_archive_are_named_and_not_taken(tmp_path: Path) -> None:
    packed = _filled(tmp_path / "one", 1).packed(_trial(1).key)
    assert packed is not None
    assert packed.arrays is not None
    key = _trial(1).key
    name = f"trials/{key[:2]}/{key}.json"
    arrays = name.replace(".json", ".safetensors")
    for members in (
        {arrays: packed.arrays[:-1] + b"!", name: packed.text},
        {name: packed.text},
        {arrays: packed.arrays, name: packed.text.replace(b'"seed": 0', b'"seed": 1')},
    ):
        _archive(tmp_path / "a.tar", members | {"trials/END": maintain._end([key])})
        store = Store(tmp_path / "two")
        merged = maintain.merge(store, tmp_path / "a.tar")
        assert (merged.added, merged.damaged) == (0, [f"{tmp_path / 'a.tar'}: {name}"])
        assert list(store.all_keys()) == []


def _same_start(count: int) -> list[Trial]:
    """Trials that come into one pack."""
    start, found = _trial(0).key[:2], list[Trial]()
    number = 0
    while len(found) < count:
        if _trial(number).key[:2] == start:
            found.append(_trial(number))
        number += 1
    return found


def _finish_and_compact(root: Path, trial: Trial) -> None:
    Store(root).write(trial, Outcome({"value": 2}), 0.0)
    maintain.compact(Store(root))


def _copy_a_pack(root: Path, trial: Trial) -> None:
    other = Store(root.parent / "other")
    other.write(trial, Outcome({"value": 2}), 0.0)
    maintain.compact(other)
    (root / "packs").mkdir(exist_ok=True)
    for pack in other.index.packs.iterdir():
        shutil.copy(pack, root / "packs")


@pytest.mark.parametrize("moment", ["pack_files", "load_pack", "add_pack", "_there"])
@pytest.mark.parametrize("meanwhile", [_finish_and_compact, _copy_a_pack])
def test_compacting_loses_nothing_that_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, meanwhile: Event
) -> None:
    root, trials = tmp_path / "runs", _same_start(4)
    store = Store(root)
    for trial in trials[:3]:  # The first two are in packs, the third is not.
        if trial is trials[2]:
            maintain.compact(Store(root))
        store.write(trial, Outcome({"value": 1}), 0.0)
    place = maintain if moment == "_there" else store.index
    real, happened = getattr(place, moment), list[str]()

    def watched(*arguments: Any) -> Any:
        found = real(*arguments)
        if not happened:
            happened.append(moment)
            meanwhile(root, trials[3])
        return found

    monkeypatch.setattr(place, moment, watched)
    maintain.compact(store)
    assert happened
    assert Store(root).without(trials) == []
    maintain.compact(Store(root))
    assert Store(root).without(trials) == []
    assert len(Store(root).index.pack_files()) == 1


def test_a_pack_that_is_not_what_was_written_ends_it_before_anything_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _filled(tmp_path, 1, 2)
    write = index.write_whole
    monkeypatch.setattr(index, "write_whole", lambda path, data: write(path, data[:-2]))
    with pytest.raises(StoreError, match=r"\.pack: it is not what was written; nothing was remov"):
        maintain.compact(store)
    assert Store(tmp_path).without([_trial(1), _trial(2)]) == []
