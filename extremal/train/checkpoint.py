"""The state of an unfinished flow in a file, so that it can be interrupted and go on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as to_bytes
from torch import nn

from extremal import _check
from extremal._files import FileError, as_path, read_tensors, write_whole
from extremal.data import Dataset
from extremal.train.record import Recorder

if TYPE_CHECKING:
    from extremal.train.follow import Flow

_FORMAT = "extremal-flow-1"
_EVERY = 15.0  # seconds


class Checkpoint:
    """Where a flow's state is kept, and of which problem: network, data and settings.

    A file of another problem is a ValueError, so that it is neither used nor lost. The end of the
    flow is not part of the problem: it may be put off when the flow goes on.
    """

    every = _EVERY

    def __init__(
        self, path: str | Path, net: nn.Module, data: Dataset, settings: dict[str, Any]
    ) -> None:
        self.path = as_path(path)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        tensors = [data.x, data.y, *(part.detach() for part in net.parameters())]
        for tensor in tensors:
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        self.problem = digest.hexdigest()
        self.twin = net

    def write(self, flow: Flow, recorder: Recorder) -> None:
        """Keep the state at the time reached, or at one still to be recorded before it.

        The file is written whole or not at all.
        """
        time = min(flow.time, recorder.next_time())
        flow.write(self.twin, time)
        tensors = {f"net/{name}": part.detach() for name, part in self.twin.named_parameters()}
        tensors |= recorder.state()
        header = {"format": _FORMAT, "problem": self.problem, "time": repr(time)}
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_whole(self.path, to_bytes(whole, metadata=header))

    def read(self, net: nn.Module, recorder: Recorder) -> float:
        """Take up the state in the file, if there is one; the flow time to go on from."""
        if not self.path.exists():
            return 0.0
        rule = "name a state that gradient_flow left behind"
        try:
            header, tensors = read_tensors(self.path)
            _check.choice("format", header.get("format"), [_FORMAT])
            time = float(header["time"])
            parts = {name: tensors[f"net/{name}"] for name, _ in net.named_parameters()}
        except (FileError, KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"checkpoint must {rule}, got {self.path} ({error})") from error
        same = header.get("problem") == self.problem
        rule = "belong to the same network, data and settings (or be removed)"
        _check.require(same, "checkpoint", rule, str(self.path))
        with torch.no_grad():
            for name, part in net.named_parameters():
                part.copy_(parts[name])
        recorder.restore(tensors)
        return time

    def remove(self) -> None:
        """The flow has arrived: nothing is left to go on from."""
        self.path.unlink(missing_ok=True)
