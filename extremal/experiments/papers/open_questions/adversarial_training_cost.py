"""What robustness costs: adversarial training of ReLU networks, plain training of pReLU ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from extremal import _check, measure, train
from extremal.experiments import Against, Claim, Experiment, Line, Scale, Setting
from extremal.experiments.papers.shared.image_training import random_images
from extremal.experiments.papers.shared.robust_numbers import accuracy_by_attack_and_proof
from extremal.experiments.trial import Outcome

_TRAINED_NETWORKS: list[dict[str, Any]] = [
    {"label": "ReLU", "p": 1.0, "training": "plain"},
    {"label": "p = 3", "p": 3.0, "training": "plain"},
    {"label": "ReLU, adversarial", "p": 1.0, "training": "adversarial"},
    {"label": "p = 3, adversarial", "p": 3.0, "training": "adversarial"},
]
_IMAGE_DATASETS = ("mnist", "fashion-mnist")
_PUBLISHED_SOURCE = "Min & Vidal 2024, Table 1, as an ordering"
_OURS_SOURCE = "ours: does a better activation replace adversarial training, and at what price?"


def _panel(title: str, y: str, ylabel: str) -> Line:
    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "digits": "digits"}
    return Line(title, "label", (y,), "", ylabel, by="dataset", labels=names, joined=False)


def _over(dataset: str, value: str, what: str, more: str, less: str, source: str) -> Claim:
    told = source == _PUBLISHED_SOURCE and dataset == "mnist"  # Table 1 has no other images
    against: Against = "published" if told else "question"
    return Claim(
        f"{dataset}: {what}, {more} over {less}",
        value,
        {"dataset": dataset, "label": less},
        0.01 if value == "attacked" else 0.0,
        source,
        {"dataset": dataset, "label": more},
        rule="over",
        scales=_scales(dataset),
        against=against,
    )


def _each_second(dataset: str, label: str) -> Claim:
    return Claim(
        f"{dataset}: robust for each second, {label}",
        "per_second",
        None,
        0.0,
        "ours: of the machine that ran it",
        {"dataset": dataset, "label": label},
        rule="reported",
        scales=_scales(dataset),
        against="question",
    )


def _scales(dataset: str) -> tuple[Scale, ...]:
    return ("quick",) if dataset == "digits" else ("paper",)


training_time = Experiment(
    name="open-questions/training-time",
    title="Adversarial training, or a better activation?",
    source="ours: Min & Vidal 2024 beside adversarial training",
    study="extremal.experiments.studies.training_time:training_time",
    settings={
        "dataset": Setting(list(_IMAGE_DATASETS), "O"),
        "case": Setting(_TRAINED_NETWORKS, "O", "activation and training; all of one width"),
        "width": Setting(200, "O"),
        "train_points": Setting(6000, "O", "a random subset, for time"),
        "test_points": Setting(2000, "O", "a random subset"),
        "lr": Setting(1e-3, "O", "Adam, as on MNIST in Min & Vidal 2024"),
        "batch": Setting(200, "O"),
        "epochs": Setting(12, "O", "for plain and for adversarial training"),
        "radius": Setting(0.1, "O", "l-inf, in training and evaluation"),
        "inner_steps": Setting(7, "O", "of the attack trained with, from a random start"),
        "attacked_points": Setting(200, "O", "the first test points"),
        "attack_steps": Setting(50, "O", "of APGD-CE, before the strongest attack"),
        "certified_points": Setting(50, "O", "the first of them"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "dataset": ["digits"],
        "width": 100,
        "train_points": 1000,
        "test_points": 300,
        "batch": 50,
        "epochs": 20,
        "attacked_points": 100,
        "certified_points": 20,
        "seeds": 2,
    },
    smoke={
        "dataset": ["digits"],
        "width": 8,
        "train_points": 60,
        "test_points": 20,
        "batch": 20,
        "epochs": 2,
        "inner_steps": 2,
        "attacked_points": 4,
        "attack_steps": 2,
        "certified_points": 2,
        "seeds": 1,
    },
    axes=("dataset", "case"),
    columns=2,
    panels=(
        _panel("Clean accuracy", "clean", "accuracy"),
        _panel("Under the strongest attack", "attacked", "robust accuracy"),
        _panel("Certified, first points", "certified", "robust accuracy"),
        _panel("Cost of the training", "seconds", "seconds of the processor"),
        _panel("For each second of training", "per_second", "robust accuracy / s"),
        _panel("For each pass over the images", "per_pass", "robust accuracy / pass"),
    ),
    claims=tuple(
        claim
        for dataset in ("digits", *_IMAGE_DATASETS)
        for claim in (
            _over(dataset, "attacked", "robust", "p = 3", "ReLU", _PUBLISHED_SOURCE),
            _over(dataset, "attacked", "robust", "ReLU, adversarial", "p = 3", _OURS_SOURCE),
            _over(
                dataset,
                "attacked",
                "robust",
                "p = 3, adversarial",
                "ReLU, adversarial",
                _OURS_SOURCE,
            ),
            _over(
                dataset,
                "per_pass",
                "robust for each pass",
                "p = 3",
                "ReLU, adversarial",
                _OURS_SOURCE,
            ),
            *(_each_second(dataset, net["label"]) for net in _TRAINED_NETWORKS),
        )
    ),
    notes=(
        "Robust accuracy is at l-inf 0.1. A network is over another where it is so in every seed, "
        "by more than 0.01 in robust accuracy, which is one image or two. Seconds are of the "
        "machine that ran it, and no row of them is judged; a pass is a gradient that each "
        "training image was part of, of which adversarial training takes one more than its attack "
        "has steps. Certificates in l-inf are linear bounds: a small one is a weak proof, not a "
        "weak network. At quick scale: digits."
    ),
)


TRAINING_KINDS = ("plain", "adversarial")


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training of a shallow network by Adam: accuracies, and what they have cost.

    `seconds` are those of the processor that trained, a property of the machine; `passes` is the
    number of gradients that each image was part of, which is none. Robust accuracy is at `radius`
    in l-inf, under the strongest attack and, of the first points, certified.
    """
    _check.choice("training", params["training"], TRAINING_KINDS)
    points = params["train_points"], params["test_points"]
    learn, test = random_images(params["dataset"], *points, generator)
    net = train.mnist_network(params["p"], learn, width=params["width"], generator=generator)
    attacked = params["training"] == "adversarial"
    radius, steps = params["radius"], params["inner_steps"]
    begun = time.process_time()
    train.adversarial(
        net,
        learn,
        inner=train.InnerAttack(
            "linf", radius if attacked else 0.0, steps, start="random", box=test.box
        ),
        method="adam",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        watch=train.RobustValidation(training=False),
        generator=generator,
    )
    seconds = time.process_time() - begun
    passes = params["epochs"] * (1 + steps if attacked else 1)
    found = accuracy_by_attack_and_proof(
        net,
        test.take(slice(params["attacked_points"])),
        [radius],
        norm="linf",
        steps=params["attack_steps"],
        certified=params["certified_points"],
        generator=generator,
    ).curves()
    robust = found["attacked"][-1]
    return Outcome(
        {
            "clean": measure.accuracy(net, test),
            "attacked": robust,
            "attacked_few": found["attacked_few"][-1],
            "certified": found["certified"][-1],
            "seconds": seconds,
            "passes": passes,
            "per_second": robust / max(seconds, 1e-9),
            "per_pass": robust / passes,
        }
    )
