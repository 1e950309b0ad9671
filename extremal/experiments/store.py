"""The store of finished trials: one content-addressed file each, found again after any crash.

``<root>/trials/<first 2 of the key>/<key>.json`` holds study, parameters, seed, status, numbers,
reason, seconds, versions and the names of the arrays; ``<key>.safetensors`` beside it holds the
arrays. Arrays are written first, so that a trial whose JSON exists is complete. Stores are merged
by copying one over the other.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from extremal._check import require
from extremal._version import __version__
from extremal.experiments.files import (
    StoreError,
    json_file,
    read_whole,
    remove_stale,
    write_whole,
)
from extremal.experiments.trial import Outcome, Trial, check_json

_log = logging.getLogger(__name__)
# JSON has no NaN and no infinity: they are kept as {"$float": "nan"}, and read back as they were.
_TAG = "$float"
_SEAL, _END = b',\n"checksum": "', b"\n}\n"
_HOUR = 3600.0


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

    def path(self, trial: Trial) -> Path:
        """Where the trial's JSON file is or will be."""
        key = trial.key
        return self.root / "trials" / key[:2] / f"{key}.json"

    def has(self, trial: Trial) -> bool:
        """Whether the trial is finished and its files are whole; a failed one is not finished."""
        stored = self.read(trial)
        return stored is not None and stored.status == "done"

    def read(self, trial: Trial) -> Stored | None:
        """What is stored of a trial, or None; damaged files are logged by name and set aside."""
        path = self.path(trial)
        data = read_whole(path)
        if data is None:
            return None
        damaged = path
        try:
            record = _parse(data, trial)
            damaged = path.with_suffix(".safetensors")
            names = _check_arrays(record["arrays"], damaged)
        except StoreError:
            raise  # Files that can't be read may well be whole.
        except (ValueError, KeyError, TypeError) as error:
            self._set_aside(path, damaged, str(error))
            return None
        return Stored(
            trial,
            record["status"],
            _untag(record["numbers"]),
            record["reason"],
            record["seconds"],
            record["versions"],
            names,
            damaged if names else None,
        )

    def write(self, trial: Trial, outcome: Outcome, seconds: float) -> None:
        """Store a finished trial; one that is finished already stays as it is.

        Numbers must be JSON values; NaN and infinities among them survive.
        """
        check_json("numbers", dict(outcome.numbers), finite=False)
        arrays = {name: _plain(name, value) for name, value in outcome.arrays.items()}
        if self.has(trial):
            return
        path = self.path(trial)
        held = None
        if arrays:
            data = safetensors.torch.save(arrays)
            held = {"names": sorted(arrays), "sha256": hashlib.sha256(data).hexdigest()}
            write_whole(path.with_suffix(".safetensors"), data)
        found = {"status": "done", "numbers": _tag(dict(outcome.numbers)), "reason": ""}
        self._put(path, trial, {**found, "arrays": held, "seconds": seconds})

    def fail(self, trial: Trial, reason: str, seconds: float) -> None:
        """Keep why a trial failed; the next run tries it again. A finished one stays as it is."""
        if not self.has(trial):
            found = {"status": "failed", "numbers": {}, "reason": reason}
            self._put(self.path(trial), trial, {**found, "arrays": None, "seconds": seconds})

    def prepare(self) -> None:
        """Make the folder, and remove the temporary files that killed processes left long ago."""
        folder = self.root / "trials"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error
        remove_stale(folder.glob("*/.*.tmp"), age=_HOUR)

    def _put(self, path: Path, trial: Trial, found: dict[str, Any]) -> None:
        record = {
            "study": trial.study,
            "version": trial.version,
            "params": dict(trial.params),
            "seed": trial.seed,
            **found,
            "versions": {
                "extremal": __version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
        }
        write_whole(path, _seal(json_file(record)))

    def _set_aside(self, path: Path, damaged: Path, why: str) -> None:
        _log.warning("damaged result %s (%s): set aside, its trial is not done", damaged, why)
        for part in (path, path.with_suffix(".safetensors")):
            # A part may be missing, and a store that is read-only keeps its damaged files.
            with suppress(OSError):
                os.replace(part, part.with_name(part.name + ".corrupt"))


def _seal(text: bytes) -> bytes:
    """The same JSON object with a last key: the checksum of all the bytes before it."""
    body = text.removesuffix(_END)
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"' + _END


def _parse(data: bytes, trial: Trial) -> dict[str, Any]:
    """The record in a JSON file; ValueError unless each byte is in place and it is this trial's.

    Bytes are compared, not values: how Python prints a denormal number depends on torch's mode.
    """
    body, _, _ = data.rpartition(_SEAL)
    require(data == _seal(body), "checksum", "fit the content", "another content")
    record: dict[str, Any] = json.loads(data)
    key = Trial(record["study"], record["params"], record["seed"], record["version"]).key
    require(key == trial.key, "key", f"be {trial.key}", key)
    return record


def _check_arrays(held: Mapping[str, Any] | None, file: Path) -> tuple[str, ...]:
    """The names of the arrays; ValueError unless their file is there and whole."""
    if held is None:
        return ()
    data = read_whole(file)
    require(data is not None, "arrays", f"be in {file.name}", "no file")
    assert data is not None
    found = hashlib.sha256(data).hexdigest()
    require(found == held["sha256"], "checksum", f"be {held['sha256']}", found)
    return tuple(held["names"])


def _plain(name: str, value: object) -> Tensor:
    """A tensor of its own memory on the CPU, as the file format wants it."""
    good = isinstance(value, Tensor) and value.layout == torch.strided
    require(good, f"arrays.{name}", "be a dense tensor", type(value).__name__)
    assert isinstance(value, Tensor)
    return value.detach().cpu().contiguous().clone()


def _tag(value: Any) -> Any:
    if isinstance(value, dict):
        require(_TAG not in value, "numbers", f"not use the key {_TAG!r}", value)
        return {key: _tag(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tag(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_TAG: repr(float(value))}
    return value


def _untag(value: Any) -> Any:
    if isinstance(value, dict):
        if _TAG in value:
            return float(value[_TAG])
        return {key: _untag(inner) for key, inner in value.items()}
    return [_untag(inner) for inner in value] if isinstance(value, list) else value
