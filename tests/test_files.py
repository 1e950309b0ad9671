"""Files that are whole or absent, and the one line that says why one could not be written."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
from pathlib import Path

import pytest
import torch

from extremal import experiments
from extremal._files import FileError, as_path, json_file, read_whole, write_whole
from extremal.experiments import Outcome, Store, Trial
from extremal.models import PReLUNet
from extremal.report import save_figure


def net() -> PReLUNet:
    return PReLUNet(3, 2, 3.0, generator=torch.Generator())


def line(act: str, path: Path, why: str) -> str:
    return rf"^cannot {act} {re.escape(str(path))}: {why}$"


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "file"
    assert read_whole(path) is None
    for data in (b"one", b"", bytes(range(256)) * 1000):
        write_whole(path, data)
        assert read_whole(path) == data
    write_whole(str(path), b"by name")
    assert read_whole(str(path)) == b"by name"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_mode_is_the_usual_one(mask, tmp_path):
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_folders_are_made_only_where_asked(tmp_path):
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(FileError, match=line("write", path, f"no such folder {path.parent}")):
        write_whole(path, b"")
    assert os.listdir(tmp_path) == []
    write_whole(path, b"x", make_folders=True)
    write_whole(path, b"y", make_folders=True)
    assert path.read_bytes() == b"y"


PLACES = {
    "a file as folder": ("file/net", "Not a directory"),
    "a folder": ("folder", "Is a directory"),
    "no name": (".", ".+"),
    "too long": ("n" * 300, "File name too long"),
    "null": ("a\0b", ".*null.*"),
    "proc": ("/proc/x", ".+"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_a_place_that_takes_no_file_is_one_clear_line(kind, tmp_path):
    (tmp_path / "file").write_text("here")
    (tmp_path / "folder").mkdir()
    name, why = PLACES[kind]
    path = tmp_path / name
    for act in (lambda: write_whole(path, b"x"), lambda: net().save(path)):
        with pytest.raises(FileError, match=line("write", path, why)):
            act()
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_failed_write_leaves_the_old_file(step, number, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(FileError, match=line("write", path, os.strerror(number))):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_content_is_flushed_before_it_gets_its_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda number: seen.append(os.fstat(number).st_size))
    replace = os.replace

    def note(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        seen.append("named")
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    write_whole(path, b"12345")
    assert seen == [5, "named"]


def test_an_interrupt_leaves_nothing_and_stays_an_interrupt(tmp_path, monkeypatch):
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"x")
    assert os.listdir(tmp_path) == []


def test_reading(tmp_path):
    (tmp_path / "file").write_text("")
    assert read_whole(tmp_path / "file" / "inside") is None
    assert read_whole(tmp_path / "none" / "inside") is None
    with pytest.raises(FileError, match=line("read", tmp_path, "Is a directory")):
        read_whole(tmp_path)


@pytest.mark.parametrize("path", [3, None, b"name"])
def test_what_is_no_path_is_named(path):
    for act in (as_path, read_whole, lambda path: write_whole(path, b"")):
        with pytest.raises(ValueError, match=r"^path must be a string or a Path, got "):
            act(path)


def test_errors_travel_between_processes():
    back = pickle.loads(pickle.dumps(FileError("cannot write a: no")))
    assert (type(back), str(back)) == (FileError, "cannot write a: no")
    assert issubclass(FileError, ValueError)
    assert experiments.FileError is FileError


def test_json_has_a_line_a_key_and_no_nan():
    content = {"a": 0.1, "b": {"c": [1, None], "d": "é"}}
    text = json_file(content)
    assert text == b'{\n"a": 0.1,\n"b": {"c":[1,null],"d":"\\u00e9"}\n}\n'
    assert json.loads(text) == content
    with pytest.raises(ValueError, match="JSON compliant"):
        json_file({"a": float("nan")})


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_to_be_new_leaves_one_that_is_there(links, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    assert write_whole(path, b"first", new=True)
    assert not write_whole(path, b"second", new=True)
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_arrays_that_cannot_be_read_are_not_set_aside_as_damaged(tmp_path, monkeypatch):
    store, trial = Store(tmp_path), Trial("module:study", {}, 0)
    store.write(trial, Outcome({"a": 1.0}, {"b": torch.ones(2)}), 0.0)
    read = Path.read_bytes

    def deny(path: Path) -> bytes:
        if path.suffix == ".safetensors":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", deny)
        with pytest.raises(FileError, match=r"^cannot read .*\.safetensors: Permission denied$"):
            store.read(trial)
    assert store.has(trial)


def test_reports_say_where_they_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    summary = {"title": "t", "panels": [], "columns": 1}
    with pytest.raises(FileError, match=r"^cannot write .*figure\.png: .*(exists|directory)$"):
        save_figure(summary, tmp_path / "file")
