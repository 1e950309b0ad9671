"""Do finer labels make networks robust? Coarse and fine labels on one problem, read alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, train
from extremal.data import Dataset
from extremal.evaluate import Robustness, check_bracket, evaluate
from extremal.experiments.papers.li_2025_averaging.averaging_trial import figure_1_trial
from extremal.experiments.papers.li_2025_averaging.binary_reading import (
    as_binary_classifier,
    certified_numbers,
)
from extremal.experiments.papers.shared.image_training import IMAGE_SHAPES, random_images
from extremal.experiments.papers.shared.robust_numbers import (
    mean_over_radii,
    share_left_by_longer_attacks,
)
from extremal.experiments.trial import Outcome

POSITIVE_CLASSES = {  # which classes are positive
    "parity": torch.arange(10) % 2 == 0,
    "halves": torch.arange(10) < 5,
}


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One network as a binary classifier, trained with `labels`, and its robust accuracy.

    "synthetic" is the study of clusters with its published attack beside the strongest; other
    problems are images.
    """
    if params["problem"] != "synthetic":
        return _images(params, generator)
    found = figure_1_trial(params, generator)
    radii = found.numbers["radius"]
    numbers = {**found.numbers, "area": mean_over_radii(radii, found.numbers["attacked"])}
    numbers |= _published(params, radii, numbers["overstepped"])
    return Outcome(numbers, found.arrays)


def _published(
    params: Mapping[str, Any], radii: list[float], ours: list[float] | None = None
) -> dict[str, Any]:
    """The published accuracies where a trial has some, NaN at other radii.

    "published_gap" is how far `ours` is from them where it is farthest.
    """
    if "published_points" not in params:
        return {}
    points = [params["published_points"].get(f"{radius:g}", math.nan) for radius in radii]
    numbers: dict[str, Any] = {"published_points": points}
    if ours is not None:
        gaps = [abs(mine - known) for mine, known in zip(ours, points, strict=True)]
        numbers["published_gap"] = max((gap for gap in gaps if not math.isnan(gap)), default=0.0)
    return numbers


def _images(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Adam on images, l2 in pixels of [0, 1] without a box, as published.

    With fine labels the network has ten outputs and is read by the group of its argmax, or by sums.
    Attacks and certificates are those of `evaluate` on the reading; only shallow networks have the
    latter. All attacks are tried at each `attacked_every`-th radius; points break anywhere.
    """
    signs = torch.where(POSITIVE_CLASSES[params["sides"]], 1, -1)
    learn, test = _data(params, generator)
    fine = params["labels"] == "fine"
    net = _network(params, learn.x.mean(0), 10 if fine else 1, generator)
    train.adam(
        net,
        learn if fine else replace(learn, y=signs[learn.y], group=learn.y),
        loss="cross-entropy" if fine else "logistic",
        lr=params["lr"],
        batch=params["batch"],
        epochs=params["epochs"],
        generator=generator,
    )
    binary = replace(test, y=signs[test.y], group=test.y)
    reading = as_binary_classifier(net, params["reading"], signs)
    radii = [float(radius) for radius in params["radii"]]
    few = binary.take(slice(params["attacked_points"]))
    tried = radii[:: params["attacked_every"]]
    found = evaluate(
        reading, few, radii=tried, effort=params["effort"], certify=False, generator=generator
    )
    attacked = found.curve(radii).attacked.tolist()
    return Outcome(
        {
            "radius": radii,
            "attacked": attacked,
            "area": mean_over_radii(radii, attacked),
            "half_radius": float(found.upper.median()),
            "clean_accuracy": measure.accuracy(reading, binary),
            **_published(params, radii),
            **_certified(reading, few, found, params, generator),
            **share_left_by_longer_attacks(
                reading, few, found, radii, params["longer_points"], generator
            ),
        }
    )


def _certified(
    net: nn.Module,
    few: Dataset,
    found: Robustness,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """What is certified of a shallow network on the first points, beside attacks on the same."""
    count = params["certified_points"]
    if count == 0 or not models.is_shallow(net):
        return {}
    proof = evaluate(net, few.take(slice(count)), generator=generator)
    upper = proof.upper.minimum(found.upper[: len(proof.upper)])
    check_bracket(proof.lower, upper, f"l2, read by {params['reading']!r}")
    return certified_numbers(proof.lower, upper, [float(radius) for radius in params["radii"]])


def _data(params: Mapping[str, Any], generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """A random part of the images and of the test images, without their box."""
    points = params["train_points"], params["test_points"]
    learn, test = random_images(params["problem"], *points, generator)
    return replace(learn, box=None), replace(test, box=None)


def _network(
    params: Mapping[str, Any], mean: Tensor, outputs: int, generator: torch.Generator
) -> nn.Module:
    """ "shallow": a `PReLUNet` of power p on centred images; "conv": a small `ConvPReLU`."""
    _check.choice("network", params["network"], ("shallow", "conv"))
    p, width = params["p"], params["width"]
    if params["network"] == "conv":
        shape = IMAGE_SHAPES.get(params["problem"], (3, 32, 32))
        return models.ConvPReLU(shape, [width, 2 * width], p, outputs, generator=generator)
    return models.PReLUNet(
        len(mean),
        width,
        p,
        outputs,
        bias=True,
        preparation=models.Preparation.for_power(p, center=mean.double()),
        init=models.Kaiming(),
        generator=generator,
    )
