"""Epoch after epoch: when to record, when to stop, and a file to go on from.

What adversarial training looks at beside its loss: robust accuracy under stronger attacks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import FileError, read_tensors, write_whole
from extremal.attack import run
from extremal.data import Dataset
from extremal.measure import accuracy
from extremal.train.checkpoint import problem_digest, writable
from extremal.train.inner_attack import InnerAttack
from extremal.train.losses import outputs_on
from extremal.train.modes import evaluating
from extremal.train.optimisers import Optimiser
from extremal.train.recording import DivergenceError, Recorder, Trajectory

Look = Callable[[nn.Module], float]


@dataclass(frozen=True)
class RobustValidation:
    """How closely robust accuracy is watched, and when training ends early.

    Looked at are so many `points`, evenly spaced, of the training data and of `validation`, under
    all attacks of `ex.attack.run` with so many `steps` within `radius`, by default that of the
    attack trained with. `patience` is the number of records without a better robust accuracy on
    `validation` after which training ends. Without `training` only the validation set is attacked,
    which takes half the time.
    """

    points: int = 200
    steps: int = 50
    radius: float | None = None
    validation: Dataset | None = None
    patience: int | None = None
    training: bool = True

    def __post_init__(self) -> None:
        _check.integer("points", self.points, minimum=1)
        _check.integer("steps", self.steps, minimum=1)
        if self.radius is not None:
            _check.number("radius", self.radius, minimum=0.0)
        if self.validation is not None:
            _check.instance("validation", self.validation, Dataset, "be a Dataset or None")
        _check.instance("training", self.training, bool, "be True or False")
        if self.patience is not None:
            _check.integer("patience", self.patience, minimum=1)
            held = self.validation is not None
            _check.require(held, "patience", "come with a validation set", self.patience)

    def looks(
        self, train: Dataset, inner: InnerAttack, generator: torch.Generator
    ) -> dict[str, Look]:
        """What is recorded, by name; each look draws from the generator's own seed."""
        seed = generator.initial_seed()
        looks = {"robust_accuracy": self._robust(train, inner, seed)} if self.training else {}
        if self.validation is not None:
            held = self.validation
            looks["validation_robust"] = self._robust(held, inner, seed)
            looks["validation_accuracy"] = lambda net: accuracy(net, held)
        return looks

    def _robust(self, data: Dataset, inner: InnerAttack, seed: int) -> Look:
        few = data.evenly_spaced(self.points)
        radius = inner.radius if self.radius is None else self.radius

        def look(net: nn.Module) -> float:
            found = run(
                net,
                few.x,
                few.y,
                norm=inner.norm,
                radius=radius,
                box=inner.box,
                steps=self.steps,
                generator=torch.Generator().manual_seed(seed),
            )
            return 1.0 - float(found.success.double().mean())

        return look


_FORMAT = "extremal-epochs-1"
_EVERY = 15.0  # seconds between two files
_WATCHED = "validation_robust"


class EpochLoop:
    """The state of a training by epochs: its records, its best weights, its file.

    `patience` is the number of records without a better "validation_robust" after which it stops.
    Of equally robust ones that of less loss is kept. `problem` is all that, beside the network and
    the seed, says which training a file belongs to.
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
        problem: list[Any],
    ) -> None:
        self.net, self.rule, self.recorder = net, rule, recorder
        self.generator, self.patience = generator, patience
        self.best: dict[str, Tensor] = {}
        self.best_value, self.best_loss, self.best_epoch, self.since = -1.0, math.inf, 0, 0
        self.reached, self.stopped = 0, False
        self.path = None if checkpoint is None else writable(checkpoint)
        asked = [sorted(recorder.record.watch), recorder.record.snapshots]
        parts = [problem, asked, net, generator.get_state()]
        self.problem = problem_digest(parts) if self.path is not None else ""
        self.written = time.monotonic()

    def run(self, total: int) -> Iterator[int]:
        """The numbers of the epochs to train, from 1, or from where the file has left it."""
        if not self._taken_up():
            with evaluating(self.net):
                self.recorder.start()
        rule = f"not be below {self.reached}, which the checkpoint has reached"
        _check.require(total >= self.reached, "epochs", rule, total)
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
            raise self._diverged()
        if self.recorder.next_time() <= epoch * (1.0 + 1e-12):
            self._note()
        if self.path is not None and time.monotonic() - self.written >= self.every:
            self._write()

    def finish(self, **info: Any) -> Trajectory:
        """Record the end, put the best weights back where they are wanted, and remove the file."""
        if self.recorder.times[-1] < self.reached:
            self._note()
        kept = {}
        if self.patience is not None:
            self.net.load_state_dict(self.best)
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
        value, loss = float(self.recorder.rows[_WATCHED][-1]), self.recorder.losses[-1]
        better = value > self.best_value
        if better or (value == self.best_value and loss < self.best_loss):
            self.best_value, self.best_loss, self.best_epoch = value, loss, epoch
            self.best = {n: part.detach().clone() for n, part in self.net.state_dict().items()}
        if better:
            self.since = 0
            return
        self.since += 1
        self.stopped = self.since >= self.patience

    def _note(self) -> None:
        """Record now, unless the network has no finite loss, which no attack could look at."""
        known = self.recorder
        with evaluating(self.net):
            outputs = outputs_on(self.net, known.data)
            if not math.isfinite(float(known.loss.value(outputs, known.data.y))):
                raise self._diverged()
            known.note(float(self.reached), outputs)
        self._judge(self.reached)

    def _diverged(self) -> DivergenceError:
        advice = "the loss is not finite; use a smaller lr"
        return self.recorder.diverged(float(self.reached), advice, epochs=self.reached)

    def _write(self) -> None:
        """The whole state in one file, or the file as it was."""
        assert self.path is not None
        tensors = {f"net/{name}": part.detach() for name, part in self.net.state_dict().items()}
        tensors |= {f"rule/{name}": part for name, part in self.rule.state().items()}
        tensors |= {f"best/{name}": part for name, part in self.best.items()}
        tensors |= self.recorder.state()
        tensors["generator"] = self.generator.get_state()
        header = {"format": _FORMAT, "problem": self.problem, "epoch": str(self.reached)}
        best = (self.best_value, self.best_loss, self.best_epoch, self.since)
        header |= {"best": " ".join(map(repr, best))}
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
            value, loss, at, since = header["best"].split()
        except (FileError, KeyError, ValueError) as error:
            raise ValueError(f"checkpoint must {rule}, got {self.path} ({error})") from error
        same = header.get("problem") == self.problem
        rule = "belong to the same network, data, settings, record and seed (or be removed)"
        _check.require(same, "checkpoint", rule, self.path)
        self.reached = epoch
        self.best_value, self.best_loss = float(value), float(loss)
        self.best_epoch, self.since = int(at), int(since)
        self.stopped = self.patience is not None and self.since >= self.patience
        self.net.load_state_dict(_under("net/", tensors))
        self.best = _under("best/", tensors)
        self.rule.restore(_under("rule/", tensors))
        self.recorder.restore(tensors)
        self.generator.set_state(tensors["generator"])
        return True


def _under(start: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)
    }
