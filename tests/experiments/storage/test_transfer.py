"""Trials from one store to another: each verified, and half an archive never taken for a whole."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from extremal.experiments import FileError, Outcome, Store
from extremal.experiments.storage import maintenance, transfer
from tests.experiments.storage.helpers import damage, filled, trial, trials


def _name(number: int, ending: str = "json") -> str:
    key = trial(number).key
    return f"trials/{key[:2]}/{key}.{ending}"


def _archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def _members(store: Store, *numbers: int) -> dict[str, bytes]:
    """The files of trials as an archive has them, arrays first."""
    names = [_name(n, ending) for n in numbers for ending in ("safetensors", "json")]
    return {name: (store.root / name).read_bytes() for name in names}


@pytest.mark.parametrize("name", ["mine.tar", "mine.tar.gz"])
def test_what_is_exported_comes_back_elsewhere(tmp_path: Path, name: str) -> None:
    store = filled(tmp_path / "one", 1, 2, 3)
    store.fail(trial(4), "why", 0.0)
    maintenance.compact(store)
    assert transfer.export(store, tmp_path / name) == 4
    other = filled(tmp_path / "two", 3)
    other.fail(trial(1), "here it failed", 0.0)
    found = transfer.import_trials(other, tmp_path / name)
    assert (found.added, found.known, found.differing, found.damaged) == (3, 1, [], [])
    for number in (1, 2, 3, 4):
        assert other.load(trial(number).key) == store.load(trial(number).key)
    assert transfer.import_trials(other, tmp_path / name).added == 0
    assert sorted(os.listdir(tmp_path / "two")) == ["trials"]
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path / "three", filter="data")
    assert Store(tmp_path / "three").missing(trials(1, 2, 3)) == []


def test_some_trials_can_be_exported(tmp_path: Path) -> None:
    store = filled(tmp_path / "one", 1, 2, 3)
    assert transfer.export(store, tmp_path / "a.tar", [trial(2).key, trial(8).key]) == 1
    other = Store(tmp_path / "two")
    transfer.import_trials(other, tmp_path / "a.tar")
    assert other.all_keys() == [trial(2).key]


def test_an_empty_store_is_exported_and_imported(tmp_path: Path) -> None:
    store = Store(tmp_path / "one")
    store.prepare()
    assert transfer.export(store, tmp_path / "a.tar") == 0
    assert transfer.import_trials(Store(tmp_path / "two"), tmp_path / "a.tar").added == 0


def test_a_folder_is_imported_and_other_numbers_are_named(tmp_path: Path) -> None:
    ours, theirs = filled(tmp_path / "ours", 1, 2), filled(tmp_path / "theirs", 2, 3, 5, 6)
    theirs.path(trial(2)).unlink()
    theirs.write(trial(2), Outcome({"value": 2.0000001}), 0.0)
    maintenance.compact(theirs)
    bad = theirs.path(trial(5)).with_suffix(".safetensors")
    damage(bad)
    found = transfer.import_trials(ours, tmp_path / "theirs")
    assert (found.added, found.known) == (2, 1)
    assert found.differing == [trial(2).key]
    assert found.damaged == [str(bad)]
    kept = ours.read(trial(2))
    assert kept is not None
    assert kept.numbers == {"value": 2}
    assert ours.missing(trials(3, 6)) == []


def test_nan_is_no_other_number(tmp_path: Path) -> None:
    ours, theirs = Store(tmp_path / "ours"), Store(tmp_path / "theirs")
    for store in (ours, theirs):
        store.write(trial(1), Outcome({"value": float("nan")}), 0.0)
    found = transfer.import_trials(ours, theirs.root)
    assert (found.known, found.differing) == (1, [])


def test_a_failure_of_another_store_replaces_nothing(tmp_path: Path) -> None:
    ours, theirs = filled(tmp_path / "ours", 1), Store(tmp_path / "theirs")
    ours.fail(trial(2), "here", 0.0)
    for number in (1, 2):
        theirs.fail(trial(number), "there", 0.0)
    found = transfer.import_trials(ours, theirs.root)
    assert (found.added, found.known, found.differing) == (0, 2, [])
    assert ours.has(trial(1))
    kept = ours.read(trial(2))
    assert kept is not None
    assert kept.reason == "here"


DAMAGE = {
    "cut at a member": "is cut short; 4 trials were taken",
    "cut in a header": "(cannot read .*|is cut short); 4 trials were taken",
    "cut in a content": "cannot read .*unexpected end of data; 4 trials were taken",
    "a bit of a header": "is cut short; 4 trials were taken",
    "a block of zeros": "is cut short; 4 trials were taken",
    "without its end": "is cut short; 10 trials were taken",
    "cut in its end": "is cut short; 10 trials were taken",
}


def _damaged(data: bytes, how: str) -> bytes:
    """An archive of ten trials of two files each, with something wrong from the ninth file on."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        at = [member.offset for member in archive]
        end = archive.offset
    ninth, flipped = at[8], bytes([data[at[8] + 10] ^ 1])
    return {
        "cut at a member": data[:ninth],
        "cut in a header": data[: ninth + 100],
        "cut in a content": data[: ninth + 512 + 10],
        "a bit of a header": data[: ninth + 10] + flipped + data[ninth + 11 :],
        "a block of zeros": data[:ninth] + bytes(512) + data[ninth + 512 :],
        "without its end": data[:end],
        "cut in its end": data[: end + 512],
    }[how]


@pytest.mark.parametrize("how", DAMAGE)
def test_half_an_archive_is_not_taken_for_a_whole_one(tmp_path: Path, how: str) -> None:
    transfer.export(filled(tmp_path / "one", *range(10)), tmp_path / "a.tar")
    bad = tmp_path / "bad.tar"
    bad.write_bytes(_damaged((tmp_path / "a.tar").read_bytes(), how))
    with pytest.raises(FileError, match=DAMAGE[how]) as caught:
        transfer.import_trials(Store(tmp_path / "two"), bad)
    assert str(bad) in str(caught.value)
    taken = int(str(caught.value).split()[-4])
    assert len(Store(tmp_path / "two").all_keys()) == taken
    assert os.listdir(tmp_path / "two") == ["trials"]


def test_a_compressed_archive_that_is_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    transfer.export(filled(tmp_path / "one", *range(10)), tmp_path / "a.tar.gz")
    data = (tmp_path / "a.tar.gz").read_bytes()
    bad = tmp_path / "bad.tar.gz"
    for at in range(100, len(data) - 100, len(data) // 9):
        for content in (data[:at] + b"\xff" * 20 + data[at + 20 :], data[:at]):
            bad.write_bytes(content)
            with pytest.raises(FileError, match=r"bad\.tar\.gz"):
                transfer.import_trials(Store(tmp_path / f"two {at}"), bad)


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            member = tarfile.TarInfo(_name(1))
            member.type, member.linkname = kind, "nowhere"
            archive.addfile(member)
        with pytest.raises(ValueError, match=r"a\.tar must hold files of trials only, got trials/"):
            transfer.import_trials(Store(tmp_path / "two"), tmp_path / "a.tar")
    assert Store(tmp_path / "two").all_keys() == []


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.json",
        f"/{_name(1)}",
        f"trials/../{_name(1)}",
        _name(1).replace(".json", ".txt"),
        _name(1).replace("trials", "packs"),
        f"trials/zz/{trial(1).key}.json",
    ],
)
def test_foreign_files_in_an_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = _archive(tmp_path / "odd.tar", {name: b"{}"})
    with pytest.raises(ValueError, match=r"odd\.tar must hold files of trials only, got "):
        transfer.import_trials(Store(tmp_path / "inner" / "runs"), path)
    found = {each.name for each in tmp_path.rglob("*")}
    assert found == {"odd.tar", "inner", "runs", "trials"}


def test_files_that_are_no_export_are_refused(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "runs"), tmp_path / "odd.tar"
    for content in (b"not a tar file", b""):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"^cannot read .*odd\.tar"):
            transfer.import_trials(store, path)
    with pytest.raises(FileError, match=r"^cannot read .*none\.tar"):
        transfer.import_trials(store, tmp_path / "none.tar")
    with pytest.raises(ValueError, match="store must be a folder with trials"):
        transfer.import_trials(store, tmp_path)
    with pytest.raises(ValueError, match="store must be a folder with trials"):
        transfer.export(Store(tmp_path / "nothing"), tmp_path / "a.tar")
    with pytest.raises(ValueError, match=r"path must end in \.tar or \.tar\.gz"):
        transfer.export(filled(tmp_path / "one", 1), tmp_path / "x.zip")


@pytest.mark.parametrize("what", ["arrays damaged", "arrays missing", "another trial"])
def test_damaged_trials_of_an_archive_are_named_and_not_taken(tmp_path: Path, what: str) -> None:
    members = _members(filled(tmp_path / "one", 1, 2), 1, 2)
    text, arrays = _name(1), _name(1, "safetensors")
    if what == "arrays damaged":
        members[arrays] = members[arrays][:-1] + b"!"
    elif what == "arrays missing":
        del members[arrays]
    else:
        members[text] = members[text].replace(b'"seed": 0', b'"seed": 1')
    path = _archive(tmp_path / "a.tar", members)
    store = Store(tmp_path / "two")
    found = transfer.import_trials(store, path)
    assert (found.added, found.damaged) == (1, [f"{path}: {text}"])
    assert store.all_keys() == [trial(2).key]


def test_an_archive_of_an_earlier_version_is_imported(tmp_path: Path) -> None:
    """Its last member said how many trials there are."""
    members = _members(filled(tmp_path / "one", 1, 2), 1, 2)
    keys = "".join(f"{trial(number).key}\n" for number in (1, 2))
    last = {"trials": 2, "sha256": hashlib.sha256(keys.encode()).hexdigest()}
    members["trials/END"] = json.dumps(last).encode() + b"\n"
    path = _archive(tmp_path / "a.tar", members)
    found = transfer.import_trials(Store(tmp_path / "two"), path)
    assert (found.added, found.damaged) == (2, [])
    assert Store(tmp_path / "two").missing(trials(1, 2)) == []
    path.write_bytes(path.read_bytes()[:-10_000])
    with pytest.raises(FileError, match=r"a\.tar"):
        transfer.import_trials(Store(tmp_path / "three"), path)


@pytest.mark.parametrize("order", ["arrays last", "all JSON first", "a whole folder"])
@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar on this machine")
def test_an_archive_of_plain_tar_is_imported(tmp_path: Path, order: str) -> None:
    store = filled(tmp_path / "one", 1, 2, 3)
    names = [_name(number, ending) for number in (1, 2, 3) for ending in ("json", "safetensors")]
    if order == "all JSON first":
        names.sort(key=lambda name: name.endswith(".safetensors"))
    elif order == "a whole folder":
        names = ["trials"]
    path = tmp_path / "a.tar"
    subprocess.run(["tar", "-cf", path, "-C", store.root, *names], check=True)
    found = transfer.import_trials(Store(tmp_path / "two"), path)
    assert (found.added, found.damaged) == (3, [])
    assert Store(tmp_path / "two").missing(trials(1, 2, 3)) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_and_no_permission_are_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    store, other = filled(tmp_path / "one", 1), Store(tmp_path / "two")
    transfer.export(store, tmp_path / "a.tar")
    (tmp_path / "b.tar").write_bytes(b"earlier")
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", fail)
        with pytest.raises(FileError, match=rf"^cannot write .*b\.tar: {os.strerror(number)}$"):
            transfer.export(store, tmp_path / "b.tar")
    assert (tmp_path / "b.tar").read_bytes() == b"earlier"
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match=rf"^cannot write .*two.*: {os.strerror(number)}$"):
        transfer.import_trials(other, tmp_path / "a.tar")
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "b.tar", "one", "two"]
    assert os.listdir(tmp_path / "two") == ["trials"]
    assert other.all_keys() == []
