"""Packs: the JSON files of many finished trials in one file, a line each.

``<root>/packs/<first 2 of the keys>-<start of the SHA-256>.jsonl`` has for each trial a line
``{"key": ..., "sha256": ..., "file": ...}``, where "file" is the text that the trial's own file had
and "sha256" its checksum: a damaged line costs one trial. A pack never changes; its name tells
whether it is whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from extremal._files import FileError, read_whole, write_whole

_log = logging.getLogger(__name__)
Texts = dict[str, bytes]
"""Texts of trial files by the trials' keys."""


class Packs:
    """The packs of one store, each of which is loaded when it is first needed."""

    def __init__(self, folder: Path, damaged: list[Path]) -> None:
        self.folder = folder
        self.damaged = damaged  # gets the packs that are
        self._loaded: dict[Path, Texts] = {}

    def files(self, start: str = "") -> list[Path]:
        """The packs of keys that begin like this, in order."""
        try:
            names = sorted(os.listdir(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        for name in names:
            if name.endswith(".pack"):
                raise FileError(
                    f"{self.folder / name} is a pack of an older form: `extremal store export` it "
                    "with the version that made it, and `extremal store import` that here"
                )
        return [self.folder / n for n in names if n.startswith(start) and n.endswith(".jsonl")]

    def text(self, key: str) -> bytes | None:
        """The text of the file of the trial with that key, or None."""
        while True:
            found = [self.load(path) for path in self.files(key[:2])]
            if None not in found:  # One of them was merged into another a moment ago: look again.
                return next((texts[key] for texts in found if texts and key in texts), None)

    def keys(self) -> Iterator[str]:
        """The keys of all trials in packs."""
        for path in self.files():
            yield from self.load(path) or {}

    def load(self, path: Path) -> Texts | None:
        """The texts in a pack, or None where it is no longer there.

        A damaged one is set aside, and those of its lines that are whole become another pack.
        """
        if path not in self._loaded:
            data = read_whole(path)
            if data is None:
                return None
            texts = _whole_lines(data)
            self._loaded[path] = texts
            if path.name != _name(path.name[:2], data):
                _log.warning("damaged pack %s: set aside; %d lines are kept", path, len(texts))
                self.damaged.append(path)
                with suppress(FileError, OSError):  # A store that is read-only keeps its files.
                    if texts:
                        self.add(path.name[:2], texts)
                    os.replace(path, path.with_name(path.name + ".corrupt"))
        return self._loaded[path]

    def add(self, start: str, texts: Mapping[str, bytes]) -> Path:
        """Write a pack of trials whose keys begin with `start`."""
        data = b"".join(_line(key, texts[key]) for key in sorted(texts))
        path = self.folder / _name(start, data)
        write_whole(path, data, make_folders=True)
        return path


def _line(key: str, text: bytes) -> bytes:
    checksum = hashlib.sha256(text).hexdigest()
    return json.dumps({"key": key, "sha256": checksum, "file": text.decode()}).encode() + b"\n"


def _name(start: str, data: bytes) -> str:
    return f"{start}-{hashlib.sha256(data).hexdigest()[:32]}.jsonl"


def _whole_lines(data: bytes) -> Texts:
    """The texts of those lines that are whole."""
    found: Texts = {}
    for line in data.splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            entry = json.loads(line)
            text = entry["file"].encode()
            if entry["sha256"] == hashlib.sha256(text).hexdigest():
                found[str(entry["key"])] = text
    return found
