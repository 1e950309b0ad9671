"""Does pReLU help deeper networks? Dense and convolutional ones beside their ReLU twins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import _check, measure, models, train
from extremal.data import Dataset
from extremal.evaluate import evaluate
from extremal.experiments.papers.shared.image_training import IMAGE_SHAPES, random_images
from extremal.experiments.papers.shared.mixture_training import mixture_of
from extremal.experiments.papers.shared.robust_numbers import (
    mean_over_radii,
    share_left_by_longer_attacks,
)
from extremal.experiments.trial import Outcome

PROBLEM_NAMES = ("mixture", "digits", "mnist", "fashion-mnist", "cifar10")
NETWORK_KINDS = ("shallow", "dense", "conv")


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training by Adam, and the smallest radius that all attacks find for each test point.

    `robust_accuracy` is at `radius`, on the first `attacked_points`, in the problem's own units
    (pixels in [0, 1] for images); `area` is its mean over the radii, `half_radius` the median. Of
    networks whose structure attacks do not know, `longer_share` says what longer ones leave.
    """
    learn, test = _data(params, generator)
    net = network(params, learn, generator)
    path = train.adam(
        net,
        learn,
        loss="logistic" if learn.signed else "cross-entropy",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        generator=generator,
    )
    radii = [float(radius) for radius in params["radii"]]
    seen = test.take(slice(params["attacked_points"]))
    found = evaluate(
        net, seen, radii=radii, effort=params["effort"], certify=False, generator=generator
    )
    accuracy = found.curve(radii).attacked.tolist()
    return Outcome(
        {
            "radius": radii,
            "robust_accuracy": accuracy,
            "area": mean_over_radii(radii, accuracy),
            "half_radius": float(found.upper.median()),
            "clean_accuracy": measure.accuracy(net, test),
            "train_accuracy": float(path.values["accuracy"][-1]),
            "loss": float(path.values["loss"][-1]),
            "warnings": [warning.name for warning in found.warnings],
            **share_left_by_longer_attacks(
                net, seen, found, radii, params["longer_points"], generator
            ),
        }
    )


def network(params: Mapping[str, Any], learn: Dataset, generator: torch.Generator) -> nn.Module:
    """A network of `layers` hidden layers of one width with the power p; 1 is a ReLU network.

    "dense": `DeepPReLU`, its layers divided as `normalize` says, with residual connections where
    `residual`; for p = 1 and without either an MLP without hidden biases.
    "shallow": a `PReLUNet` of one hidden layer, which the papers are about. Both start as `init`
    says: "default", or a standard deviation (`models.mlp`). "conv": `ConvPReLU`, whose channels
    double from layer to layer. Readouts have a bias, but for "shallow".
    """
    _check.choice("network", params["network"], NETWORK_KINDS)
    p, layers, width = params["p"], params["layers"], params["width"]
    outputs = 1 if learn.signed else 1 + int(learn.y.max())
    if params["network"] == "conv":
        channels = [width * 2**place for place in range(layers)]
        shape = IMAGE_SHAPES.get(params["problem"], (3, 32, 32))
        return models.ConvPReLU(shape, channels, p, outputs, generator=generator)
    if params["network"] == "shallow":
        start = models.Gaussian(params["init"])
        return models.PReLUNet(learn.dim, width, p, outputs, init=start, generator=generator)
    return models.DeepPReLU(
        learn.dim,
        [width] * layers,
        p,
        outputs,
        residual=params["residual"],
        normalize=params["normalize"],
        bias=True,
        init=params["init"],
        generator=generator,
    )


def _data(params: Mapping[str, Any], generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """Points to learn from and to test on; images without their mean, and the box moved with it."""
    name, count = params["problem"], params["train_points"]
    _check.choice("problem", name, PROBLEM_NAMES)
    if name == "mixture":
        mixture = mixture_of(params)
        learn = mixture.sample(count, generator=generator)
        return learn, mixture.sample(params["test_points"], generator=generator)
    learn, test = random_images(name, count, params["test_points"], generator)
    mean = learn.x.mean(0)
    return _moved(learn, mean), _moved(test, mean)


def _moved(images: Dataset, mean: torch.Tensor) -> Dataset:
    return Dataset(images.x - mean, images.y, images.group, (-mean, 1.0 - mean))
