"""The files of a data set from the first source that has them, checked, and kept in a cache."""

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
from extremal.data.fetching.archives import ArchiveReader, SourceError, gunzip, tar_members

# The sizes and checksums of all files that the package can fetch: folder, name, bytes, SHA-256.
_REGISTRY_FILE = Path(__file__).parent / "registry.txt"

# A mirror that is silent for so long is given up, so that no network costs only one short wait.
_SILENCE_SECONDS = 4.0

# So many bytes are read from a mirror between two reports of progress.
_PIECE_BYTES = 1 << 18

# Progress is counted in megabytes of so many bytes.
_MEGABYTE_BYTES = 1_000_000

BytesReceived = Callable[[int], None]
"""A function that is told how many more bytes have come."""


class DataError(FileError):
    """A data set can't be had; one line names each source that was tried and why it failed."""


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, with the size and SHA-256 of its content as it is once unpacked."""

    name: str  # The name of the file in its folder.
    size: int  # The number of bytes.
    sha256: str  # The checksum in 64 hexadecimal digits.

    def fault(self, content: bytes) -> str | None:
        """What is wrong with `content`, the bytes of this file, or None."""
        if len(content) != self.size:
            kind = "more" if len(content) > self.size else "fewer"
            return f"{self.name} has {kind} than its {self.size} bytes"
        if hashlib.sha256(content).hexdigest() != self.sha256:
            return f"{self.name} has another SHA-256 than it should"
        return None


def registered_files(folder: str) -> tuple[DataFile, ...]:
    """The files that belong into a folder of the cache, as `registry.txt` has them.

    Arguments:

    - `folder`: the name of a data set or network, the first word of its lines.
    """
    rows = [line.split() for line in _REGISTRY_FILE.read_text().splitlines()]
    return tuple(
        DataFile(name, int(size), sha256) for place, name, size, sha256 in rows if place == folder
    )


class Source(Protocol):
    """Anything that can be asked for files; it need not check what it gives."""

    @property
    def title(self) -> str:
        """What the source is called in errors."""
        ...

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """Files with their contents; a `SourceError` where one can't be had."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder with the files, as they are or as .gz."""

    path: Path
    label: str

    @property
    def title(self) -> str:
        return f"{self.label} {self.path}"

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """Each file that is there; then an error where one is not."""
        del received
        missing = []
        for file in files:
            try:
                content = read_whole(self.path / file.name)
                if content is None:
                    packed = read_whole(self.path / f"{file.name}.gz")
                    content = None if packed is None else gunzip(packed, file.size)
            except (FileError, SourceError) as error:
                raise SourceError(f"{file.name}: {error}") from error
            if content is None:
                missing.append(file.name)
            else:
                yield file, content
        if missing:
            raise SourceError(f"no {', '.join(missing)}")


@dataclass(frozen=True)
class Mirror:
    """A web address below which each file lies as .gz."""

    address: str

    @property
    def title(self) -> str:
        return f"mirror {self.address}"

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """Each file; the first that can't be had ends it."""
        for file in files:
            try:
                packed = _read_address(
                    f"{self.address}{file.name}.gz", most_packed(file.size), received
                )
                yield file, gunzip(packed, file.size)
            except SourceError as error:
                raise SourceError(f"{file.name}.gz: {error}") from error


@dataclass(frozen=True)
class PackedMirror:
    """A web address of one tar.gz file that holds all files."""

    address: str
    most: int  # The packed file is cut after so many bytes.
    folder: str  # The files lie in this folder of the packed file.

    @property
    def title(self) -> str:
        return f"mirror {self.address}"

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """All files out of the one packed file."""
        packed = _read_address(self.address, self.most, received)
        yield from unpacked(packed, tar_members, self.folder, files)


@dataclass(frozen=True)
class Converted:
    """Files that are made from those of another source, which has them in another form."""

    source: Source
    files: tuple[DataFile, ...]  # These are asked of the source.
    convert: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]  # Contents by name.

    @property
    def title(self) -> str:
        return self.source.title

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """All files, made at once; what they are made from is checked first."""
        contents = {}
        for file, content in self.source.get(self.files, received):
            fault = file.fault(content)
            if fault is not None:
                raise SourceError(fault)
            contents[file.name] = content
        converted = self.convert(contents)
        for file in files:
            yield file, converted[file.name]


def unpacked(
    packed: bytes, read: ArchiveReader, folder: str, files: Sequence[DataFile], *, gz: bool = False
) -> Iterator[tuple[DataFile, bytes]]:
    """Files out of a folder of one archive, in which they may lie as .gz once more."""
    names = {file: f"{folder}/{file.name}{'.gz' if gz else ''}" for file in files}
    most = {names[file]: most_packed(file.size) if gz else file.size for file in files}
    found = read(packed, most)
    for file in files:
        content = found[names[file]]
        yield file, gunzip(content, file.size) if gz else content


def most_packed(size: int) -> int:
    """More bytes than gz makes of `size` bytes, whatever they are."""
    return 2 * size + 1024


def _read_address(address: str, most: int, received: BytesReceived) -> bytes:
    """What lies at a web address, cut after about `most` bytes."""
    content = bytearray()
    try:
        with urllib.request.urlopen(address, timeout=_SILENCE_SECONDS) as answer:
            while len(content) < most and (piece := answer.read(_PIECE_BYTES)):
                content += piece
                received(len(piece))
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(str(getattr(error, "reason", None) or error)) from error
    return bytes(content)


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
    files: Sequence[DataFile],
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
    - `files`: the wanted files, each a `DataFile` with its name, size in bytes and SHA-256.
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
                if search.missing:
                    _from_source(search, source, stored, bar)
    if search.missing:
        raise DataError(f"cannot load {name}: {'; '.join(search.reasons)}")
    return search.found


class _Search:
    """What was found so far, and why the rest was not."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.files = files
        self.found: dict[str, bytes] = {}
        self.reasons: list[str] = []

    @property
    def missing(self) -> list[DataFile]:
        return [file for file in self.files if file.name not in self.found]

    def ask(self, source: Source, received: BytesReceived = lambda _: None) -> list[str]:
        """Take the good ones of the missing files from a source; their names."""
        before, faults = set(self.found), []
        try:
            for file, content in source.get(self.missing, received):
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
    nearest = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        reason = "may not be written" if nearest.is_dir() else "is not a folder"
        raise DataError(
            f"cannot load {name}: the cache {folder} can't be written, since {nearest} {reason}; "
            "EXTREMAL_CACHE names another one"
        )


def _from_source(search: _Search, source: Source, stored: Path, bar: Bar) -> None:
    """Ask a source for what is missing, and keep what it gave."""
    total = 0

    def received(count: int) -> None:
        nonlocal total
        total += count
        bar.done(total // _MEGABYTE_BYTES)

    for name in search.ask(source, received):
        write_whole(stored / name, search.found[name], make_folders=True)
    bar.done(_megabytes(sum(map(len, search.found.values()))))


def _megabytes(count: int) -> int:
    """A number of bytes in megabytes, rounded up."""
    return -(-count // _MEGABYTE_BYTES)
