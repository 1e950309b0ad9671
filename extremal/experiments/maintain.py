"""The care of a store: say what it has, verify it, pack it, and bring several together."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from extremal._check import require
from extremal.experiments import bundle
from extremal.experiments.bundle import Entry, stamp_of
from extremal.experiments.files import StoreError, read_whole
from extremal.experiments.sealed import Packed, check_arrays, parse, unseal
from extremal.experiments.store import Store

_MEMBER = re.compile(r"trials/([0-9a-f]{2})/(\1[0-9a-f]{62})\.(json|safetensors)")
_ENDINGS = (".json", ".safetensors")
_END = "trials/END"  # the last member of an archive, without which it is not whole


@dataclass(frozen=True)
class Checked:
    """What was found in a store: counts, and the names of what is damaged or belongs to nothing."""

    done: int
    failed: int
    damaged: list[str]
    leftovers: list[str]


@dataclass
class Merged:
    """What came of bringing another store's trials into one.

    `differing` are trials that both have with other numbers or arrays: ours were kept.
    """

    added: int = 0
    known: int = 0
    differing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compacted:
    """How many files of trials there were and are, arrays aside."""

    before: int
    after: int


def overview(store: Store) -> list[dict[str, Any]]:
    """One row a study: its trials that are done and that failed, and their seconds."""
    _require_store(store)
    rows: dict[str, dict[str, Any]] = {}
    for key in store.all_keys():
        record = store.record(key)
        if record is not None:
            row = {"study": record["study"], "done": 0, "failed": 0, "seconds": 0.0}
            row = rows.setdefault(record["study"], row)
            row[record["status"]] += 1
            row["seconds"] += record["seconds"]
    store.index.save()
    return [rows[study] for study in sorted(rows)]


def check(store: Store) -> Checked:
    """Read every byte of a store again; what is damaged is set aside, and not done any more."""
    _require_store(store)
    before, counts = len(store.damaged), {"done": 0, "failed": 0}
    keys = list(store.all_keys())
    for key in keys:
        record = store.record(key, again=True)
        if record is not None:
            counts[record["status"]] += 1
    damaged = [str(path) for path in store.damaged[before:]]
    return Checked(counts["done"], counts["failed"], damaged, _leftovers(store, set(keys)))


def _leftovers(store: Store, keys: set[str]) -> list[str]:
    """Files that belong to no trial: arrays without a record, or what was set aside."""
    found = []
    for path in sorted((store.root / "trials").glob("??/*")):
        ours = path.stem in keys and path.suffix in _ENDINGS
        if not ours and not path.name.startswith("."):
            found.append(str(path))
    return found + [str(path) for path in sorted(store.index.packs.glob("*.corrupt"))]


def compact(store: Store) -> Compacted:
    """Put the records of finished trials into packs, one for each first two digits of the keys.

    Arrays and failed trials stay as they are. At every moment each record is in a file of its own,
    in a pack, or in both, so that others may read, write and compact the store meanwhile.
    """
    _require_store(store)
    before = _count(store)
    starts = {path.name for path in (store.root / "trials").glob("??")}
    starts |= {path.name[:2] for path in store.index.pack_files()}
    for start in sorted(starts):
        _compact(store, start)
    store.index.forget()
    return Compacted(before, _count(store))


def _compact(store: Store, start: str) -> None:
    # What is there now: others may have written, packed and copied since the last part was done.
    packs = [path for path in store.index.pack_files() if path.name.startswith(start)]
    old = {path: store.index.load_pack(path) for path in packs}
    earlier = {key: entry for inside in old.values() for key, entry in inside.items()}
    single = {path.stem: path for path in (store.root / "trials" / start).glob("[!.]*.json")}
    loose: dict[Path, bundle.Stamp | None] = {}
    entries: dict[str, Entry] = {}
    for key in sorted({*single, *earlier}):
        path = store.file(key)
        stamp, text = stamp_of(path), read_whole(path)
        record = store.record(key)
        if record is None or record["status"] != "done":
            continue  # A failed one may be written again at any moment.
        arrays = None if record["arrays"] is None else stamp_of(path.with_suffix(".safetensors"))
        if text is not None:
            loose[path] = stamp
            entries[key] = Entry(key, text, None, arrays)
        elif key in earlier:
            entries[key] = Entry(key, earlier[key].text, None, arrays)
    if not entries or (not loose and len(old) == 1):
        return
    new = store.index.add_pack(start, entries)
    if not _there(new, entries):
        return
    for path, stamp in loose.items():
        if stamp_of(path) == stamp:
            path.unlink(missing_ok=True)
    for path, inside in old.items():
        if path != new and inside.keys() <= entries.keys():
            path.unlink(missing_ok=True)


def _there(pack: Path, entries: dict[str, Entry]) -> bool:
    """Whether a pack is there, read again before anything is removed that it replaces.

    Somebody else who compacts the store may have put it into a larger one already.
    """
    data = read_whole(pack)
    try:
        whole = data is None or bundle.load(data) == entries
    except ValueError:
        whole = False
    if not whole:
        raise StoreError(f"cannot write {pack}: it is not what was written; nothing was removed")
    return data is not None


def _count(store: Store) -> int:
    loose = sum(1 for _ in (store.root / "trials").glob("??/*.json"))
    return loose + len(list(store.index.packs.glob("*.pack")))


def export(store: Store, path: str | Path, keys: Iterable[str] | None = None) -> int:
    """Write trials, all of them unless `keys` says which, as one tar file; return how many.

    It holds the files of the trials as they stand in a store, so that `tar` alone can unpack it.
    """
    _require_store(store)
    target, written = Path(path), list[str]()
    require(target.name.endswith((".tar", ".tar.gz")), "path", "end in .tar or .tar.gz", target)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with tarfile.open(partial, "w:gz" if target.suffix == ".gz" else "w") as archive:
            for key in sorted(set(store.all_keys() if keys is None else keys)):
                packed = store.packed(key)
                if packed is not None:
                    _add(archive, key, packed)
                    written.append(key)
            _add_file(archive, _END, _end(written))
        os.replace(partial, target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return len(written)


def _add(archive: tarfile.TarFile, key: str, packed: Packed) -> None:
    # Arrays first, as in a store: whoever unpacks half of it has whole trials only.
    for data, ending in ((packed.arrays, ".safetensors"), (packed.text, ".json")):
        if data is not None:
            _add_file(archive, f"trials/{key[:2]}/{key}{ending}", data)


def _add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _end(keys: Iterable[str]) -> bytes:
    """What an archive with these trials ends with: how many there are, and a checksum."""
    names = [*keys]
    digest = hashlib.sha256("".join(f"{key}\n" for key in names).encode()).hexdigest()
    return json.dumps({"trials": len(names), "sha256": digest}).encode() + b"\n"


def merge(store: Store, source: str | Path) -> Merged:
    """Bring the trials of another store, a folder or a file of `export`, into this one.

    Each is verified first. What is finished here stays; a finished one replaces a failed one. A
    file that is damaged or ends too early is a StoreError, after what could be had of it was taken.
    """
    origin, merged = Path(source), Merged()
    trials = _from_store(origin, merged) if origin.is_dir() else _from_archive(origin, merged)
    store.prepare()
    for key, packed in trials:
        ours = store.packed(key)
        if ours is None or (packed.done and not ours.done):
            store.put(key, packed)
            merged.added += 1
        else:
            merged.known += 1
            if ours.done and packed.done and _found(ours) != _found(packed):
                merged.differing.append(key)
    return merged


def _found(packed: Packed) -> tuple[Any, Any]:
    """What a trial found, without how long it took and with which versions."""
    record = unseal(packed.text)
    return record["numbers"], record["arrays"]


def _from_store(folder: Path, merged: Merged) -> Iterator[tuple[str, Packed]]:
    other = Store(folder)
    _require_store(other)
    for key in other.all_keys():
        packed = other.packed(key)
        if packed is not None:
            yield key, packed
    merged.damaged += map(str, other.damaged)


def _from_archive(path: Path, merged: Merged) -> Iterator[tuple[str, Packed]]:
    arrays: dict[str, bytes] = {}
    keys, end = list[str](), b""
    try:
        with tarfile.open(path) as archive:
            for name, content in _files(archive, path):
                if name == _END:
                    end = content
                    break
                match = _MEMBER.fullmatch(name)
                require(match is not None, f"{path}", "hold trials only", name)
                assert match is not None
                if match[3] == "safetensors":
                    arrays[match[2]] = content
                    continue
                keys.append(match[2])
                packed = _whole(match[2], content, arrays.pop(match[2], None))
                if packed is None:
                    merged.damaged.append(f"{path}: {name}")
                else:
                    yield match[2], packed
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error) as error:
        why = str(error).partition("\n")[0].removesuffix(":")
        taken = f"; {merged.added} trials were taken" if keys else ""
        raise StoreError(f"cannot read {path}: {why}{taken}") from error
    if end != _end(keys):
        raise StoreError(f"{path} is cut short: {merged.added} trials were taken")


def _files(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of an archive by name; ValueError where it has links or the like."""
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        require(content is not None, f"{path}", "hold files only", member.name)
        assert content is not None
        yield member.name, content.read()


def _whole(key: str, text: bytes, arrays: bytes | None) -> Packed | None:
    try:
        record = parse(text, key)
        check_arrays(record["arrays"], arrays, "the file")
    except (ValueError, KeyError, TypeError):
        return None
    return Packed(
        text, arrays if record["arrays"] is not None else None, record["status"] == "done"
    )


def _require_store(store: Store) -> None:
    there = (store.root / "trials").is_dir() or store.index.packs.is_dir()
    require(there, "store", "be a folder with trials", store.root)
