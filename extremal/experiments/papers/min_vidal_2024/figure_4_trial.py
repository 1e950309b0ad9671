"""Figure 4: train on features of a frozen network, with classes grouped; how robust is it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from extremal import _check, measure, models
from extremal.data import Dataset
from extremal.experiments.papers.shared.frozen_features import source
from extremal.experiments.papers.shared.image_training import train_with_curves
from extremal.experiments.papers.shared.robust_numbers import (
    accuracy_by_attack_and_proof,
    mean_over_radii,
)
from extremal.experiments.trial import Outcome


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training on grouped classes: learning curves, stable rank, robust accuracy.

    The generator draws the split first, so that trials of one seed share it for every p.
    """
    fine = source(params)
    grouped = group_classes(fine, params["groups"])
    parts = split(grouped, params["train_share"], generator=generator)
    learn, test, clipped = boxed(*parts, box=params["box"])
    net = _network(learn, params, generator)
    curves = train_with_curves(net, learn, test, params, generator)
    attacked = test.take(slice(params["attacked_points"]))
    robust = _robustness(net, attacked, params, generator)
    shown, cosines = _clusters(learn, params)
    sizes = {"classes": int(fine.y.max()) + 1, "dim": fine.dim, "points": len(fine)}
    return Outcome({**sizes, "clipped": clipped, **shown, **curves, **robust}, cosines)


def group_classes(data: Dataset, groups: int) -> Dataset:
    """The data labelled by class mod `groups`; the classes become the points' `group`."""
    count = int(data.y.max()) + 1
    rule = f"be at most the number of classes, {count}"
    _check.require(_check.integer("groups", groups, minimum=2) <= count, "groups", rule, groups)
    return data.relabel(torch.arange(count) % groups)


def split(data: Dataset, share: float, *, generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """A random `share` of the points to learn from, and the others."""
    _check.number("share", share, above=0.0, maximum=1.0)
    order = torch.randperm(len(data), generator=generator)
    cut = round(share * len(data))
    rule = f"leave points on both sides of {len(data)}"
    _check.require(0 < cut < len(data), "share", rule, share)
    return data.take(order[:cut]), data.take(order[cut:])


def boxed(learn: Dataset, test: Dataset, *, box: str) -> tuple[Dataset, Dataset, float]:
    """Both in the box [0, 1], and the share of the test's coordinates that were clipped to it.

    One affine map for all coordinates, of the least and largest value of `learn` if `box`
    is "training", of both if it is "all".
    """
    _check.choice("box", box, ("training", "all"))
    low, high = (learn.x if box == "training" else torch.cat([learn.x, test.x])).aminmax()
    _check.require(bool(high > low), "features", "differ from each other", f"all {float(low):g}")
    maps = [(part.x - low) / (high - low) for part in (learn, test)]
    clipped = float(((maps[1] < 0) | (maps[1] > 1)).double().mean())
    inner = [
        replace(part, x=x.clamp(0.0, 1.0), box=(0.0, 1.0))
        for part, x in zip((learn, test), maps, strict=True)
    ]
    return inner[0], inner[1], clipped


def _network(
    learn: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> models.PReLUNet:
    """Kaiming's start, output biases, inputs centred by the mean and normalised.

    `normalize` is "power", each activation divided by ||x - c||^(p-1), or "unit", x - c divided by
    its norm.
    """
    _check.choice("normalize", params["normalize"], ("power", "unit"))
    p, center = params["p"], learn.x.double().mean(0)
    return models.PReLUNet(
        learn.dim,
        params["width"],
        p,
        params["groups"],
        bias=True,
        preparation=models.Preparation.for_power(p, center=center)
        if params["normalize"] == "power"
        else models.Preparation(center=center, normalize=1.0),
        init=models.Kaiming(),
        generator=generator,
    )


def _robustness(
    net: models.PReLUNet, test: Dataset, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy against l-inf radius under APGD-CE, under all attacks, and certified.

    The certificates are of the first `certified_points`. A `..._mean` is a curve's mean over the
    radii, by trapezia.
    """
    found = accuracy_by_attack_and_proof(
        net,
        test,
        params["radii"],
        norm="linf",
        steps=params["apgd_steps"],
        certified=params["certified_points"],
        generator=generator,
    )
    names = {"apgd": "robust_accuracy_apgd", "attacked": "robust_accuracy"}
    ways = found.curves()
    curves = {names.get(way, f"{way}_accuracy"): curve for way, curve in ways.items()}
    means = {f"{name}_mean": mean_over_radii(found.radii, curve) for name, curve in curves.items()}
    held = found.certified[found.certified > 0]
    certified = float(held.median()) if len(held) > 0 else 0.0
    return {"radius": found.radii, **curves, **means, "certified_radius": certified}


def _clusters(
    learn: Dataset, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Cosines of centred features: of a few, by class, and their means within and between."""
    assert learn.group is not None
    centred = learn.x.double() - learn.x.double().mean(0)
    rows = [
        torch.nonzero(learn.group == k).squeeze(1)[: params["shown_points"]]
        for k in learn.group.unique().tolist()[: params["shown_classes"]]
    ]
    few = centred[torch.cat(rows)]
    within, between = class_cosines(centred, learn.group)
    numbers = {"within": within, "between": between, "contrast": within - between}
    return numbers, {"cosines": measure.cosines(few, few).float()}


def class_cosines(x: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean of cos(x_i, x_j) over i != j of one class, and over those of two classes.

    With s_k the sum of class k's unit vectors, s of all: (sum |s_k|^2 - n) / sum n_k (n_k - 1), and
    (|s|^2 - sum |s_k|^2) / (n^2 - sum n_k^2).
    """
    unit = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=1e-300)
    count = torch.bincount(y).double()
    sums = torch.zeros(len(count), x.shape[1], dtype=x.dtype).index_add_(0, y, unit)
    own, every = sums.square().sum(), sums.sum(0).square().sum()
    squares, total = count.square().sum(), count.sum()
    same = (own - unit.square().sum()) / (squares - total)
    return float(same), float((every - own) / (total.square() - squares))
