"""What adversarial training looks at beside its loss: robust accuracy under stronger attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from extremal import _check
from extremal.attack import run
from extremal.data import Dataset
from extremal.measure import accuracy
from extremal.train.inner_attack import Inner

Look = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Watch:
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

    def looks(self, train: Dataset, inner: Inner, generator: torch.Generator) -> dict[str, Look]:
        """What is recorded, by name; each look draws from the generator's own seed."""
        seed = generator.initial_seed()
        looks = {"robust_accuracy": self._robust(train, inner, seed)} if self.training else {}
        if self.validation is not None:
            held = self.validation
            looks["validation_robust"] = self._robust(held, inner, seed)
            looks["validation_accuracy"] = lambda net: accuracy(net, held)
        return looks

    def _robust(self, data: Dataset, inner: Inner, seed: int) -> Look:
        few = data.spaced(self.points)
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
