"""The store of finished trials: one content-addressed file each, found again after any crash.

``<root>/trials/<first 2 of the key>/<key>.json`` holds what came of a trial (`trial_file.py`),
``<key>.safetensors`` beside it its arrays, which are written first, so that a trial whose JSON
exists is complete. Stores are merged by copying. `store compact` moves JSON files to `packs.py`'s.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from torch import Tensor

from extremal._check import require
from extremal._files import FileError, read_whole, write_whole
from extremal.experiments.storage.packs import Packs
from extremal.experiments.storage.trial_file import TrialFile, encode, encode_failure
from extremal.experiments.trial import Outcome, Trial

_log = logging.getLogger(__name__)
# A temporary file older than this is of a process that was killed: none takes an hour to write.
_STALE_SECONDS = 3600.0
_write = partial(write_whole, make_folders=True)


@dataclass(frozen=True)
class StoredTrial:
    """What the store has of a trial; `arrays` are loaded when first asked for."""

    trial: Trial
    status: Literal["done", "failed"]
    numbers: Mapping[str, Any]
    reason: str
    seconds: float
    array_names: tuple[str, ...] = ()
    array_file: Path | None = None

    @cached_property
    def arrays(self) -> Mapping[str, Tensor]:
        """The stored arrays by name."""
        if self.array_file is None:
            return {}
        data = read_whole(self.array_file)
        if data is None:
            raise FileError(f"cannot read {self.array_file}: it was there a moment ago")
        return safetensors.torch.load(data)


class Store:
    """Finished and failed trials in a folder, which is made at the first write."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self.damaged: list[Path] = []  # what was found damaged, and set aside
        self.packs = Packs(self.root / "packs", self.damaged)

    def path(self, trial: Trial) -> Path:
        """Where the trial's JSON file is or will be."""
        return self._path(trial.key)

    def has(self, trial: Trial) -> bool:
        """Whether the trial is finished and its files are whole; a failed one is not finished."""
        return self._is_done(trial.key)

    def missing(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those of the trials that are not finished, in their order."""
        return [trial for trial in trials if not self.has(trial)]

    def read(self, trial: Trial) -> StoredTrial | None:
        """What is stored of a trial, or None; damaged files are logged by name and set aside."""
        found = self.load(trial.key)
        if found is None:
            return None
        record = found.record
        names = () if record["arrays"] is None else tuple(record["arrays"]["names"])
        file = self.path(trial).with_suffix(".safetensors") if names else None
        parts = (record["reason"], record["seconds"], names, file)
        return StoredTrial(trial, record["status"], found.numbers, *parts)

    def read_all(self, trials: Iterable[Trial]) -> list[StoredTrial]:
        """What is stored of these trials, in their order."""
        return [stored for stored in map(self.read, trials) if stored is not None]

    def write(self, trial: Trial, outcome: Outcome, seconds: float) -> None:
        """Store a finished trial; one that is finished already stays as it is."""
        self.put(encode(trial, outcome, seconds))

    def fail(self, trial: Trial, reason: str, seconds: float) -> None:
        """Keep why a trial failed; the next run tries it again. A finished one stays as it is."""
        self.put(encode_failure(trial, reason, seconds))

    def put(self, found: TrialFile) -> None:
        """Store what came of a trial, unless it is finished already; ValueError if not whole."""
        found.check_arrays()
        if self._is_done(found.key):
            return
        path = self._path(found.key)
        if found.done and found.arrays is not None:
            _write(path.with_suffix(".safetensors"), found.arrays)
        # Another client may finish it at this very moment: what is there is looked at again.
        if found.done or not (_write(path, found.text, new=True) or self._is_done(found.key)):
            _write(path, found.text)

    def load(self, key: str, *, arrays: bool = True) -> TrialFile | None:
        """What came of the trial with that key, known to be whole (`arrays` too), or None."""
        path = self._path(key)
        damaged, beside = path, path.with_suffix(".safetensors")
        text = read_whole(path)
        if text is None:
            text = self.packs.text(key)
        if text is None:
            return None
        try:
            found = TrialFile(key, text)
            if arrays and found.record["arrays"] is not None:
                damaged, found = beside, TrialFile(key, text, read_whole(beside))
                found.check_arrays()
        except FileError:
            raise  # Files that can't be read may well be whole.
        except (ValueError, KeyError, TypeError) as error:
            self._set_aside(path, damaged, str(error))
            return None
        return found

    def all_keys(self) -> list[str]:
        """The keys of all trials that the store has anything of, in order."""
        found = {path.stem for path in (self.root / "trials").glob("??/[!.]*.json")}
        return sorted(found | self.packs.keys())

    def prepare(self) -> None:
        """Make the folder, and remove the temporary files that killed processes left long ago."""
        folder = self.root / "trials"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write {folder}: {error.strerror or error}") from error
        before = time.time() - _STALE_SECONDS
        for path in (*folder.glob("*/.*.tmp"), *self.packs.folder.glob(".*.tmp")):
            with suppress(OSError):  # Another process may remove it at the same time.
                if path.stat().st_mtime < before:
                    path.unlink()

    def require_trials(self) -> None:
        """ValueError where the folder is not that of a store."""
        there = (self.root / "trials").is_dir() or self.packs.folder.is_dir()
        require(there, "store", "be a folder with trials", self.root)

    def _path(self, key: str) -> Path:
        return self.root / "trials" / key[:2] / f"{key}.json"

    def _is_done(self, key: str) -> bool:
        found = self.load(key)
        return found is not None and found.done

    def _set_aside(self, path: Path, damaged: Path, why: str) -> None:
        _log.warning("damaged result %s (%s): set aside, its trial is not done", damaged, why)
        self.damaged.append(damaged)
        for part in (path, path.with_suffix(".safetensors")):
            # A part may be missing, and a store that is read-only keeps its damaged files.
            with suppress(OSError):
                os.replace(part, part.with_name(part.name + ".corrupt"))
