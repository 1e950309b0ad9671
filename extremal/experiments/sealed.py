"""A trial's result as bytes: sealed JSON and safetensors, the same wherever they were made."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from extremal._check import require
from extremal._version import __version__
from extremal.experiments.files import json_file
from extremal.experiments.trial import Outcome, Trial, check_json

# JSON has no NaN and no infinity: they are kept as {"$float": "nan"}, and read back as they were.
_TAG = "$float"
_SEAL, _END = b',\n"checksum": "', b"\n}\n"


@dataclass(frozen=True)
class Packed:
    """What came of a trial, as a store's files hold it: `text` is the JSON, `arrays` safetensors.

    A worker that has no access to the store sends it to the client, which stores these bytes.
    """

    text: bytes
    arrays: bytes | None
    done: bool


def pack(trial: Trial, outcome: Outcome, seconds: float) -> Packed:
    """A finished trial; ValueError where something in the outcome would not come back.

    Numbers must be JSON values; NaN and infinities among them survive.
    """
    check_json("numbers", dict(outcome.numbers), finite=False)
    arrays = {name: _plain(name, value) for name, value in outcome.arrays.items()}
    data = safetensors.torch.save(arrays) if arrays else None
    held = None
    if data is not None:
        held = {"names": sorted(arrays), "sha256": hashlib.sha256(data).hexdigest()}
    found = {"status": "done", "numbers": _tag(dict(outcome.numbers)), "reason": ""}
    return Packed(_sealed(trial, {**found, "arrays": held, "seconds": seconds}), data, True)


def pack_failure(trial: Trial, reason: str, seconds: float) -> Packed:
    """A trial that failed, and why."""
    found = {"status": "failed", "numbers": {}, "reason": reason}
    return Packed(_sealed(trial, {**found, "arrays": None, "seconds": seconds}), None, False)


def _sealed(trial: Trial, found: dict[str, Any]) -> bytes:
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
    return _seal(json_file(record))


def _seal(text: bytes) -> bytes:
    """The same JSON object with a last key: the checksum of all the bytes before it."""
    body = text.removesuffix(_END)
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"' + _END


def unseal(data: bytes) -> dict[str, Any]:
    """The record in a JSON file; ValueError unless each byte is in place.

    Bytes are compared, not values: how Python prints a denormal number depends on torch's mode.
    """
    body, _, _ = data.rpartition(_SEAL)
    require(data == _seal(body), "checksum", "fit the content", "another content")
    record: dict[str, Any] = json.loads(data)
    return record


def trial_of(record: Mapping[str, Any]) -> Trial:
    """The trial that a record is of."""
    return Trial(record["study"], record["params"], record["seed"], record["version"])


def parse(data: bytes, key: str) -> dict[str, Any]:
    """The record in a JSON file; ValueError unless it is whole and of the trial with that key."""
    record = unseal(data)
    found = trial_of(record).key
    require(found == key, "key", f"be {key}", found)
    return record


def check_arrays(held: Mapping[str, Any] | None, data: bytes | None, name: str) -> tuple[str, ...]:
    """The names of a record's arrays; ValueError unless `data` are those, whole."""
    if held is None:
        return ()
    require(data is not None, "arrays", f"be in {name}", "no file")
    assert data is not None
    found = hashlib.sha256(data).hexdigest()
    require(found == held["sha256"], "checksum", f"be {held['sha256']}", found)
    return tuple(held["names"])


def check(trial: Trial, packed: Packed) -> None:
    """ValueError unless what came over a network is whole, and of this trial."""
    record = parse(packed.text, trial.key)
    check_arrays(record["arrays"], packed.arrays, "what was sent")
    status = "done" if packed.done else "failed"
    require(record["status"] == status, "status", f"be {status!r}", record["status"])


def numbers_of(record: Mapping[str, Any]) -> Any:
    """The numbers of a record, with NaN and infinities as they were."""
    return _untag(record["numbers"])


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
