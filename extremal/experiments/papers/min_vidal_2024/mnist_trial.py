"""Train a pReLU network on images, and see how robust it is (Figures 3 and 6, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from extremal import _check, data, measure, models, train
from extremal.data import Dataset
from extremal.experiments.papers.shared.image_training import train_with_curves
from extremal.experiments.papers.shared.robust_numbers import (
    accuracy_by_attack_and_proof,
    mean_over_radii,
)
from extremal.experiments.trial import Outcome

_CLASS_COUNT = 10  # of every data set here
_LABEL_KINDS = {"class": torch.arange(_CLASS_COUNT), "parity": torch.arange(_CLASS_COUNT) % 2}


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: learning curves, the hidden layer's stable rank, robust accuracy three ways.

    Certificates, and the official test set where the published split is another, are of the
    networks whose seed is below `certified_seeds`. Numbers "official ..." are of that test set.
    """
    learn, test, official = _split(params)
    outputs = 1 + int(learn.y.max())
    net = train.mnist_network(
        params["p"], learn, width=params["width"], outputs=outputs, generator=generator
    )
    numbers = train_with_curves(net, learn, test, params, generator)
    bracketed = generator.initial_seed() < params["certified_seeds"]
    few = params["certified_points"] if bracketed else 0
    seen = test.take(slice(params["attacked_points"]))
    robust = _robustness(net, seen, few, params, generator)
    numbers |= robust
    numbers["clean"] = measure.accuracy(net, test)
    if official is not None:
        numbers["official clean"] = measure.accuracy(net, official)
        if bracketed and params["official_points"] > 0:
            order = torch.randperm(len(official), generator=generator)
            other = official.take(order[: params["official_points"]])
            numbers |= _official(_robustness(net, other, few, params, generator))
    else:
        numbers |= {"official clean": numbers["clean"], **_official(robust)}
    shown, arrays = _correlations(learn, params)
    return Outcome({**numbers, **shown}, arrays)


def _split(params: Mapping[str, Any]) -> tuple[Dataset, Dataset, Dataset | None]:
    """Training images, test images, and the official test set where those are not of it.

    With the "published" split the test images are the last sixth of the training set, and pixels
    are k/256, those of the official test set too.
    """
    _check.choice("labels", params["labels"], _LABEL_KINDS)
    _check.choice("split", params["split"], ("published", "official"))
    groups = _LABEL_KINDS[params["labels"]]
    learn, test = data.load(params["dataset"])
    if params["split"] == "official":
        return learn.relabel(groups), test.relabel(groups), None
    scaled = replace(test, x=(test.x * 255.0).round_().div_(256.0))
    first, last = data.published_split(learn)
    return first.relabel(groups), last.relabel(groups), scaled.relabel(groups)


def _robustness(
    net: models.PReLUNet,
    test: Dataset,
    certified: int,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Three ways at each of `radii` for each norm: curves, and each of their points by name.

    "apgd linf" is a curve at "radius linf", "apgd linf 0.05" its value there, "apgd linf area" its
    mean over the radii; "attacked" and "certified" likewise.
    """
    numbers: dict[str, Any] = {}
    for norm, radii in params["radii"].items():
        found = accuracy_by_attack_and_proof(
            net,
            test,
            radii,
            norm=norm,
            steps=params["apgd_steps"],
            certified=certified,
            generator=generator,
        )
        numbers[f"radius {norm}"] = found.radii
        for way, curve in found.curves().items():
            numbers[f"{way} {norm}"] = curve
            numbers[f"{way} {norm} area"] = mean_over_radii(found.radii, curve)
            points = zip(found.radii, curve, strict=True)
            numbers |= {f"{way} {norm} {radius:g}": value for radius, value in points if radius > 0}
    return numbers


def _official(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of the official test set by their names."""
    return {f"official {name}": value for name, value in numbers.items()}


def _correlations(
    learn: Dataset, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """cos(x_i, x_j) of centred images, a few of each class in order, and what stands out of it.

    `contrast` is the mean over pairs of two images of one class, minus that over the other pairs.
    """
    classes = learn.group
    assert classes is not None
    few = params["shown_points"]
    rows = [torch.nonzero(classes == k).squeeze(1)[:few] for k in classes.unique().tolist()]
    chosen, label = learn.x[torch.cat(rows)], classes[torch.cat(rows)]
    centred = chosen.double() - learn.x.double().mean(0)
    cosines = measure.cosines(centred, centred)
    same = label.unsqueeze(0) == label.unsqueeze(1)
    apart = ~torch.eye(len(label), dtype=torch.bool)
    contrast = cosines[same & apart].mean() - cosines[~same].mean()
    return {"contrast": float(contrast)}, {"cosines": cosines.float()}
