"""The files of a data set from the first place that has them, checked, and kept in a cache.

Where the files of a data set can be had: a folder, a mirror on the web, or by conversion.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from extremal._files import FileError, as_path, read_whole, write_whole
from extremal._progress import Bar, Progress
from extremal.data.fetching.archives import ArchiveError, gunzip, members

_ANSWER = 4.0  # seconds that a mirror may be silent
_PIECE = 1 << 18  # bytes read between two words on progress

BytesReceived = Callable[[int], None]  # how many more bytes have come


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

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]: ...


@dataclass(frozen=True)
class Folder:
    """A folder with the files, as they are or as .gz."""

    path: Path
    label: str

    @property
    def title(self) -> str:
        return f"{self.label} {self.path}"

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
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

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
        """Each file; the first that can't be had ends it, so that no network costs one wait."""
        for file in files:
            try:
                yield file, gunzip(self._packed(file, tell), file.size)
            except (OSError, http.client.HTTPException, ArchiveError) as error:
                reason = getattr(error, "reason", None) or error
                raise SourceError(f"{file.name}.gz: {reason}") from error

    def _packed(self, file: File, tell: BytesReceived) -> bytes:
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

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
        """All files out of the one packed file."""
        try:
            packed = _read(self.address, self.most, tell)
            wanted = {f"{self.folder}/{file.name}": file.size for file in files}
            found = members(packed, wanted)
        except (OSError, http.client.HTTPException, ArchiveError) as error:
            raise SourceError(str(getattr(error, "reason", None) or error)) from error
        for file in files:
            yield file, found[f"{self.folder}/{file.name}"]


def _read(address: str, most: int, tell: BytesReceived) -> bytes:
    """What lies at an address, cut after about `most` bytes."""
    packed = bytearray()
    with urllib.request.urlopen(address, timeout=_ANSWER) as answer:
        while len(packed) < most and (piece := answer.read(_PIECE)):
            packed += piece
            tell(len(piece))
    return bytes(packed)


@dataclass(frozen=True)
class Converted:
    """Files that are made from those of another source, which has them in another form."""

    source: Source
    files: tuple[File, ...]  # what is asked of it
    make: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]

    @property
    def title(self) -> str:
        return self.source.title

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
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


_MEGABYTE = 1_000_000


class DataError(FileError):
    """A data set can't be had; one line names each source that was tried and why it failed."""


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder of fetched files: `cache`, or EXTREMAL_CACHE, or extremal in the user's cache."""
    if cache is not None:
        return as_path(cache)
    own = os.environ.get("EXTREMAL_CACHE")
    if own:
        return Path(own)
    users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(users) / "extremal"


def fetch(
    name: str,
    files: Sequence[File],
    sources: Sequence[Source],
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> dict[str, bytes]:
    """The content of each file by its name, with the size and the SHA-256 that it should have.

    Tried in order: the folder `name` below EXTREMAL_DATA, the one in the cache, the `sources`. Of
    each only good files are taken, and what a source gave is written to the cache, whole or not at
    all, so that a spoilt or cut cached file is replaced. Where some file can't be had, or the cache
    can't be written, which is seen before any source is asked, it is a `DataError`.

    Arguments:

    - `name`: the data set's name, which is its folder's and stands in errors and on the bar.
    - `files`: the wanted files, each a `File` with its name, size in bytes and SHA-256.
    - `sources`: where missing files are had, such as a `Mirror`; may be empty.
    - `cache`: the folder of all fetched data; None for the one that `cache_folder` names.
    - `progress`: False, True for a bar on the standard error, or a function of (what, done, total),
      in megabytes.
    """
    stored = cache_folder(cache) / name
    bar = Bar(name, _megabytes(sum(file.size for file in files)), progress)
    search = _Search(files)
    given = os.environ.get("EXTREMAL_DATA")
    if given:
        search.ask(Folder(Path(given) / name, "EXTREMAL_DATA"))
    else:
        search.reasons.append("EXTREMAL_DATA is not set")
    search.ask(Folder(stored, "cache"))
    if search.missing:
        _check_writable(name, stored)
        with bar:
            for source in sources:
                _ask_far(search, source, stored, bar)
    if search.missing:
        raise DataError(f"cannot load {name}: {'; '.join(search.reasons)}")
    return search.found


class _Search:
    """What was found so far, and why the rest was not."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self.found: dict[str, bytes] = {}
        self.reasons: list[str] = []

    @property
    def missing(self) -> list[File]:
        return [file for file in self.files if file.name not in self.found]

    def ask(self, source: Source, tell: BytesReceived = lambda _: None) -> list[str]:
        """Take the good ones of the missing files from a source; their names."""
        before, faults = set(self.found), []
        try:
            for file, content in source.get(self.missing, tell):
                fault = file.fault(content)
                if fault is None:
                    self.found[file.name] = content
                else:
                    faults.append(fault)
        except SourceError as error:
            faults.append(str(error))
        if faults:
            self.reasons.append(f"{source.title}: {', '.join(faults)}")
        return [name for name in self.found if name not in before]


def _check_writable(name: str, folder: Path) -> None:
    """Refuse a cache that can't keep what is to be downloaded."""
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        kind = "may not be written" if there.is_dir() else "is not a folder"
        told = f"the cache {folder} can't be written, since {there} {kind}"
        raise DataError(f"cannot load {name}: {told}; EXTREMAL_CACHE names another one")


def _ask_far(search: _Search, source: Source, stored: Path, bar: Bar) -> None:
    """Ask a source where anything is still missing, and keep what it gave."""
    if not search.missing:
        return
    come = 0

    def tell(count: int) -> None:
        nonlocal come
        come += count
        bar.done(come // _MEGABYTE)

    for name in search.ask(source, tell):
        write_whole(stored / name, search.found[name], make_folders=True)
    bar.done(_megabytes(sum(map(len, search.found.values()))))


def _megabytes(count: int) -> int:
    return -(-count // _MEGABYTE)
