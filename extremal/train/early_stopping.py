"""Training by epochs: when to record, when to stop, and a file to go on from.

`RobustValidation` says how robust accuracy is recorded, under attacks stronger than the inner one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack import run
from extremal.data import Dataset
from extremal.measure import accuracy
from extremal.models import evaluation_mode
from extremal.train.checkpoint import Checkpoint
from extremal.train.inner_attack import InnerAttack
from extremal.train.losses import outputs_on
from extremal.train.optimisers import Optimiser
from extremal.train.recording import DivergenceError, Probe, Recorder, Trajectory


@dataclass(frozen=True)
class RobustValidation:
    """How closely robust accuracy is watched, and when training ends early.

    Points of the training data and of `validation` are attacked by `ex.attack.run(smallest=False)`.
    Training ends after `patience` records without a better robust accuracy on `validation`; None
    for no such end.
    """

    points: int = 200  # how many are looked at, evenly spaced, of each set
    steps: int = 50  # of the attacks of `ex.attack.run`
    radius: float | None = None  # None for that of the attack trained with
    validation: Dataset | None = None  # points that are not trained on; None for none
    patience: int | None = None  # how many records without a better one end it
    training: bool = True  # False takes half the time: validation alone

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

    def probes(
        self, train: Dataset, inner: InnerAttack, generator: torch.Generator
    ) -> dict[str, Probe]:
        """What is recorded, by name; each draws from the generator's own seed.

        Arguments:

        - `train`: the training data.
        - `inner`: the attack trained with, whose norm and box are used, and its radius where none
          is given.
        - `generator`: a `torch.Generator`; its seed decides all draws.
        """
        seed = generator.initial_seed()
        probes = {"robust_accuracy": self._robust(train, inner, seed)} if self.training else {}
        if self.validation is not None:
            held = self.validation
            probes["validation_robust"] = self._robust(held, inner, seed)
            probes["validation_accuracy"] = lambda net: accuracy(net, held)
        return probes

    def _robust(self, data: Dataset, inner: InnerAttack, seed: int) -> Probe:
        points = data.evenly_spaced(self.points)
        radius = inner.radius if self.radius is None else self.radius

        def probe(net: nn.Module) -> float:
            found = run(
                net,
                points.x,
                points.y,
                norm=inner.norm,
                radius=radius,
                box=inner.box,
                steps=self.steps,
                smallest=False,
                generator=torch.Generator().manual_seed(seed),
            )
            return 1.0 - float(found.success.double().mean())

        return probe


@dataclass
class EpochProgress:
    """How far a training has come, and its best record so far, as its file has it."""

    epochs: int = 0
    best_value: float = -1.0
    best_loss: float = math.inf
    best_epoch: int = 0
    records_since_best: int = 0


class EpochLoop:
    """The state of a training by epochs: its records, its best weights, its file.

    `patience` is the number of records without a better "validation_robust" after which it stops.
    Of equally robust records that of the least loss is the best.
    """

    def __init__(
        self,
        net: nn.Module,
        rule: Optimiser,
        recorder: Recorder,
        generator: torch.Generator,
        patience: int | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.net, self.rule, self.recorder = net, rule, recorder
        self.generator, self.patience, self.checkpoint = generator, patience, checkpoint
        self.progress = EpochProgress()
        self.best_weights: dict[str, Tensor] = {}

    @property
    def stopped(self) -> bool:
        """Whether patience has come to its end."""
        return self.patience is not None and self.progress.records_since_best >= self.patience

    def run(self, total: int) -> Iterator[int]:
        """The numbers of the epochs to train, from 1, or from where the file has left it."""
        if not self._resumed():
            with evaluation_mode(self.net):
                self.recorder.start()
        reached = self.progress.epochs
        rule = f"not be below {reached}, which the checkpoint has reached"
        _check.require(total >= reached, "epochs", rule, total)
        for epoch in range(reached + 1, total + 1):
            if self.stopped:
                return
            yield epoch

    def done(self, epoch: int, finite: bool) -> None:
        """An epoch is done: record it if that is due, and write the file from time to time.

        The last epoch is recorded by `finish`.
        """
        self.progress.epochs = epoch
        if not finite:
            raise self._diverged()
        if self.recorder.next_time() <= epoch * (1.0 + 1e-12):
            self._record_now()
        if self.checkpoint is not None and self.checkpoint.is_due:
            self._write(self.checkpoint)

    def finish(self, **info: Any) -> Trajectory:
        """Record the end, put the best weights back where they are wanted, and remove the file."""
        now = self.progress
        if self.recorder.times[-1] < now.epochs:
            self._record_now()
        best = {}
        if self.patience is not None:
            self.net.load_state_dict(self.best_weights)
            best = {"best_epoch": now.best_epoch, "best_validation_robust": now.best_value}
        trajectory = self.recorder.finish(
            converged=True, epochs=now.epochs, stopped_early=self.stopped, **best, **info
        )
        if self.checkpoint is not None:
            self.checkpoint.remove()
        return trajectory

    def _record_now(self) -> None:
        """Record now, unless the network has no finite loss, which no attack could handle."""
        recorder = self.recorder
        with evaluation_mode(self.net):
            outputs = outputs_on(self.net, recorder.data)
            if not math.isfinite(float(recorder.loss.value(outputs, recorder.data.y))):
                raise self._diverged()
            recorder.note(float(self.progress.epochs), outputs)
        if self.patience is not None:
            self._compare_with_best()

    def _compare_with_best(self) -> None:
        """Keep the weights if the last record is the best so far."""
        now, recorder = self.progress, self.recorder
        value, loss = float(recorder.rows["validation_robust"][-1]), recorder.losses[-1]
        better = value > now.best_value
        if better or (value == now.best_value and loss < now.best_loss):
            now.best_value, now.best_loss, now.best_epoch = value, loss, now.epochs
            weights = self.net.state_dict()
            self.best_weights = {name: part.detach().clone() for name, part in weights.items()}
        now.records_since_best = 0 if better else now.records_since_best + 1

    def _diverged(self) -> DivergenceError:
        advice, reached = "the loss is not finite; use a smaller lr", self.progress.epochs
        return self.recorder.diverged(float(reached), advice, epochs=reached)

    def _write(self, checkpoint: Checkpoint) -> None:
        """Keep the whole state in the file."""
        tensors = {f"net/{name}": part for name, part in self.net.state_dict().items()}
        tensors |= {f"rule/{name}": part for name, part in self.rule.state().items()}
        tensors |= {f"best/{name}": part for name, part in self.best_weights.items()}
        tensors |= self.recorder.state()
        tensors["generator"] = self.generator.get_state()
        checkpoint.write(asdict(self.progress), tensors)

    def _resumed(self) -> bool:
        """Go on from the file; whether there is one."""
        found = None if self.checkpoint is None else self.checkpoint.read()
        if found is None:
            return False
        state, tensors = found
        self.progress = EpochProgress(**state)
        self.net.load_state_dict(_under("net/", tensors))
        self.best_weights = _under("best/", tensors)
        self.rule.restore(_under("rule/", tensors))
        self.recorder.restore(tensors)
        self.generator.set_state(tensors["generator"])
        return True


def _under(start: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have that start, by the rest of their names."""
    return {
        name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)
    }
