"""The store of finished trials: one content-addressed file each, found again after any crash.

``<root>/trials/<first 2 of the key>/<key>.json`` holds study, parameters, seed, status, numbers,
reason, seconds, versions and the names of the arrays; ``<key>.safetensors`` beside it holds the
arrays. Arrays are written first, so that a trial whose JSON exists is complete. Stores are merged
by copying one over the other. Packs (`store compact`) and the index are described in `index.py`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from torch import Tensor

from extremal.experiments.bundle import Entry, stamp_of
from extremal.experiments.files import (
    StoreError,
    read_whole,
    remove_stale,
    write_new,
    write_whole,
)
from extremal.experiments.index import Index
from extremal.experiments.sealed import (
    Packed,
    check_arrays,
    numbers_of,
    pack,
    pack_failure,
    parse,
)
from extremal.experiments.trial import Outcome, Trial

_log = logging.getLogger(__name__)
_HOUR = 3600.0
_MONTH = 30 * 24 * _HOUR
_TRIALS = "trials"
TOKENS = ".cluster-*"  # the names of files by which clients on a cluster are known


@dataclass(frozen=True)
class Stored:
    """What the store has of a trial; `arrays` are loaded when first asked for."""

    trial: Trial
    status: Literal["done", "failed"]
    numbers: Mapping[str, Any]
    reason: str
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    array_names: tuple[str, ...] = ()
    array_file: Path | None = None

    @cached_property
    def arrays(self) -> Mapping[str, Tensor]:
        """The stored arrays by name."""
        if self.array_file is None:
            return {}
        data = read_whole(self.array_file)
        if data is None:
            raise StoreError(f"cannot read {self.array_file}: it was there a moment ago")
        return safetensors.torch.load(data)


class Store:
    """Finished and failed trials in a folder, which is made at the first write."""

    def __init__(self, root: str | Path) -> None:
        # Absolute, because worker processes may start in another folder.
        self.root = Path(root).absolute()
        self.damaged: list[Path] = []  # what was found damaged, and set aside
        self.index = Index(self.root, self.damaged)

    def path(self, trial: Trial) -> Path:
        """Where the trial's JSON file is or will be."""
        return self.file(trial.key)

    def file(self, key: str) -> Path:
        """Where the JSON file of a trial with that key is or will be."""
        return self.root / _TRIALS / key[:2] / f"{key}.json"

    def has(self, trial: Trial) -> bool:
        """Whether the trial is finished and its files are whole; a failed one is not finished."""
        return self._done(trial.key)

    def read(self, trial: Trial) -> Stored | None:
        """What is stored of a trial, or None; damaged files are logged by name and set aside."""
        record = self.record(trial.key)
        if record is None:
            return None
        names = () if record["arrays"] is None else tuple(record["arrays"]["names"])
        return Stored(
            trial,
            record["status"],
            numbers_of(record),
            record["reason"],
            record["seconds"],
            record["versions"],
            names,
            self.file(trial.key).with_suffix(".safetensors") if names else None,
        )

    def read_all(self, trials: Iterable[Trial]) -> list[Stored]:
        """What is stored of these trials, in their order; what was read is quick to read again."""
        found = [stored for stored in map(self.read, trials) if stored is not None]
        self.index.save()
        return found

    def without(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those of the trials that are not finished, in their order."""
        left = [trial for trial in trials if not self.has(trial)]
        self.index.save()
        return left

    def write(self, trial: Trial, outcome: Outcome, seconds: float) -> None:
        """Store a finished trial; one that is finished already stays as it is.

        Numbers must be JSON values; NaN and infinities among them survive.
        """
        self.put(trial.key, pack(trial, outcome, seconds))

    def fail(self, trial: Trial, reason: str, seconds: float) -> None:
        """Keep why a trial failed; the next run tries it again. A finished one stays as it is."""
        self.put(trial.key, pack_failure(trial, reason, seconds))

    def put(self, key: str, packed: Packed) -> None:
        """Store what came of the trial with that key, unless it is finished already."""
        if self._done(key):
            return
        path = self.file(key)
        if not packed.done:
            # Another client may finish it at this very moment: what is there is looked at again.
            if not write_new(path, packed.text) and not self._done(key):
                write_whole(path, packed.text)
            return
        if packed.arrays is not None:
            write_whole(path.with_suffix(".safetensors"), packed.arrays)
        write_whole(path, packed.text)

    def _done(self, key: str) -> bool:
        record = self.record(key)
        return record is not None and record["status"] == "done"

    def packed(self, key: str) -> Packed | None:
        """What is stored of the trial with that key as bytes, ready for another store."""
        record = self.record(key)
        if record is None:
            return None
        entry = self.index.packed(key)
        text = read_whole(self.file(key)) or (None if entry is None else entry.text)
        arrays = None
        if record["arrays"] is not None:
            arrays = read_whole(self.file(key).with_suffix(".safetensors"))
        gone = text is None or (arrays is None and record["arrays"] is not None)
        return None if gone or text is None else Packed(text, arrays, record["status"] == "done")

    def prepare(self) -> None:
        """Make the folder, and remove the temporary files that killed processes left long ago."""
        folder = self.root / _TRIALS
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error
        remove_stale(folder.glob("*/.*.tmp"), age=_HOUR)
        remove_stale(self.root.glob(".*.tmp"), age=_HOUR)
        remove_stale(self.root.glob(TOKENS), age=_MONTH)

    def all_keys(self) -> Iterator[str]:
        """The keys of all trials that the store has anything of, in order."""
        found = {path.stem for path in (self.root / _TRIALS).glob("??/*.json")}
        found |= {key for path in self.index.pack_files() for key in self.index.load_pack(path)}
        return iter(sorted(key for key in found if not key.startswith(".")))

    def record(self, key: str, *, again: bool = False) -> dict[str, Any] | None:
        """The JSON record of a trial, its files known to be whole, or None.

        A file that was found whole is not read before its size or times change, or `again`.
        """
        path = self.file(key)
        copy = None if again else self.index.copy(key)
        if copy is not None and copy.stamp == stamp_of(path) and _same_arrays(copy, path):
            kept: dict[str, Any] = json.loads(copy.text)
            return kept
        stamp = stamp_of(path)  # Before it is read: what is written later has another one.
        data = read_whole(path)
        entry = self.index.packed(key) if data is None else Entry(key, data, stamp, None)
        return None if entry is None else self._checked(entry, path, again)

    def _checked(self, entry: Entry, path: Path, again: bool) -> dict[str, Any] | None:
        damaged, arrays = path, path.with_suffix(".safetensors")
        try:
            record = parse(entry.text, entry.key)
            stamp = None
            if record["arrays"] is not None:
                damaged, stamp = arrays, stamp_of(arrays)
                if again or entry.arrays is None or entry.arrays != stamp:
                    check_arrays(record["arrays"], read_whole(arrays), arrays.name)
        except StoreError:
            raise  # Files that can't be read may well be whole.
        except (ValueError, KeyError, TypeError) as error:
            self._set_aside(path, damaged, str(error))
            return None
        if entry.stamp is not None:
            self.index.note(Entry(entry.key, entry.text, entry.stamp, stamp))
        return record

    def _set_aside(self, path: Path, damaged: Path, why: str) -> None:
        _log.warning("damaged result %s (%s): set aside, its trial is not done", damaged, why)
        self.damaged.append(damaged)
        for part in (path, path.with_suffix(".safetensors")):
            # A part may be missing, and a store that is read-only keeps its damaged files.
            with suppress(OSError):
                os.replace(part, part.with_name(part.name + ".corrupt"))


def _same_arrays(copy: Entry, path: Path) -> bool:
    return copy.arrays is None or copy.arrays == stamp_of(path.with_suffix(".safetensors"))
