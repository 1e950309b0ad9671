"""The file of one trial: JSON with a checksum, and arrays as safetensors beside it.

Both are bytes that are the same wherever they were made. The JSON holds study, version, parameters,
seed, status, numbers, reason, the arrays' names and checksum, seconds and versions, a key a line,
and as its last key the checksum of all the bytes before it.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from extremal._check import require
from extremal._files import json_file
from extremal._version import __version__
from extremal.experiments.trial import Outcome, Trial, check_json

# JSON has no NaN and no infinity: they are kept as {"$float": "nan"}, and read back as they were.
_FLOAT_TAG = "$float"
_CHECKSUM_KEY, _END = b',\n"checksum": "', b"\n}\n"


@dataclass(frozen=True)
class TrialFile:
    """What came of the trial with that key, as bytes: `text` is the JSON, `arrays` safetensors."""

    key: str
    text: bytes
    arrays: bytes | None = None

    @cached_property
    def record(self) -> dict[str, Any]:
        """What the JSON says; ValueError unless each byte is in place, and of this trial."""
        body, _, _ = self.text.rpartition(_CHECKSUM_KEY)
        # Bytes are compared: how Python prints a denormal number depends on torch's mode.
        require(self.text == _with_checksum(body), "checksum", "fit the content", "another content")
        record: dict[str, Any] = json.loads(self.text)
        trial = Trial(record["study"], record["params"], record["seed"], record["version"])
        require(trial.key == self.key, "key", f"be {self.key}", trial.key)
        parts = {"numbers", "reason", "arrays", "seconds", "versions"}
        good = parts <= record.keys() and record["status"] in ("done", "failed")
        require(good, "record", "have a status and what goes with it", sorted(record))
        return record

    @property
    def done(self) -> bool:
        """Whether the trial is finished; it failed otherwise."""
        return bool(self.record["status"] == "done")

    @property
    def numbers(self) -> Any:
        """The numbers that the trial found, with NaN and infinities as they were."""
        return _untag(self.record["numbers"])

    def check_arrays(self) -> None:
        """ValueError unless the arrays are those that the JSON names, whole."""
        held = self.record["arrays"]
        wanted = None if held is None else held["sha256"]
        found = None if self.arrays is None else hashlib.sha256(self.arrays).hexdigest()
        require(found == wanted, "checksum of the arrays", f"be {wanted}", found)


def encode(trial: Trial, outcome: Outcome, seconds: float) -> TrialFile:
    """The file of a finished trial; ValueError where something in the outcome would not come back.

    Numbers must be JSON values; NaN and infinities among them survive.
    """
    check_json("numbers", dict(outcome.numbers), finite=False)
    arrays = {name: _plain(name, value) for name, value in outcome.arrays.items()}
    data = safetensors.torch.save(arrays) if arrays else None
    held = None
    if data is not None:
        held = {"names": sorted(arrays), "sha256": hashlib.sha256(data).hexdigest()}
    found = {"status": "done", "numbers": _tag(dict(outcome.numbers)), "reason": ""}
    return _encoded(trial, data, {**found, "arrays": held, "seconds": seconds})


def encode_failure(trial: Trial, reason: str, seconds: float) -> TrialFile:
    """The file of a trial that failed, and why."""
    found = {"status": "failed", "numbers": dict[str, Any](), "reason": reason}
    return _encoded(trial, None, {**found, "arrays": None, "seconds": seconds})


def _encoded(trial: Trial, data: bytes | None, found: dict[str, Any]) -> TrialFile:
    versions = {"extremal": __version__, "torch": str(torch.__version__)}
    record = {
        "study": trial.study,
        "version": trial.version,
        "params": dict(trial.params),
        "seed": trial.seed,
        **found,
        "versions": {**versions, "python": platform.python_version()},
    }
    return TrialFile(trial.key, _with_checksum(json_file(record).removesuffix(_END)), data)


def _with_checksum(body: bytes) -> bytes:
    """A JSON object without its end, with a last key: the checksum of all the bytes before it."""
    return body + _CHECKSUM_KEY + hashlib.sha256(body).hexdigest().encode() + b'"' + _END


def _plain(name: str, value: object) -> Tensor:
    """A tensor of its own memory on the CPU, as the file format wants it."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise ValueError(f"arrays.{name} must be a dense tensor, got {type(value).__name__}")
    return value.detach().cpu().contiguous().clone()


def _tag(value: Any) -> Any:
    if isinstance(value, dict):
        require(_FLOAT_TAG not in value, "numbers", f"not use the key {_FLOAT_TAG!r}", value)
        return {key: _tag(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tag(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_TAG: repr(float(value))}
    return value


def _untag(value: Any) -> Any:
    if isinstance(value, dict):
        if _FLOAT_TAG in value:
            return float(value[_FLOAT_TAG])
        return {key: _untag(inner) for key, inner in value.items()}
    return [_untag(inner) for inner in value] if isinstance(value, list) else value
