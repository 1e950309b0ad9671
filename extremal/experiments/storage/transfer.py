"""Trials from one store to another: as a tar file of their plain files, or from a folder."""

from __future__ import annotations

import io
import lzma
import os
import re
import tarfile
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from extremal._check import require
from extremal._files import FileError
from extremal.experiments.storage.store import Store
from extremal.experiments.storage.trial_file import TrialFile

_MEMBER = re.compile(r"trials/[0-9a-f]{2}/([0-9a-f]{64})\.(json|safetensors)")
_OLD_LAST_MEMBER = "trials/END"  # which archives had before; it holds no trial


@dataclass
class Imported:
    """What came of it; `differing` are trials that both stores have with other results."""

    added: int = 0
    known: int = 0
    differing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def export(store: Store, path: str | Path, keys: Iterable[str] | None = None) -> int:
    """Write trials, all of them unless `keys` says which, as one tar file; return how many.

    It holds the files of the trials as they stand in a store, so that `tar` alone can unpack it.
    """
    store.require_trials()
    target, count = Path(path), 0
    require(target.name.endswith((".tar", ".tar.gz")), "path", "end in .tar or .tar.gz", target)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with tarfile.open(partial, "w:gz" if target.suffix == ".gz" else "w") as archive:
            for key in sorted(set(store.all_keys() if keys is None else keys)):
                found = store.load(key)
                if found is not None:
                    _add(archive, found)
                    count += 1
        os.replace(partial, target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return count


def _add(archive: tarfile.TarFile, found: TrialFile) -> None:
    # Arrays first, as in a store: whoever unpacks half of it has whole trials only.
    for data, ending in ((found.arrays, "safetensors"), (found.text, "json")):
        if data is not None:
            member = tarfile.TarInfo(f"trials/{found.key[:2]}/{found.key}.{ending}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def import_trials(store: Store, source: str | Path) -> Imported:
    """Bring the trials of another store, a folder or a file of `export`, into this one.

    Each is verified first. What is finished here stays; a finished one replaces a failed one. A
    file that is damaged or ends too early is a FileError, after what could be had of it was taken.
    """
    origin, found = Path(source), Imported()
    trials = _in_folder(origin, found) if origin.is_dir() else _in_archive(origin, found)
    store.prepare()
    for theirs in trials:
        ours = store.load(theirs.key)
        if ours is None or (theirs.done and not ours.done):
            store.put(theirs)
            found.added += 1
            continue
        found.known += 1
        same = all(theirs.record[part] == ours.record[part] for part in ("numbers", "arrays"))
        found.differing += [theirs.key] if theirs.done and not same else []
    return found


def _in_folder(folder: Path, found: Imported) -> Iterator[TrialFile]:
    other = Store(folder)
    other.require_trials()
    yield from (trial for trial in map(other.load, other.all_keys()) if trial is not None)
    found.damaged += map(str, other.damaged)


def _in_archive(path: Path, found: Imported) -> Iterator[TrialFile]:
    """The trials of an archive, whose files may stand in any order."""
    parts: dict[str, dict[str, bytes]] = {}  # files of trials that are not whole yet
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isdir() or name == _OLD_LAST_MEMBER:
                    continue
                match = _MEMBER.fullmatch(name)
                content = archive.extractfile(member) if member.isreg() else None
                if match is None or content is None:
                    wrong = f"{path} must hold files of trials only, got {name}"
                    break
                key, part = match[1], parts.setdefault(match[1], {})
                part[match[2]] = content.read()
                trial = TrialFile(key, part.get("json", b""), part.get("safetensors"))
                with suppress(ValueError, KeyError, TypeError):  # The other file is still to come.
                    trial.check_arrays()
                    yield trial
                    del parts[key]
            else:
                # Nothing but zeros follows, two blocks at least, at the end of every tar file.
                archive.fileobj.seek(archive.offset)
                end = archive.fileobj.read(2**20)  # tar writes 10,240 at most
                whole = len(end) >= 2 * tarfile.BLOCKSIZE and not end.strip(b"\0")
                wrong = "" if whole else f"{path} is cut short"
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        wrong = f"cannot read {path}: {str(error).partition(chr(10))[0].removesuffix(':')}"
    found.damaged += [f"{path}: trials/{key[:2]}/{key}.json" for key in parts]
    if wrong:
        raise FileError(f"{wrong}; {found.added} trials were taken" if found.added else wrong)
