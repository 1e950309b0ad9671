"""Chosen files out of a packed archive, into memory: nothing is written and nothing is run."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath


class ArchiveError(ValueError):
    """An archive is broken, or has something in it that a data archive has no need of."""


def gunzip(content: bytes, most: int) -> bytes:
    """The content of a gz file, cut after `most` bytes and one, which tells that it was longer."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            return packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"not a whole gz file ({error})") from error


def members(content: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The named members of a tgz file, each a plain file of the size that `sizes` gives it.

    The whole archive is refused where any member is a link or a device, or lies outside it.
    """
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as packed:
            for member in packed:
                _refuse(member)
                if sizes.get(member.name) == member.size and member.isreg():
                    file = packed.extractfile(member)
                    assert file is not None
                    found[member.name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"not a whole tgz file ({error})") from error
    missing = [name for name in sizes if name not in found]
    if missing:
        raise ArchiveError(f"no {missing[0]} of {sizes[missing[0]]} bytes in it")
    return found


def _refuse(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise ArchiveError(f"{member.name} is neither a file nor a folder")
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"{member.name} lies outside the archive")
