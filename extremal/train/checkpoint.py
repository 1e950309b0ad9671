"""The state of an unfinished flow in a file, so that it can be interrupted and go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import FileError, as_path, read_tensors, write_whole
from extremal.data import Dataset
from extremal.train.recording import Record, Recorder

if TYPE_CHECKING:
    from extremal.train.flow.driver import Flow

_FORMAT = "extremal-flow-2"
_EVERY = 15.0  # seconds
_COUNTS = ("steps", "rejected", "right_hand_sides")


class Checkpoint:
    """Where a flow's state is kept, and of which problem: network, data, settings and record.

    The problem is recognised by the network that the flow started from: to go on, pass the network
    with its original start, not the one that was interrupted. A file of another problem is a
    ValueError, so that it is neither used nor lost. The end of the flow is not part of the problem:
    it may be put off when the flow goes on, but not to before the time that was reached. Nor are
    the times to record at.
    """

    every = _EVERY

    def __init__(
        self,
        path: str | Path,
        net: nn.Module,
        data: Dataset,
        settings: dict[str, Any],
        record: Record,
    ) -> None:
        self.path = writable(path)
        asked = [sorted(record.watch), record.snapshots, record.phases]
        self.problem = problem_digest([settings, asked, data.x, data.y, data.group, net])
        self.twin = net
        self.counts: dict[str, float] = {}
        self.memory: dict[str, float] = {}

    def write(self, flow: Flow, recorder: Recorder, last: float) -> None:
        """Keep the state at the time `last` reached, or at one still to be recorded before it.

        The file is written whole or not at all.
        """
        time = min(last, recorder.next_time())
        flow.write(self.twin, time)
        tensors = {f"net/{name}": part.detach() for name, part in self.twin.named_parameters()}
        tensors |= recorder.state()
        counts = {name: getattr(flow.counts, name) for name in _COUNTS}
        header = {
            "format": _FORMAT,
            "problem": self.problem,
            "time": repr(time),
            "counts": json.dumps(counts),
            "memory": json.dumps(flow.memory()),
        }
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_whole(self.path, to_bytes(whole, metadata=header))

    def read(self, net: nn.Module, recorder: Recorder, until: float) -> float:
        """Take up the state in the file, if there is one; the flow time to go on from.

        It must not lie after `until`.
        """
        if not self.path.exists():
            return 0.0
        rule = "name a state that gradient_flow left behind"
        try:
            header, tensors = read_tensors(self.path)
            _check.choice("format", header.get("format"), [_FORMAT])
            time = float(header["time"])
            counts, memory = json.loads(header["counts"]), json.loads(header["memory"])
            parts = {name: tensors[f"net/{name}"] for name, _ in net.named_parameters()}
        except (FileError, KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"checkpoint must {rule}, got {self.path} ({error})") from error
        same = header.get("problem") == self.problem
        rule = "belong to the same network, data, settings and record (or be removed)"
        _check.require(same, "checkpoint", rule, self.path)
        rule = f"not lie before {time!r}, which the checkpoint has reached"
        _check.require(until >= time, "until", rule, until)
        with torch.no_grad():
            for name, part in net.named_parameters():
                part.copy_(parts[name])
        recorder.restore(tensors)
        self.counts, self.memory = counts, memory
        return time

    def resume(self, flow: Flow) -> None:
        """Let a flow that goes on from the file count and remember what went before."""
        for name, count in self.counts.items():
            setattr(flow.counts, name, getattr(flow.counts, name) + count)
        if self.memory:
            flow.remember(self.memory)

    def remove(self) -> None:
        """The flow has arrived: nothing is left to go on from."""
        self.path.unlink(missing_ok=True)


def writable(path: str | Path) -> Path:
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
    for part in _parts(parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    """Everything that makes a value what it is, as bytes; of a network also what is not trained."""
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)} {value.requires_grad}".encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, nn.Module):
        own = set(vars(nn.Module()))
        yield repr(value).encode()
        yield from _parts(dict(value.named_parameters()))
        yield from _parts(dict(value.named_buffers()))
        for name, part in value.named_modules():
            others = {key: other for key, other in vars(part).items() if key not in own}
            yield from _parts({name: others})
    elif is_dataclass(value):
        yield from _parts({field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for part in value:
            yield from _parts(part)
    elif value is None or isinstance(value, bool | int | float | str):
        yield repr(value).encode()
    else:  # whose repr may hold an address, which is another one in the next process
        yield type(value).__qualname__.encode()
