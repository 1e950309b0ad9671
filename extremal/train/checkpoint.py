"""The state of an unfinished training in a file, so that it can be interrupted and go on."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import FileError, as_path, read_tensors, write_whole

# Each checkpoint file names its form by this word, and files of another form are refused.
_FILE_FORMAT = "extremal-training-1"


class Checkpoint:
    """Where the state of a training is kept, and of which problem it is.

    `problem` is all that defines the training, as it is at the start: to go on, pass the network
    with its original weights, not the one that was interrupted. A file of another problem is a
    ValueError, so that it is neither used nor lost. `training` names what writes the file, and
    `parts` what must be the same, in words for the errors.
    """

    seconds_between = 15.0

    def __init__(self, path: str | Path, problem: list[Any], *, training: str, parts: str) -> None:
        self.path = _writable(path)
        self.problem = problem_digest([training, problem])
        self._training, self._parts = training, parts
        self._last_write = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the file was last written long enough ago."""
        return time.monotonic() - self._last_write >= self.seconds_between

    def write(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Keep a state, as JSON has it, and tensors; the file is written whole or not at all."""
        header = {"format": _FILE_FORMAT, "problem": self.problem, "state": json.dumps(state)}
        whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        write_whole(self.path, to_bytes(whole, metadata=header))
        self._last_write = time.monotonic()

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state and the tensors in the file; None where there is no file."""
        if not self.path.exists():
            return None
        try:
            header, tensors = read_tensors(self.path)
            _check.choice("format", header.get("format"), [_FILE_FORMAT])
            problem, state = header["problem"], json.loads(header["state"])
        except (FileError, KeyError, RuntimeError, ValueError) as error:
            rule = f"name a state that {self._training} left behind"
            raise ValueError(f"checkpoint must {rule}, got {self.path} ({error})") from error
        rule = f"belong to the same {self._parts} (or be removed)"
        _check.require(problem == self.problem, "checkpoint", rule, self.path)
        return state, tensors

    def remove(self) -> None:
        """Remove the file: the training has come to its end."""
        self.path.unlink(missing_ok=True)


def _writable(path: str | Path) -> Path:
    """The path of a checkpoint, which must lie where a file can be written."""
    file = as_path(path)
    _check.require(not file.is_dir(), "checkpoint", "name a file", file)
    good = file.parent.is_dir() and os.access(file.parent, os.W_OK | os.X_OK)
    rule = "lie in a folder that exists and can be written to"
    _check.require(good, "checkpoint", rule, file)
    return file


def problem_digest(parts: list[Any]) -> str:
    """A digest of all that defines a training, by which its checkpoint is recognised."""
    digest = hashlib.sha256()
    for part in _bytes_of(parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _bytes_of(value: object) -> Iterator[bytes]:
    """Everything that makes a value what it is, as bytes; of a network also untrained parts."""
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)} {value.requires_grad}".encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, nn.Module):
        own = set(vars(nn.Module()))
        yield repr(value).encode()
        yield from _bytes_of(dict(value.named_parameters()))
        yield from _bytes_of(dict(value.named_buffers()))
        for name, part in value.named_modules():
            others = {key: other for key, other in vars(part).items() if key not in own}
            yield from _bytes_of({name: others})
    elif is_dataclass(value):
        yield from _bytes_of({field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _bytes_of(value[key])
    elif isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for part in value:
            yield from _bytes_of(part)
    elif value is None or isinstance(value, bool | int | float | str):
        yield repr(value).encode()
    else:  # Its repr may hold an address, which is another one in the next process.
        yield type(value).__qualname__.encode()
