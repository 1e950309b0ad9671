"""The files of a data set from the first place that has them, checked, and kept in a cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from extremal._files import FileError, as_path, write_whole
from extremal._progress import Bar, Progress
from extremal.data.sources import File, Folder, Source, SourceError, Tell

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

    def ask(self, source: Source, tell: Tell = lambda _: None) -> list[str]:
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
