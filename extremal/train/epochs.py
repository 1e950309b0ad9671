"""Epoch after epoch: when to record, when to stop, and a file to go on from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import FileError, read_tensors, write_whole
from extremal.data import Dataset
from extremal.train.checkpoint import problem_of, writable
from extremal.train.optimisers import Optimiser
from extremal.train.record import Recorder
from extremal.train.trajectory import Trajectory

_FORMAT = "extremal-epochs-1"
_EVERY = 15.0  # seconds between two files
_WATCHED = "validation_robust"


class Epochs:
    """The state of a training by epochs: its records, its best weights, its file.

    `patience` is the number of records without a better "validation_robust" after which it stops.
    """

    every = _EVERY

    def __init__(
        self,
        net: nn.Module,
        rule: Optimiser,
        recorder: Recorder,
        generator: torch.Generator,
        patience: int | None,
        checkpoint: str | Path | None,
        settings: Mapping[str, Any],
        train: Dataset,
    ) -> None:
        self.net, self.rule, self.recorder = net, rule, recorder
        self.generator, self.patience = generator, patience
        self.best: dict[str, Tensor] = {}
        self.best_value, self.best_epoch, self.since = -1.0, 0, 0
        self.reached, self.stopped = 0, False
        self.path = None if checkpoint is None else writable(checkpoint)
        asked = [sorted(recorder.record.watch), recorder.record.snapshots]
        start = generator.get_state()
        parts = [dict(settings), asked, train.x, train.y, net, start]
        self.problem = problem_of(parts) if self.path is not None else ""
        self.written = time.monotonic()

    def run(self, total: int) -> Iterator[int]:
        """The numbers of the epochs to train, from 1, or from where the file has left it."""
        if not self._taken_up():
            self.recorder.start()
            self._judge(0)
        for epoch in range(self.reached + 1, total + 1):
            if self.stopped:
                return
            yield epoch

    def done(self, epoch: int, finite: bool) -> None:
        """An epoch is done: record it if it is due, and judge it; keep the state from time to time.

        The last epoch is recorded by `finish`.
        """
        self.reached = epoch
        if not finite:
            advice = "the loss is not finite; use a smaller lr"
            raise self.recorder.diverged(float(epoch), advice, epochs=epoch)
        if self.recorder.next_time() <= epoch * (1.0 + 1e-12):
            self.recorder.note(float(epoch))
            self._judge(epoch)
        if self.path is not None and time.monotonic() - self.written >= self.every:
            self._write()

    def finish(self, **info: Any) -> Trajectory:
        """Record the end, put the best weights back where they are wanted, and remove the file."""
        if self.recorder.times[-1] < self.reached:
            self.recorder.note(float(self.reached))
            self._judge(self.reached)
        kept = {}
        if self.patience is not None:
            with torch.no_grad():
                for name, part in self.net.named_parameters():
                    part.copy_(self.best[name])
            kept = {"best_epoch": self.best_epoch, "best_validation_robust": self.best_value}
        found = self.recorder.finish(
            converged=True, epochs=self.reached, stopped_early=self.stopped, **kept, **info
        )
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        return found

    def _judge(self, epoch: int) -> None:
        """Whether the last record is the best so far, and whether patience is at its end."""
        if self.patience is None:
            return
        value = float(self.recorder.rows[_WATCHED][-1])
        if value > self.best_value:
            self.best_value, self.best_epoch, self.since = value, epoch, 0
            self.best = {n: part.detach().clone() for n, part in self.net.named_parameters()}
            return
        self.since += 1
        self.stopped = self.since >= self.patience

    def _write(self) -> None:
        """The whole state in one file, or the file as it was."""
        assert self.path is not None
        tensors = {f"net/{name}": part.detach() for name, part in self.net.named_parameters()}
        tensors |= {f"rule/{name}": part for name, part in self.rule.state().items()}
        tensors |= {f"best/{name}": part for name, part in self.best.items()}
        tensors |= self.recorder.state()
        tensors["generator"] = self.generator.get_state()
        header = {"format": _FORMAT, "problem": self.problem, "epoch": str(self.reached)}
        header |= {"best": f"{self.best_value!r} {self.best_epoch} {self.since}"}
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        write_whole(self.path, to_bytes(whole, metadata=header))
        self.written = time.monotonic()

    def _taken_up(self) -> bool:
        """Go on from the file, if there is one."""
        if self.path is None or not self.path.exists():
            return False
        rule = "name a state that adversarial training left behind"
        try:
            header, tensors = read_tensors(self.path)
            _check.choice("format", header.get("format"), [_FORMAT])
            epoch = int(header["epoch"])
            value, at, since = header["best"].split()
        except (FileError, KeyError, ValueError) as error:
            raise ValueError(f"checkpoint must {rule}, got {self.path} ({error})") from error
        same = header.get("problem") == self.problem
        rule = "belong to the same network, data, settings, record and seed (or be removed)"
        _check.require(same, "checkpoint", rule, self.path)
        self.reached = epoch
        self.best_value, self.best_epoch, self.since = float(value), int(at), int(since)
        with torch.no_grad():
            for name, part in self.net.named_parameters():
                part.copy_(tensors[f"net/{name}"])
        self.best = _under("best/", tensors)
        self.rule.restore(_under("rule/", tensors))
        self.recorder.restore(tensors)
        self.generator.set_state(tensors["generator"])
        return True


def _under(start: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)
    }
