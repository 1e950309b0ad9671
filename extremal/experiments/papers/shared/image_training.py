"""Random parts of image data, and Adam on a network of real data with its learning curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import data, measure, models, train
from extremal.data import Dataset

IMAGE_SHAPES = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
"""Channels, height and width of the images of each data set."""


def random_images(
    name: str, train_points: int, test_points: int, generator: torch.Generator
) -> tuple[Dataset, Dataset]:
    """So many random training and test images of a data set, or all where it has fewer."""
    learn, test = data.load(name)
    learn = learn.subset(min(train_points, len(learn)), generator=generator)
    return learn, test.subset(min(test_points, len(test)), generator=generator)


def train_with_curves(
    net: models.PReLUNet,
    learn: Dataset,
    test: Dataset,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Train in place; accuracies and stable rank at the epochs `recorded`, and at both ends."""
    some = learn.x[: params["rank_points"]]

    def rank(now: nn.Module) -> float:
        assert isinstance(now, models.PReLUNet)
        return measure.stable_rank(now.hidden(some))

    each = -(-len(learn) // params["batch"])  # steps of an epoch
    path = train.adam(
        net,
        learn,
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        record=train.Record(
            at=[each * epoch for epoch in params["recorded"]],
            watch={"test_accuracy": lambda now: measure.accuracy(now, test), "stable_rank": rank},
        ),
        generator=generator,
    )
    names = {"accuracy": "train_accuracy"}
    curves = {names.get(name, name): value.tolist() for name, value in path.values.items()}
    last = {f"final_{name}": value[-1] for name, value in curves.items()}
    return {"epoch": [time / each for time in path.times.tolist()], **curves, **last}
