"""Stores of several machines: verified, written as one file, brought together."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import torch

from extremal.experiments import Outcome, Store, StoreError, Trial, maintain


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
        _archive(tmp_path / "a.tar", members)
        store = Store(tmp_path / "two")
        merged = maintain.merge(store, tmp_path / "a.tar")
        assert (merged.added, merged.damaged) == (0, [f"{tmp_path / 'a.tar'}: {name}"])
        assert list(store.all_keys()) == []
