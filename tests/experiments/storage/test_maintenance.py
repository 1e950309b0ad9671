"""The care of a store: what it has, what is damaged, and packing that loses nothing."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extremal.experiments import FileError, Outcome, Store, Trial
from extremal.experiments.storage import maintenance, packs
from tests.experiments.storage.helpers import (
    damage,
    filled,
    trial,
    trials,
    trials_of_one_pack,
)

Event = Callable[[Path, Trial], None]


def test_an_overview_counts_studies(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2)
    store.fail(Trial("m:other", {}, 0), "why", 1.0)
    for _ in range(2):
        assert maintenance.overview(store) == [
            {"study": "m:f", "done": 2, "failed": 0, "seconds": 1.5},
            {"study": "m:other", "done": 0, "failed": 1, "seconds": 1.0},
        ]
        maintenance.compact(store)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_check_names_what_is_damaged_and_what_belongs_to_nothing(
    tmp_path: Path, ending: str
) -> None:
    store = filled(tmp_path, 1, 2, 3)
    store.fail(trial(4), "why", 0.0)
    found = maintenance.check(store)
    assert (found.done, found.failed, found.damaged, found.leftovers) == (3, 1, [], [])
    bad = store.path(trial(2)).with_suffix(ending)
    damage(bad)
    orphan = store.path(trial(9)).with_suffix(".safetensors")
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"")
    found = maintenance.check(Store(tmp_path))
    assert (found.done, found.damaged) == (2, [str(bad)])
    assert str(orphan) in found.leftovers
    assert f"{bad}.corrupt" in found.leftovers


def test_check_finds_damage_to_a_pack_that_the_store_has_in_memory(tmp_path: Path) -> None:
    store = filled(tmp_path, 1)
    maintenance.compact(store)
    assert store.has(trial(1))
    (pack,) = (tmp_path / "packs").iterdir()
    damage(pack)
    found = maintenance.check(store)
    assert (found.done, found.damaged) == (0, [str(pack)])


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    for act in (maintenance.check, maintenance.overview, maintenance.compact):
        with pytest.raises(ValueError, match="store must be a folder with trials"):
            act(Store(tmp_path / "nothing"))
    assert os.listdir(tmp_path) == []


def test_compact_keeps_every_result_in_few_files(tmp_path: Path) -> None:
    some, failed = trials(*range(24)), trial(-1)
    store = filled(tmp_path, *range(24))
    store.fail(failed, "why", 0.0)
    open_before = Store(tmp_path)
    assert open_before.missing(some) == []
    before = [(found.numbers, found.seconds) for found in store.read_all(some)]
    files = [store.load(each.key) for each in some]
    assert maintenance.compact(store) == 24
    starts = {each.key[:2] for each in some}
    names = os.listdir(tmp_path / "packs")
    assert {name[:2] for name in names} == starts
    assert {Path(name).suffix for name in names} == {".jsonl"}
    assert len(names) == len(starts)
    assert [path.stem for path in (tmp_path / "trials").glob("*/*.json")] == [failed.key]
    for seen in (store, Store(tmp_path), open_before):
        assert seen.missing(some) == []
        assert [(found.numbers, found.seconds) for found in seen.read_all(some)] == before
        assert [seen.load(each.key) for each in some] == files
        assert seen.read(failed) is not None
    assert store.read_all(some)[5].arrays["x"].tolist() == [5.0]


def test_compacting_again_packs_what_is_new(tmp_path: Path) -> None:
    some, failed, more = trials(*range(24)), trial(-1), trial(1000)
    store = filled(tmp_path, *range(24))
    store.fail(failed, "why", 0.0)
    maintenance.compact(store)
    names = sorted(os.listdir(tmp_path / "packs"))
    assert maintenance.compact(store) == maintenance.compact(Store(tmp_path)) == 0
    assert sorted(os.listdir(tmp_path / "packs")) == names
    for new in (more, failed):
        store.write(new, Outcome({"value": 1}), 0.0)
    every = [*some, more, failed]
    assert Store(tmp_path).missing(every) == []
    assert maintenance.compact(Store(tmp_path)) == 2
    assert list((tmp_path / "trials").glob("*/*.json")) == []
    assert Store(tmp_path).missing(every) == []
    assert len(os.listdir(tmp_path / "packs")) == len({each.key[:2] for each in every})


def test_packs_of_two_stores_that_were_copied_together_become_one(tmp_path: Path) -> None:
    one, two = trials_of_one_pack(2)
    for root, each in ((tmp_path / "one", one), (tmp_path / "two", two)):
        Store(root).write(each, Outcome({"value": 1}), 0.0)
        maintenance.compact(Store(root))
    shutil.copytree(tmp_path / "two", tmp_path / "one", dirs_exist_ok=True)
    assert Store(tmp_path / "one").missing([one, two]) == []
    assert maintenance.compact(Store(tmp_path / "one")) == 0
    assert len(Store(tmp_path / "one").packs.files()) == 1
    assert Store(tmp_path / "one").missing([one, two]) == []


def test_a_damaged_file_is_not_packed(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2)
    path = store.path(trial(1))
    damage(path)
    assert maintenance.compact(store) == 1
    assert Store(tmp_path).missing(trials(1, 2)) == [trial(1)]
    assert path.with_name(path.name + ".corrupt").exists()


def _finish_and_compact(root: Path, new: Trial) -> None:
    Store(root).write(new, Outcome({"value": 2}), 0.0)
    maintenance.compact(Store(root))


def _copy_a_pack(root: Path, new: Trial) -> None:
    other = Store(root.parent / "other")
    other.write(new, Outcome({"value": 2}), 0.0)
    maintenance.compact(other)
    (root / "packs").mkdir(exist_ok=True)
    for pack in other.packs.files():
        shutil.copy(pack, root / "packs")


@pytest.mark.parametrize(
    "moment", ["files 1", "files 2", "load 1", "add 1", "load 2", "read_whole 1"]
)
@pytest.mark.parametrize("meanwhile", [_finish_and_compact, _copy_a_pack])
def test_compacting_loses_nothing_that_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, meanwhile: Event
) -> None:
    root, some = tmp_path / "runs", trials_of_one_pack(4)
    store = Store(root)
    for each in some[:3]:  # The first two are in a pack, the third is not.
        if each is some[2]:
            maintenance.compact(Store(root))
        store.write(each, Outcome({"value": 1}), 0.0)
    name, wanted = moment.split()
    place = maintenance if name == "read_whole" else store.packs
    real, calls = getattr(place, name), list[str]()

    def watched(*arguments: Any) -> Any:
        found = real(*arguments)
        calls.append(name)
        if len(calls) == int(wanted):
            meanwhile(root, some[3])
        return found

    monkeypatch.setattr(place, name, watched)
    maintenance.compact(store)
    assert len(calls) >= int(wanted)
    assert Store(root).missing(some) == []
    maintenance.compact(Store(root))
    assert Store(root).missing(some) == []
    assert len(Store(root).packs.files()) == 1


def test_a_pack_that_is_not_what_was_written_ends_it_before_anything_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 1, 2)
    write = packs.write_whole

    def cut(path: Path, data: bytes, **options: bool) -> bool:
        return write(path, data[:-2], **options)

    monkeypatch.setattr(packs, "write_whole", cut)
    with pytest.raises(FileError, match=r"\.jsonl: it is not what was written; nothing was remov"):
        maintenance.compact(store)
    for each in trials(1, 2):
        assert store.path(each).exists()
    assert Store(tmp_path).missing(trials(1, 2)) == []


def test_a_pack_that_was_there_is_read_again_before_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 1)
    text = store.path(trial(1)).read_bytes()
    maintenance.compact(store)
    store.path(trial(1)).write_bytes(text)  # copied from another store, say
    assert store.all_keys() == [trial(1).key]
    monkeypatch.setattr(packs, "write_whole", lambda path, data, **_: path.write_bytes(data[:9]))
    with pytest.raises(FileError, match="nothing was removed"):
        maintenance.compact(store)
    assert Store(tmp_path).has(trial(1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_and_no_permission_are_one_clear_line_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = filled(tmp_path, 1, 2)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        line = rf"^cannot write .*\.jsonl: {os.strerror(number)}$"
        with pytest.raises(FileError, match=line):
            maintenance.compact(store)
    assert os.listdir(tmp_path / "packs") == []
    assert Store(tmp_path).missing(trials(1, 2)) == []
