"""Chosen files out of a packed archive, into memory: nothing is written and nothing is run."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Literal


class ArchiveError(ValueError):
    """An archive is broken, or has something in it that a data archive has no need of."""


def gunzip(content: bytes, most: int) -> bytes:
    """The content of a gz file, cut after `most` bytes and one, which tells that it was longer."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            return packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"not a whole gz file ({error})") from error


def members(content: bytes, most: Mapping[str, int], *, packing: str = "gz") -> dict[str, bytes]:
    """The named members of a tar file in gz or xz, plain files of at most `most` bytes each.

    The whole archive is refused where any member is a link or a device, or lies outside it.
    """
    found: dict[str, bytes] = {}
    mode: Literal["r:gz", "r:xz"] = "r:gz" if packing == "gz" else "r:xz"
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode=mode) as packed:
            for member in packed:
                _refuse(member)
                name = member.name.removeprefix("./")
                if name in most and member.size <= most[name] and member.isreg():
                    file = packed.extractfile(member)
                    assert file is not None
                    found[name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ArchiveError(f"not a whole tar.{packing} file ({error})") from error
    missing = [name for name in most if name not in found]
    if missing:
        raise ArchiveError(f"no {missing[0]} of at most {most[missing[0]]} bytes in it")
    return found


def debian_members(content: bytes, most: Mapping[str, int]) -> dict[str, bytes]:
    """The named files that a Debian package would install, as `members`: its data.tar.xz.

    A package is an ar file: `!<arch>`, and for each member 60 bytes of header (16 of name, 10 of
    size from the 48th on) and the content, padded to an even length.
    """
    if content[:8] != b"!<arch>\n":
        raise ArchiveError("not a Debian package")
    at = 8
    while at + 60 <= len(content):
        name, size = content[at : at + 16].strip(b" /"), content[at + 48 : at + 58].strip()
        if not size.isdigit():
            break
        begin, at = at + 60, at + 60 + int(size) + int(size) % 2
        if name == b"data.tar.xz":
            return members(content[begin : begin + int(size)], most, packing="xz")
    raise ArchiveError("no data.tar.xz in the Debian package")


def zip_members(content: bytes, most: Mapping[str, int]) -> dict[str, bytes]:
    """The named members of a zip file (a wheel), plain files of at most `most` bytes each."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name, size in most.items():
                if name not in packed.namelist():
                    raise ArchiveError(f"no {name} in it")
                with packed.open(name) as file:
                    found[name] = file.read(size + 1)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"not a whole zip file ({error})") from error
    return found


def _refuse(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise ArchiveError(f"{member.name} is neither a file nor a folder")
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"{member.name} lies outside the archive")
