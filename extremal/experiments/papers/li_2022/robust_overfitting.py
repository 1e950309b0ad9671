"""The talk's four-row table: adversarial training fits its points and not fresh ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import _check, attack, data, measure, models, train
from extremal.data import Dataset
from extremal.experiments import Claim, Experiment, Line, Scale, Setting
from extremal.experiments.trial import Outcome

_TABLE_SOURCE = (
    "the talk's table (Raghunathan et al. 2019), as a pattern on another network; limits ours"
)
_RICE_SOURCE = "Rice et al. 2020, in the talk: the robust test error rises again; the limit is ours"
_CURVE_NAMES = ("train_clean", "test_clean", "train_robust", "test_robust")


def _panel(title: str, training: str) -> Line:
    return Line(
        title,
        "epoch",
        {name: name.replace("_", ", ") for name in _CURVE_NAMES},
        "epoch",
        "accuracy",
        where={"training": training},
        styles={"train_clean": "dashed", "train_robust": "dashed"},
    )


def _claim(text: str, training: str, value: str, limit: float, rule: Any, source: str) -> Claim:
    where = {"training": training}
    scales: tuple[Scale, ...] = ("paper",)
    return Claim(
        f"{training}: {text}", value, limit, 0.0, source, where, rule, scales, against="published"
    )


overfitting = Experiment(
    name="li-2022/overfitting",
    title="Robust accuracy on training points and on fresh ones",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, the talk's table and learning curves",
    study="extremal.experiments.studies.overfitting:overfitting",
    settings={
        "problem": Setting("cifar10", "S"),
        "training": Setting(["clean", "adversarial"], "S"),
        "radius": Setting(0.031, "S", "l-inf, the talk's for CIFAR-10"),
        "train_points": Setting(500, "O", "a random subset, so that it trains here"),
        "validation_points": Setting(200, "O", "for early stopping, from the training images"),
        "test_points": Setting(1000, "O", "a random subset of the test images"),
        "watched_points": Setting(150, "O", "of each set, that are attacked"),
        "width": Setting(256, "O", "one hidden layer of ReLUs; the talk: deep networks"),
        "lr": Setting(2e-3, "O", "Adam"),
        "batch": Setting(50, "O"),
        "epochs": Setting(120, "O"),
        "inner_steps": Setting(5, "O", "of the attack trained with"),
        "recorded_every": Setting(10, "O", "epochs"),
        "seeds": Setting(3, "O"),
    },
    quick={
        "problem": "digits",
        "radius": 0.15,
        "train_points": 100,
        "watched_points": 100,
        "width": 100,
        "batch": 10,
        "epochs": 60,
        "recorded_every": 5,
        "seeds": 1,
    },
    smoke={
        "problem": "digits",
        "radius": 0.1,
        "train_points": 30,
        "validation_points": 10,
        "test_points": 20,
        "watched_points": 5,
        "width": 8,
        "batch": 10,
        "epochs": 4,
        "recorded_every": 2,
        "seeds": 1,
    },
    axes=("training",),
    columns=2,
    panels=(
        _panel("Clean training", "clean"),
        _panel("Adversarial training", "adversarial"),
    ),
    claims=(
        _claim("robust test, 3.5 % there", "clean", "robust_test", 0.1, "below", _TABLE_SOURCE),
        _claim("clean train", "clean", "clean_train", 0.99, "above", _TABLE_SOURCE),
        _claim("robust train", "adversarial", "robust_train", 0.99, "above", _TABLE_SOURCE),
        _claim("clean train", "adversarial", "clean_train", 0.99, "above", _TABLE_SOURCE),
        _claim(
            "robust train - test, .542 there", "adversarial", "gap", 0.5, "above", _TABLE_SOURCE
        ),
        _claim("won by early stopping", "adversarial", "recovered", 0.0, "above", _RICE_SOURCE),
        Claim(
            "adversarial: robust test, above that of clean training",
            "robust_test",
            {"training": "clean"},
            0.0,
            _TABLE_SOURCE,
            {"training": "adversarial"},
            "above",
            against="published",
        ),
        Claim(
            "adversarial: clean test, below that of clean training",
            "clean_test",
            {"training": "clean"},
            0.0,
            _TABLE_SOURCE,
            {"training": "adversarial"},
            "below",
            ("paper",),
            against="published",
        ),
    ),
    notes=(
        "The talk's table on CIFAR-10: clean training 3.5 % robust test, 95.2 % clean test, 100 % "
        "clean train; adversarial training 45.8 % robust test, 100 % robust train, 87.3 % clean "
        "test, 100 % clean train. Those are deep networks on all 50,000 images: here a small one "
        "on a stated subset, so that the pattern is compared and not the values. At quick and "
        "smoke scale on digits."
    ),
)


TRAINING_KINDS = ("clean", "adversarial")
_DATA_PARTS = ("train", "validation", "test")


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by Adam: clean and robust accuracy on three disjoint sets, by epoch.

    A ReLU network of one hidden layer. Robust accuracy is under the strongest attack at `radius`,
    in the box, on the first `watched_points` of each set. Early stopping takes the epoch of the
    best robust accuracy on the validation set; `recovered` is what it wins on the test set over the
    last epoch, and `gap` the robust train minus test accuracy in the end.
    """
    _check.choice("training", params["training"], TRAINING_KINDS)
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
    looks = {f"{part}_robust": _look(sets[part], params, seed) for part in _DATA_PARTS}
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
