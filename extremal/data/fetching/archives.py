"""Chosen files out of a packed archive, into memory: nothing is written and nothing is run.

Each reader takes the bytes of an archive and, for each wanted file, the most bytes that it may
have. An archive that is broken, or that lacks a file, is a `SourceError`.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Literal

ArchiveReader = Callable[[bytes, Mapping[str, int]], dict[str, bytes]]


class SourceError(Exception):
    """A source does not have what it was asked for; the message says why, in one line."""


def gunzip(content: bytes, most: int) -> bytes:
    """The content of a gz file, cut after `most` + 1 bytes: one too many shows it was longer."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            return packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"not a whole gz file ({error})") from error


def tar_members(
    content: bytes, most: Mapping[str, int], compression: Literal["gz", "xz"] = "gz"
) -> dict[str, bytes]:
    """The named members of a compressed tar file.

    The whole archive is refused where any member is a link or a device, or lies outside it: no
    archive of data needs one.
    """
    found: dict[str, bytes] = {}
    mode: Literal["r:gz", "r:xz"] = "r:gz" if compression == "gz" else "r:xz"
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode=mode) as packed:
            for member in packed:
                _check_harmless(member)
                name = member.name.removeprefix("./")
                if name in most and member.size <= most[name] and member.isreg():
                    file = packed.extractfile(member)
                    assert file is not None
                    found[name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise SourceError(f"not a whole tar.{compression} file ({error})") from error
    for name, size in most.items():
        if name not in found:
            raise SourceError(f"no {name} of at most {size} bytes in it")
    return found


def debian_members(content: bytes, most: Mapping[str, int]) -> dict[str, bytes]:
    """The named files that a Debian package would install: members of its data.tar.xz.

    A package is an ar file: `!<arch>`, and for each member 60 bytes of header (16 of name, 10 of
    size from the 48th on) and the content, padded to an even length.
    """
    if content[:8] != b"!<arch>\n":
        raise SourceError("not a Debian package")
    header = 8
    while header + 60 <= len(content):
        name = content[header : header + 16].strip(b" /")
        digits = content[header + 48 : header + 58].strip()
        if not digits.isdigit():
            break
        begin, size = header + 60, int(digits)
        if name == b"data.tar.xz":
            return tar_members(content[begin : begin + size], most, "xz")
        header = begin + size + size % 2
    raise SourceError("no data.tar.xz in the Debian package")


def zip_members(content: bytes, most: Mapping[str, int]) -> dict[str, bytes]:
    """The named members of a zip file (a wheel), each cut after its most bytes and one."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name, size in most.items():
                if name not in packed.namelist():
                    raise SourceError(f"no {name} in it")
                with packed.open(name) as file:
                    found[name] = file.read(size + 1)
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise SourceError(f"not a whole zip file ({error})") from error
    return found


def _check_harmless(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise SourceError(f"{member.name} is neither a file nor a folder")
    if path.is_absolute() or ".." in path.parts:
        raise SourceError(f"{member.name} lies outside the archive")
