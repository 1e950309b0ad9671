"""The files of a store: strict JSON, errors of their own kind, and the cleaning up after kills."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from extremal import _files


class StoreError(_files.FileError):
    """Results can't be written or read: no space, no permission, no such place."""


def json_file(content: Mapping[str, object]) -> bytes:
    """The strict JSON text of a mapping, with one key a line: small, and its diffs can be read."""
    rows = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'), allow_nan=False)}"
        for key, value in content.items()
    ]
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def write_whole(path: Path, data: bytes) -> None:
    """Write a result, whole or not at all; its folder is made where it is missing."""
    with _store_errors():
        _files.write_whole(path, data, make_folders=True)


def write_new(path: Path, data: bytes) -> bool:
    """The same where there is no such file; one that is there stays, and this is False."""
    with _store_errors():
        return _files.write_whole(path, data, make_folders=True, new=True)


def read_whole(path: Path) -> bytes | None:
    """The content of a file, or None where there is none."""
    with _store_errors():
        return _files.read_whole(path)


def remove_stale(paths: Iterable[Path], age: float) -> None:
    """Remove those files that were last changed more than `age` seconds ago."""
    before = time.time() - age
    for path in paths:
        # Another process may remove it at the same time, or the folder may be read-only.
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


@contextmanager
def _store_errors() -> Iterator[None]:
    """Tell the store's errors from those of a study that reads or writes files of its own."""
    try:
        yield
    except _files.FileError as error:
        raise StoreError(str(error)) from error
