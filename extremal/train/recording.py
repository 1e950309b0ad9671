"""What to record along a training (`Record`), who records it, and the `Trajectory` that results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import as_path, read_tensors, write_whole
from extremal.data import Dataset
from extremal.models import output_margins
from extremal.train.losses import Loss, outputs_on

# Each trajectory file names its form by this word, and files of another form are refused.
_FILE_FORMAT = "extremal-trajectory-1"
# Errors about a file that can't be read say this rule.
_FILE_RULE = "be a trajectory file that extremal wrote"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What was recorded of a training run at m times.

    `times` are flow time (step size times steps for GD and SGD), steps for Adam, or epochs for
    adversarial training. `values` hold "loss", "accuracy" and whatever was watched, and `snapshots`
    the parameters by name where they were asked for.
    """

    times: Tensor  # (m,), when values were recorded
    values: Mapping[str, Tensor]  # m rows each, by name
    snapshots: Mapping[str, Tensor] = field(default_factory=dict)  # m rows each, by name
    info: Mapping[str, Any] = field(default_factory=dict)  # the method, its counts and its end

    def __len__(self) -> int:
        return len(self.times)

    def at(self, index: int, net: nn.Module) -> nn.Module:
        """Load snapshot number `index` into `net`, a network of the same shape, and return it."""
        stored = bool(self.snapshots)
        _check.require(stored, "trajectory", "have snapshots (record with snapshots=True)", "none")
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                if name in self.snapshots:
                    parameter.copy_(self.snapshots[name][index])
        return net

    def save(self, path: str | Path) -> None:
        """Write `path`, safetensors with the info as JSON in its header, whole or not at all.

        Where that fails it is a `FileError`, a ValueError with the path and the reason.
        """
        tensors = {"times": self.times.contiguous()}
        for kind in ("values", "snapshots"):
            for name, value in getattr(self, kind).items():
                tensors[f"{kind}/{name}"] = value.contiguous()
        metadata = {"format": _FILE_FORMAT, "info": json.dumps(dict(self.info))}
        write_whole(path, to_bytes(tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read from `path` what `save` wrote; a missing, broken or foreign file is a ValueError."""
        file = as_path(path)
        _check.require(file.is_file(), "path", "name an existing trajectory file", file)
        try:
            metadata, tensors = read_tensors(file)
            _check.choice("format", metadata.get("format"), [_FILE_FORMAT])
            info = json.loads(metadata.get("info", ""))
            _check.require(isinstance(info, dict), "info", "be a mapping", type(info).__name__)
            return _from_tensors(tensors, info)
        except (RuntimeError, ValueError) as error:  # deep nesting is a RecursionError
            raise ValueError(f"path must {_FILE_RULE}, got {path} ({error})") from error


def _from_tensors(tensors: dict[str, Tensor], info: dict[str, Any]) -> Trajectory:
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


Probe = Callable[[nn.Module], Tensor | float]  # a quantity of the network that is recorded


@dataclass(frozen=True)
class Record:
    """What is recorded of a training run, and when: always at its start and its end.

    The loss and the accuracy on the training data are always recorded; an entry of `watch` is such
    as `lambda net: ex.measure.cosines(net.neurons, mix.centers)`. A flow is recorded with `phases`
    also where one phase ends and the next begins.
    """

    at: Sequence[float] = ()  # times, none beyond the end
    watch: Mapping[str, Probe] = field(default_factory=dict)  # functions of the network, by name
    snapshots: bool = False  # whether the parameters are kept, too
    phases: bool = False  # whether a gradient flow's phases are recorded, too

    def __post_init__(self) -> None:
        times = tuple(_check.number("record.at", t, minimum=0.0) for t in _as_list(self.at))
        object.__setattr__(self, "at", times)
        rule = "map names to functions of the network"
        _check.instance("record.watch", self.watch, Mapping, rule)
        able = all(isinstance(k, str) and callable(watch) for k, watch in self.watch.items())
        _check.require(able, "record.watch", rule, self.watch)
        taken = sorted({"loss", "accuracy"} & set(self.watch))
        _check.require(not taken, "record.watch", "use names other than loss and accuracy", taken)

    @classmethod
    def log_spaced(cls, first: float, last: float, count: int, **others: Any) -> Record:
        """Record at times that are equally spaced in their logarithm.

        Arguments:

        - `first`: the first time, above 0.
        - `last`: the last time.
        - `count`: how many times.
        - `others`: the other fields of a `Record`.
        """
        low = _check.number("first", first, above=0.0)
        high = _check.number("last", last, above=low)
        _check.integer("count", count, minimum=2)
        steps = torch.linspace(math.log(low), math.log(high), count, dtype=torch.float64)
        return cls(at=tuple(steps.exp().tolist()), **others)


def _as_list(times: Sequence[float]) -> list[float]:
    try:
        return list(times)
    except TypeError as error:
        rule = "be a sequence of times"
        raise ValueError(f"record.at must {rule}, got {times!r}") from error


class DivergenceError(RuntimeError):
    """Training left the finite numbers, or did not come to its end in the steps it was given.

    `trajectory` holds what was recorded until then, and its info says by what it was ended.
    """

    def __init__(self, message: str, trajectory: Trajectory) -> None:
        super().__init__(message)
        self.trajectory = trajectory


class Recorder:
    """Collects one row of values whenever training passes a time that the `Record` names."""

    def __init__(
        self, record: Record | None, net: nn.Module, data: Dataset, loss: Loss, until: float
    ) -> None:
        if record is not None:
            _check.instance("record", record, Record, "be a Record or None")
        self.record = record or Record()
        last = max(self.record.at, default=0.0)
        rule = f"lie within the training time, at most {until:g}"
        _check.require(last <= until * (1.0 + 1e-9), "record.at", rule, last)
        self.net, self.data, self.loss = net, data, loss
        self.pending = [t for t in sorted(set(self.record.at)) if 0.0 < t < until * (1.0 - 1e-9)]
        self.times: list[float] = []
        self.rows: dict[str, list[Tensor]] = {}
        self.snapshots: dict[str, list[Tensor]] = {}

    def next_time(self) -> float:
        """The next time to record at, infinite when none is left."""
        return self.pending[0] if self.pending else math.inf

    def note(self, time: float, outputs: Tensor | None = None) -> float:
        """Record now; returns the loss, which tells divergence.

        `outputs`, (n,) or (n, C), are the network's on the training data, where they are known.
        """
        outputs = outputs_on(self.net, self.data) if outputs is None else outputs
        loss = float(self.loss.value(outputs, self.data.y))
        right = float((output_margins(outputs, self.data.y) > 0).double().mean())
        row: dict[str, Tensor | float] = {"loss": loss}
        row["accuracy"] = right if math.isfinite(loss) else math.nan
        with torch.no_grad():
            row |= {name: watch(self.net) for name, watch in self.record.watch.items()}
        # Rows are added only now, so that an interrupted watch leaves no incomplete row behind.
        while self.pending and self.pending[0] <= time * (1.0 + 1e-12):
            self.pending.pop(0)
        self.times.append(time)
        for name, value in row.items():
            self._add(name, value)
        if self.record.snapshots:
            for name, part in self.net.named_parameters():
                self.snapshots.setdefault(name, []).append(part.detach().clone())
        return loss

    @property
    def losses(self) -> list[float]:
        """The losses recorded so far."""
        return [float(loss) for loss in self.rows.get("loss", [])]

    def state(self) -> dict[str, Tensor]:
        """What was recorded so far, as tensors by name."""
        tensors = {"times": torch.tensor(self.times, dtype=torch.float64)}
        for kind, rows in (("values", self.rows), ("snapshots", self.snapshots)):
            tensors |= {f"{kind}/{name}": torch.stack(part) for name, part in rows.items()}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `state` gave."""
        self.times = tensors["times"].tolist()
        for kind, rows in (("values", self.rows), ("snapshots", self.snapshots)):
            for name, part in tensors.items():
                if name.startswith(f"{kind}/"):
                    rows[name.removeprefix(f"{kind}/")] = list(part)
        last = self.times[-1] if self.times else -math.inf
        self.pending = [time for time in self.pending if time > last]

    def start(self) -> None:
        """Record at time 0; where the loss is not finite even there, nothing can be trained."""
        if not math.isfinite(self.note(0.0)):
            advice = "the loss is not finite at the start; make the weights or the data smaller"
            raise self.diverged(0.0, advice)

    def finish(self, **info: Any) -> Trajectory:
        """The trajectory of everything recorded."""
        return Trajectory(
            times=torch.tensor(self.times, dtype=torch.float64),
            values={name: torch.stack(rows) for name, rows in self.rows.items()},
            snapshots={name: torch.stack(rows) for name, rows in self.snapshots.items()},
            info={"loss": self.loss.name, "reduction": self.loss.reduction, **info},
        )

    def diverged(self, time: float, advice: str, **info: Any) -> DivergenceError:
        """The error to raise when the loss is not finite any more."""
        return self.unfinished(time, f"training diverged at time {time:g}: {advice}", **info)

    def unfinished(self, time: float, message: str, **info: Any) -> DivergenceError:
        """The error to raise when training can't go on to its end."""
        return DivergenceError(message, self.finish(converged=False, reached=time, **info))

    def _add(self, name: str, value: Tensor | float) -> None:
        row = torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().clone()
        self.rows.setdefault(name, []).append(row)
