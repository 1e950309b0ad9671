"""Robust overfitting: clean and adversarial training followed over epochs, on images.

The study behind `li-2022/overfitting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import _check, attack, data, measure, models, train
from extremal.data import Dataset
from extremal.experiments.trial import Outcome

TRAININGS = ("clean", "adversarial")
_PARTS = ("train", "validation", "test")


def overfitting(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by Adam: clean and robust accuracy on three disjoint sets, by epoch.

    A ReLU network of one hidden layer. Robust accuracy is under the strongest attack at `radius`,
    in the box, on the first `watched_points` of each set. Early stopping takes the epoch of the
    best robust accuracy on the validation set; `recovered` is what it wins on the test set over the
    last epoch, and `gap` the robust train minus test accuracy in the end.
    """
    _check.choice("training", params["training"], TRAININGS)
    sets = _split(params, generator)
    learn = sets["train"]
    net = models.PReLUNet(
        learn.dim,
        params["width"],
        outputs=1 + int(learn.y.max()),
        bias=True,
        hidden_bias=True,
        preparation=models.Preparation(center=learn.x.mean(0)),
        init=models.Kaiming(),
        generator=generator,
    )
    every = params["recorded_every"]
    radius = params["radius"] if params["training"] == "adversarial" else 0.0
    seed = generator.initial_seed()
    looks = {f"{part}_robust": _look(sets[part], params, seed) for part in _PARTS}
    looks["test_clean"] = lambda seen: measure.accuracy(seen, sets["test"])
    path = train.adversarial(
        net,
        learn,
        inner=train.InnerAttack("linf", radius, steps=params["inner_steps"], box=(0.0, 1.0)),
        method="adam",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        watch=train.RobustValidation(points=1, steps=1),
        record=train.Record(at=range(every, params["epochs"], every), watch=looks),
        generator=generator,
    )
    values = {name: part.tolist() for name, part in path.values.items()}
    return Outcome({"epoch": [round(t) for t in path.times.tolist()], **_told(values)})


def _told(values: Mapping[str, list[float]]) -> dict[str, Any]:
    """Curves, the four rows of the talk's table, and what early stopping recovers."""
    robust = values["test_robust"]
    best = max(range(len(robust)), key=lambda at: values["validation_robust"][at])
    return {
        "train_clean": values["accuracy"],
        "test_clean": values["test_clean"],
        "train_robust": values["train_robust"],
        "test_robust": robust,
        "robust_test": robust[-1],
        "robust_train": values["train_robust"][-1],
        "clean_test": values["test_clean"][-1],
        "clean_train": values["accuracy"][-1],
        "gap": values["train_robust"][-1] - robust[-1],
        "stopped_robust": robust[best],
        "recovered": robust[best] - robust[-1],
    }


def _look(part: Dataset, params: Mapping[str, Any], seed: int) -> Any:
    """Accuracy of a network under the strongest attack on the first points of a set."""
    few = part.take(slice(params["watched_points"]))

    def look(net: nn.Module) -> float:
        found = attack.run(
            net,
            few.x,
            few.y,
            norm="linf",
            radius=params["radius"],
            box=(0.0, 1.0),
            generator=torch.Generator().manual_seed(seed),
        )
        return 1.0 - float(found.success.double().mean())

    return look


def _split(params: Mapping[str, Any], generator: torch.Generator) -> dict[str, Dataset]:
    """Training and validation points from the training images, test points from the others."""
    learn, test = data.load(params["problem"])
    own, held = params["train_points"], params["validation_points"]
    _check.require(own + held <= len(learn), "train_points", f"leave {held} others", own)
    order = torch.randperm(len(learn), generator=generator)
    chosen = torch.randperm(len(test), generator=generator)[: params["test_points"]]
    places = {"train": order[:own], "validation": order[own : own + held]}
    return {part: learn.take(at) for part, at in places.items()} | {"test": test.take(chosen)}
