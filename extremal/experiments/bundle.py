"""Many records in one file: what a store's packs and its index are made of.

Each record is a line of JSON, ``[key, length, stamp, stamp of the arrays]``, and then as many bytes
as it says, as they stood in the record's own file. The last line has the checksum of all before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from extremal._check import require
from extremal.experiments.sealed import trial_of, unseal

Stamp = tuple[int, int, int]
_HEAD = re.compile(rb'^\["([0-9a-f]{64})",', re.MULTILINE)
_LAST = re.compile(rb'\["end","([0-9a-f]{64})"\]\n\Z')
# A record has no line break within a row, so that nothing else in it looks like these.
_FIRST_ROW = re.compile(rb'\{\n"study": ')
_LAST_ROW = re.compile(rb'\n"checksum": "[0-9a-f]{64}"\n\}\n')


@dataclass(frozen=True)
class Entry:
    """A record and how its files looked when they were last read and found whole.

    `stamp` is that of the record's own file, None where it has none but the pack; `arrays` is that
    of the file with its arrays, None where it has no arrays.
    """

    key: str
    text: bytes
    stamp: Stamp | None
    arrays: Stamp | None


def stamp_of(path: str | Path) -> Stamp | None:
    """What changes whenever a file does: its size and the times of its last changes."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def dump(entries: Iterable[Entry]) -> bytes:
    """The file of these records, in the order of their keys: the same bytes for the same ones."""
    parts = []
    for entry in sorted(entries, key=lambda entry: entry.key):
        head = [entry.key, len(entry.text), entry.stamp, entry.arrays]
        parts += [json.dumps(head, separators=(",", ":")).encode(), b"\n", entry.text]
    body = b"".join(parts)
    return body + b'["end","%s"]\n' % hashlib.sha256(body).hexdigest().encode()


def load(data: bytes) -> dict[str, Entry]:
    """The records of a file by key; ValueError unless each byte is in place."""
    last = _LAST.search(data, max(0, len(data) - 100))
    body = memoryview(data)[: last.start()] if last else memoryview(data)
    whole = last is not None and hashlib.sha256(body).hexdigest().encode() == last[1]
    require(whole, "checksum", "fit the content", "another content")
    found, at = {}, 0
    while at < len(body):
        end = data.index(b"\n", at) + 1
        key, length, stamp, arrays = json.loads(data[at:end])
        at = end + length
        found[key] = Entry(key, data[end:at], _stamp(stamp), _stamp(arrays))
    return found


def named(data: bytes) -> list[str]:
    """The keys in a damaged file, as far as they can be read."""
    return [match[1].decode() for match in _HEAD.finditer(data)]


def salvage(data: bytes) -> dict[str, Entry]:
    """Those records of a damaged file that are whole, by key."""
    starts = [match.start() for match in _FIRST_ROW.finditer(data)]
    found = {}
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        last = _LAST_ROW.search(data, start, end)
        text = data[start : last.end()] if last else b""
        try:
            key = trial_of(unseal(text)).key
        except (ValueError, KeyError, TypeError):
            continue
        found[key] = Entry(key, text, None, None)
    return found


def _stamp(value: list[int] | None) -> Stamp | None:
    return None if value is None else (value[0], value[1], value[2])
