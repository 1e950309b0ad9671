"""Trials from one store to another: as a tar file of their plain files, or from a folder."""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from extremal._check import require
from extremal._files import FileError
from extremal.experiments.storage.store import Store
from extremal.experiments.storage.trial_file import TrialFile

_MEMBER = re.compile(r"trials/([0-9a-f]{2})/\1[0-9a-f]{62}\.(json|safetensors)")
_OLD_LAST_MEMBER = "trials/END"  # which archives had before; it holds no trial
_END_BYTES = 1024  # A tar file ends with two blocks of zeros: one without them was cut off.


@dataclass
class Imported:
    """What came of bringing another store's trials into one.

    `differing` are trials that both have with other numbers or arrays: ours were kept.
    """

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
    origin = Path(source)
    if origin.is_dir():
        return _from_folder(store, origin)
    store.prepare()
    try:
        with tempfile.TemporaryDirectory(dir=store.root, prefix=".import-") as folder:
            wrong = _unpack(origin, Path(folder))
            found = _from_folder(store, Path(folder))
    except OSError as error:
        raise FileError(f"cannot write {store.root}: {error.strerror or error}") from error
    found.damaged = [f"{origin}: {Path(name).relative_to(folder)}" for name in found.damaged]
    if wrong:
        raise FileError(f"{wrong}; {found.added} trials were taken" if found.added else wrong)
    return found


def _unpack(path: Path, folder: Path) -> str:
    """Write the files of an archive below a folder; what is wrong with it, or nothing."""
    (folder / "trials").mkdir()
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isdir() or member.name == _OLD_LAST_MEMBER:
                    continue
                good = member.isreg() and _MEMBER.fullmatch(member.name)
                require(bool(good), f"{path}", "hold files of trials only", member.name)
                content = archive.extractfile(member)
                assert content is not None
                data, target = content.read(), folder / member.name
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(data)
            assert archive.fileobj is not None
            archive.fileobj.seek(archive.offset)
            end = b"".join(iter(lambda: archive.fileobj.read(1 << 20), b""))
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        why = str(error).partition("\n")[0].removesuffix(":")
        return f"cannot read {path}: {why}"
    return "" if len(end) >= _END_BYTES and not end.strip(b"\0") else f"{path} is cut short"


def _from_folder(store: Store, folder: Path) -> Imported:
    other, found = Store(folder), Imported()
    other.require_trials()
    store.prepare()
    for key in other.all_keys():
        theirs, ours = other.load(key), store.load(key)
        if theirs is not None and (ours is None or (theirs.done and not ours.done)):
            store.put(theirs)
            found.added += 1
        elif theirs is not None and ours is not None:
            found.known += 1
            same = all(theirs.record[part] == ours.record[part] for part in ("numbers", "arrays"))
            found.differing += [key] if theirs.done and not same else []
    found.damaged = [str(path) for path in other.damaged]
    return found
