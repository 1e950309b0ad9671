"""What a training run leaves behind: recorded values over time, to save, load and draw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from extremal import _check

_FORMAT = "extremal-trajectory-1"


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
        """Write a safetensors file with the info as JSON in its header."""
        tensors = {"times": self.times.contiguous()}
        for kind in ("values", "snapshots"):
            for name, value in getattr(self, kind).items():
                tensors[f"{kind}/{name}"] = value.contiguous()
        save_file(tensors, path, {"format": _FORMAT, "info": json.dumps(dict(self.info))})

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read what `save` wrote; a missing, broken or foreign file is a ValueError."""
        _check.require(Path(path).is_file(), "path", "name an existing trajectory file", str(path))
        rule = "be a trajectory file that extremal wrote"
        try:
            with safe_open(path, framework="pt") as opened:
                metadata = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"path must {rule}, got {path} ({error})") from error
        whole = "times" in tensors and "info" in metadata
        _check.require(whole and metadata.get("format") == _FORMAT, "path", rule, str(path))
        parts: dict[str, dict[str, Tensor]] = {"values": {}, "snapshots": {}}
        for name, value in tensors.items():
            kind, _, rest = name.partition("/")
            if rest:
                parts[kind][rest] = value
        info = json.loads(metadata["info"])
        return cls(tensors["times"], parts["values"], parts["snapshots"], info)
