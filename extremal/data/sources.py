"""Where the files of a data set can be had: a folder, a mirror on the web, or by conversion."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from extremal._files import FileError, read_whole
from extremal.data.archive import ArchiveError, gunzip, members

_ANSWER = 4.0  # seconds that a mirror may be silent
_PIECE = 1 << 18  # bytes read between two words on progress

Tell = Callable[[int], None]  # how many more bytes have come


class SourceError(Exception):
    """A source does not have what it was asked for; the message says why, in one line."""


@dataclass(frozen=True)
class File:
    """One file of a data set: its name, and the size and SHA-256 of its (unpacked) content."""

    name: str
    size: int
    sha256: str

    def fault(self, content: bytes) -> str | None:
        """What is wrong with a content of this file, or None."""
        if len(content) != self.size:
            kind = "more" if len(content) > self.size else "fewer"
            return f"{self.name} has {kind} than its {self.size} bytes"
        if hashlib.sha256(content).hexdigest() != self.sha256:
            return f"{self.name} has another SHA-256 than it should"
        return None


class Source(Protocol):
    """Anything that can be asked for files; it need not check what it gives."""

    @property
    def title(self) -> str: ...

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]: ...


@dataclass(frozen=True)
class Folder:
    """A folder with the files, as they are or as .gz."""

    path: Path
    label: str

    @property
    def title(self) -> str:
        return f"{self.label} {self.path}"

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]:
        """Each file that is there; then an error where one is not."""
        del tell
        missing = []
        for file in files:
            try:
                content = self._content(file)
            except (FileError, ArchiveError) as error:
                raise SourceError(f"{file.name}: {error}") from error
            if content is None:
                missing.append(file.name)
            else:
                yield file, content
        if missing:
            raise SourceError(f"no {', '.join(missing)}")

    def _content(self, file: File) -> bytes | None:
        plain = read_whole(self.path / file.name)
        if plain is not None:
            return plain
        packed = read_whole(self.path / f"{file.name}.gz")
        return None if packed is None else gunzip(packed, file.size)


@dataclass(frozen=True)
class Mirror:
    """A web address below which each file lies as .gz."""

    address: str

    @property
    def title(self) -> str:
        return f"mirror {self.address}"

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]:
        """Each file; the first that can't be had ends it, so that no network costs one wait."""
        for file in files:
            try:
                yield file, gunzip(self._packed(file, tell), file.size)
            except (OSError, http.client.HTTPException, ArchiveError) as error:
                reason = getattr(error, "reason", None) or error
                raise SourceError(f"{file.name}.gz: {reason}") from error

    def _packed(self, file: File, tell: Tell) -> bytes:
        most = 2 * file.size + 1024  # gz never makes a file this much longer
        return _read(f"{self.address}{file.name}.gz", most, tell)


@dataclass(frozen=True)
class PackedMirror:
    """A web address of one tar.gz file that holds all files."""

    address: str
    most: int  # bytes that it may have
    folder: str  # of the files inside it

    @property
    def title(self) -> str:
        return f"mirror {self.address}"

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]:
        """All files out of the one packed file."""
        try:
            packed = _read(self.address, self.most, tell)
            wanted = {f"{self.folder}/{file.name}": file.size for file in files}
            found = members(packed, wanted)
        except (OSError, http.client.HTTPException, ArchiveError) as error:
            raise SourceError(str(getattr(error, "reason", None) or error)) from error
        for file in files:
            yield file, found[f"{self.folder}/{file.name}"]


def _read(address: str, most: int, tell: Tell) -> bytes:
    """What lies at an address, cut after about `most` bytes."""
    packed = bytearray()
    with urllib.request.urlopen(address, timeout=_ANSWER) as answer:
        while len(packed) < most and (piece := answer.read(_PIECE)):
            packed += piece
            tell(len(piece))
    return bytes(packed)


@dataclass(frozen=True)
class Made:
    """Files that are made from those of another source, which has them in another form."""

    source: Source
    files: tuple[File, ...]  # what is asked of it
    make: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]

    @property
    def title(self) -> str:
        return self.source.title

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]:
        """All files, made at once; what they are made from is checked first."""
        contents = {}
        for file, content in self.source.get(self.files, tell):
            fault = file.fault(content)
            if fault is not None:
                raise SourceError(fault)
            contents[file.name] = content
        made = self.make(contents)
        for file in files:
            yield file, made[file.name]
