"""The care of a store: say what it has, verify it, pack it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extremal._files import FileError, read_whole
from extremal.experiments.storage.packs import Texts
from extremal.experiments.storage.store import Store


@dataclass(frozen=True)
class Checked:
    """What was found in a store: counts, and the names of what is damaged or belongs to nothing."""

    done: int
    failed: int
    damaged: list[str]
    leftovers: list[str]


def overview(store: Store) -> list[dict[str, Any]]:
    """One row a study: its trials that are done and that failed, and their seconds."""
    store.require_trials()
    rows: dict[str, dict[str, Any]] = {}
    for key in store.all_keys():
        found = store.load(key, arrays=False)
        if found is not None:
            study = found.record["study"]
            row = rows.setdefault(study, {"study": study, "done": 0, "failed": 0, "seconds": 0.0})
            row[found.record["status"]] += 1
            row["seconds"] += found.record["seconds"]
    return [rows[study] for study in sorted(rows)]


def check(store: Store) -> Checked:
    """Read every byte of a store; what is damaged is set aside, and not done any more."""
    store.require_trials()
    fresh = Store(store.root)  # which has no pack in memory
    keys = fresh.all_keys()
    found = [trial.done for trial in map(fresh.load, keys) if trial is not None]
    damaged = [str(path) for path in fresh.damaged]
    return Checked(sum(found), len(found) - sum(found), damaged, _leftovers(store, set(keys)))


def _leftovers(store: Store, keys: set[str]) -> list[str]:
    """Files that belong to no trial: arrays without a record, or what was set aside."""
    ours = (".json", ".safetensors")
    files = sorted((store.root / "trials").glob("??/[!.]*"))
    found = [path for path in files if path.stem not in keys or path.suffix not in ours]
    return [str(path) for path in (*found, *sorted(store.packs.folder.glob("*.corrupt")))]


def compact(store: Store) -> int:
    """Put the files of finished trials into packs, one for each first two digits of the keys.

    Returns how many it packed. Arrays and failed trials stay as they are. At every moment each
    trial is in a file of its own, in a pack, or in both, so that others may read, write and compact
    the store meanwhile.
    """
    store.require_trials()
    starts = {path.name for path in (store.root / "trials").glob("??")}
    starts |= {path.name[:2] for path in store.packs.files()}
    return sum(_compact(store, start) for start in sorted(starts))


def _compact(store: Store, start: str) -> int:
    # What is there now: others may have written, packed and copied since the last part was done.
    old, texts, loose = store.packs.files(start), Texts(), dict[Path, bytes]()
    for path in old:
        texts |= store.packs.load(path) or {}
    for path in sorted((store.root / "trials" / start).glob("[!.]*.json")):
        found = store.load(path.stem)
        if found is not None and found.done:  # A failed one may be written again at any moment.
            loose[path] = texts[path.stem] = found.text
    if not texts or (not loose and len(old) == 1):
        return 0
    new = store.packs.add(start, texts)
    there = store.packs.load(new)  # It is read again before anything is removed that it replaces.
    if there is None:
        return 0  # Somebody else who compacts the store has put it into a larger one already.
    if there != texts:
        raise FileError(f"cannot write {new}: it is not what was written; nothing was removed")
    gone = [path for path, text in loose.items() if read_whole(path) == text]
    for path in gone + [path for path in old if path != new]:
        path.unlink(missing_ok=True)
    return len(loose)
