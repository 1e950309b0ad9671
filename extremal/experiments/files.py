"""Files that are whole or absent: written under another name, flushed, then renamed."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path


class StoreError(Exception):
    """Results can't be written or read: no space, no permission, no such place."""


def json_file(content: Mapping[str, object]) -> bytes:
    """The strict JSON text of a mapping, with one key a line: small, and its diffs can be read."""
    rows = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'), allow_nan=False)}"
        for key, value in content.items()
    ]
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that at every moment it is the old one, the new one or none.

    The temporary file lies in the same folder, since a rename is atomic only within a file system.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not tempfile: its files are for their owner only, and a store may be shared.
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def read_whole(path: Path) -> bytes | None:
    """The content of a file, or None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def remove_stale(paths: Iterable[Path], age: float) -> None:
    """Remove those files that were last changed more than `age` seconds ago."""
    before = time.time() - age
    for path in paths:
        # Another process may remove it at the same time, or the folder may be read-only.
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
