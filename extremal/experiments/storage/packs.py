"""Packs: the JSON files of many finished trials in one file, a line each.

``<root>/packs/<first 2 of the keys>-<start of the SHA-256>.jsonl`` has for each trial a line
``{"key": ..., "sha256": ..., "file": ...}``, where "file" is the text that the trial's own file had
and "sha256" the checksum of key and text: a damaged line costs one trial. A pack never changes; its
name tells whether it is whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from extremal._files import FileError, read_whole, write_whole

_log = logging.getLogger(__name__)
_KEY = re.compile("[0-9a-f]{64}")
Texts = dict[str, bytes]
"""Texts of trial files by the trials' keys."""


class Packs:
    """The packs of one store, each of which is loaded when it is first needed."""

    def __init__(self, folder: Path, damaged: list[Path]) -> None:
        self.folder = folder
        self.damaged = damaged  # gets the packs that are
        self._loaded: dict[Path, Texts] = {}
        self._known: Texts = {}  # all that was loaded: a pack never changes

    def files(self, start: str = "") -> list[Path]:
        """The packs of keys that begin like this, in order."""
        try:
            names = sorted(n for n in os.listdir(self.folder) if n.startswith(start))
        except (FileNotFoundError, NotADirectoryError):
            return []
        for name in names:
            if name.endswith(".pack"):
                advice = "`store export` by the version that made it, `store import` elsewhere"
                raise FileError(f"{self.folder / name} is a pack of an older form: {advice}")
        return [self.folder / name for name in names if name.endswith(".jsonl")]

    def text(self, key: str) -> bytes | None:
        """The text of the file of the trial with that key, or None."""
        if key not in self._known:
            self._texts(key[:2])
        return self._known.get(key)

    def keys(self) -> set[str]:
        """The keys of all trials in packs."""
        return set[str]().union(*self._texts())

    def load(self, path: Path) -> Texts | None:
        """The texts in a pack, or None where it is no longer there.

        A damaged one is set aside, and those of its lines that are whole become another pack.
        """
        data = None if path in self._loaded else read_whole(path)
        if data is None:
            return self._loaded.get(path)
        whole = path.name == _name(path.name[:2], data)
        self._loaded[path] = texts = _whole_lines(data)
        self._known |= texts
        if not whole:
            _log.warning("damaged pack %s: set aside; %d lines are kept", path, len(texts))
            self.damaged.append(path)
            with suppress(FileError, OSError):  # A store that is read-only keeps its files.
                # Where no line was lost, it is the same pack again, and whole now.
                if not texts or self.add(path.name[:2], texts) != path:
                    os.replace(path, path.with_name(path.name + ".corrupt"))
        return texts

    def add(self, start: str, texts: Mapping[str, bytes]) -> Path:
        """Write a pack of trials whose keys begin with `start`."""
        data = b"".join(_line(key, texts[key]) for key in sorted(texts))
        path = self.folder / _name(start, data)
        write_whole(path, data, make_folders=True)
        self._loaded.pop(path, None)  # It is read again when it is next needed.
        return path

    def _texts(self, start: str = "") -> list[Texts]:
        """The texts in each of the packs of keys that begin like this."""
        paths, before = self.files(start), None
        # Again where one was merged into another a moment ago; a link to nothing stays.
        while None in (found := [self.load(path) for path in paths]) and paths != before:
            paths, before = self.files(start), paths
        return [texts for texts in found if texts is not None]


def _line(key: str, text: bytes) -> bytes:
    entry = {"key": key, "sha256": _checksum(key, text), "file": text.decode()}
    return json.dumps(entry).encode() + b"\n"


def _checksum(key: str, text: bytes) -> str:
    return hashlib.sha256(key.encode() + text).hexdigest()


def _name(start: str, data: bytes) -> str:
    return f"{start}-{hashlib.sha256(data).hexdigest()[:32]}.jsonl"


def _whole_lines(data: bytes) -> Texts:
    found: Texts = {}
    for line in data.splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            entry = json.loads(line)
            key, text = entry["key"], entry["file"].encode()
            # A key is part of a path: it is nothing but a checksum, whoever wrote the pack.
            if _KEY.fullmatch(key) and entry["sha256"] == _checksum(key, text):
                found[key] = text
    return found
