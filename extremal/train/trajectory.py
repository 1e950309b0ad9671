"""What a training run leaves behind: recorded values over time, to save, load and draw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import as_path, read_tensors, write_whole

_FORMAT = "extremal-trajectory-1"
_RULE = "be a trajectory file that extremal wrote"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Values recorded at `times` (m,): each of `values` and `snapshots` has m rows.

    `times` are flow time (step size times steps for GD and SGD; steps for Adam), `values` hold
    "loss", "accuracy" and whatever was watched, `snapshots` the parameters by name where they were
    asked for, and `info` the method, its counts, and whether it reached the end.
    """

    times: Tensor
    values: Mapping[str, Tensor]
    snapshots: Mapping[str, Tensor] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.times)

    def at(self, index: int, net: nn.Module) -> nn.Module:
        """Load snapshot number `index` into a network of the same shape, and return it."""
        stored = bool(self.snapshots)
        _check.require(stored, "trajectory", "have snapshots (record with snapshots=True)", "none")
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if name in self.snapshots:
                    parameter.copy_(self.snapshots[name][index])
        return net

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with the info as JSON in its header, whole or not at all.

        Where that fails it is a `FileError`, a ValueError with the path and the reason.
        """
        tensors = {"times": self.times.contiguous()}
        for kind in ("values", "snapshots"):
            for name, value in getattr(self, kind).items():
                tensors[f"{kind}/{name}"] = value.contiguous()
        metadata = {"format": _FORMAT, "info": json.dumps(dict(self.info))}
        write_whole(path, to_bytes(tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read what `save` wrote; a missing, broken or foreign file is a ValueError."""
        file = as_path(path)
        _check.require(file.is_file(), "path", "name an existing trajectory file", file)
        try:
            metadata, tensors = read_tensors(file)
            _check.choice("format", metadata.get("format"), [_FORMAT])
            info = json.loads(metadata.get("info", ""))
            _check.require(isinstance(info, dict), "info", "be a mapping", type(info).__name__)
            return _rebuild(tensors, info)
        except (RuntimeError, ValueError) as error:  # deep nesting is a RecursionError
            raise ValueError(f"path must {_RULE}, got {path} ({error})") from error


def _rebuild(tensors: dict[str, Tensor], info: dict[str, Any]) -> Trajectory:
    """The trajectory of a file's tensors, each with a row for each of the times."""
    names = sorted(tensors)
    _check.require("times" in tensors, "tensors", "hold the times", names)
    times = tensors["times"]
    _check.require(times.ndim == 1, "times", "have shape (m,)", f"shape {tuple(times.shape)}")
    parts: dict[str, dict[str, Tensor]] = {"values": {}, "snapshots": {}}
    for name in names:
        if name == "times":
            continue
        kind, slash, rest = name.partition("/")
        _check.require(bool(slash) and kind in parts, "tensors", "be values or snapshots", name)
        shape = tuple(tensors[name].shape)
        _check.require(shape[:1] == times.shape, name, f"have {len(times)} rows", f"shape {shape}")
        parts[kind][rest] = tensors[name]
    return Trajectory(times, parts["values"], parts["snapshots"], info)
