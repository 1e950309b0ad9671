"""Averaged or decoupled features: one training with coarse or fine labels, and what it learned.

For `figure-1`, `dynamics` and `ablations`, and the synthetic part of `figure-2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check, measure, models, theory, train
from extremal.data import Dataset, GaussianClusters, OrthogonalClusters
from extremal.experiments.papers.li_2025_averaging.binary_reading import (
    as_binary_classifier,
    robustness,
    universal,
)
from extremal.experiments.papers.shared.frozen_features import source
from extremal.experiments.trial import Outcome


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network, where it started, the data it saw, and where it was in between."""

    net: models.PReLUNet
    start: Tensor  # (width, dim)
    learn: Dataset
    test: Dataset
    path: train.Trajectory

    @property
    def clusters(self) -> GaussianClusters:
        """What made the data."""
        assert isinstance(self.learn.source, GaussianClusters)
        return self.learn.source

    @property
    def owner(self) -> Tensor:
        """The output that each neuron votes for, or its side as 0 and 1, (width,)."""
        votes = self.net.votes.detach()
        return votes.argmax(0) if self.net.outputs > 1 else (votes[0] < 0).long()

    @property
    def signs(self) -> Tensor:
        """The class -1 / +1 that each neuron votes for, (width,)."""
        if self.net.outputs == 1:
            return 1 - 2 * self.owner
        return self.clusters.labels[self.owner]


def figure_1_trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: cosines, coefficients with their verdicts, clean and robust accuracy."""
    found = learned(params, generator)
    parts = measure.decompose(found.net.neurons, found.start, found.learn)
    numbers = {**_accuracies(found), **_cosines(found), **_coefficients(found, parts)}
    if params["radii"]:
        numbers |= robustness(found.net, found.test, params, generator)
    cosines = measure.cosines(found.net.neurons, found.clusters.centers).float()
    classes = list(range(found.clusters.count))
    return Outcome({**numbers, "features": classes}, {"cosines": cosines})


def ablation_trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """`averaging`, and the attacked radius over sqrt(d/k).

    That is the scale of orthogonal features of one length; "over_averaged" has that of any.
    """
    found = figure_1_trial(params, generator)
    clusters = params["positive"] + params["negative"]
    over = found.numbers["half_radius"] / theory.averaging_scale(params["dim"], clusters)
    return Outcome({**found.numbers, "over_scale": over})


def dynamics_trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Coefficients on features along training: own ones, those of the class, foreign ones, noise.

    Means over neurons, and extremes of the own class's and of the other's; in units of 1/sqrt(d),
    so that a weight of norm 1 along a feature has coefficient 1. Noise is as long as what it adds
    to a weight, the norm of the sum of sigma_i xi_i, and so in the same units.
    """
    found = learned(params, generator)
    weights = found.path.snapshots["neurons"]  # (T, width, dim)
    count, width, _ = weights.shape
    start = found.start.repeat(count, 1)
    parts = measure.decompose(weights.flatten(0, 1), start, found.learn)
    unit = found.clusters.centers.norm(dim=1).mean()
    coefficients = (unit * parts.features).unflatten(0, (count, width))  # (T, width, K)
    own = found.signs.unsqueeze(1) == found.clusters.labels.unsqueeze(0)
    single = nn.functional.one_hot(found.owner, own.shape[1]).bool()
    added = parts.noise @ _noise(found.learn)
    noise = added.norm(dim=1).unflatten(0, (count, width)).mean(1)
    numbers = {
        "step": [round(time / params["lr"]) for time in found.path.times.tolist()],
        "own_class": coefficients[:, own].mean(1).tolist(),
        "own_class_least": coefficients[:, own].amin(1).tolist(),
        "own_class_most": coefficients[:, own].amax(1).tolist(),
        "other_class": coefficients[:, ~own].mean(1).tolist(),
        "other_class_most": coefficients[:, ~own].amax(1).tolist(),
        "noise": noise.tolist(),
        "losses": found.path.values["loss"].tolist(),
        "rest_of_all": float(parts.rest.max()),
    }
    if found.net.outputs > 1:
        numbers |= {
            "own": coefficients[:, single].mean(1).tolist(),
            "same_class": coefficients[:, own & ~single].mean(1).tolist(),
        }
    last = replace(parts, features=parts.features[-width:], rest=parts.rest[-width:])
    return Outcome({**numbers, **_cosines(found), **_coefficients(found, last)})


def _noise(data: Dataset) -> Tensor:
    """xi_i = x_i - mu of its cluster, (n, dim)."""
    assert isinstance(data.source, GaussianClusters)
    assert data.group is not None
    return data.x.double() - data.source.centers[data.group]


def learned(params: Mapping[str, Any], generator: torch.Generator) -> Learned:
    """The trial's network after full-batch descent, or SGD where `batch` is not 0.

    "binary" labels have one output, "fine" ones an output for each cluster; votes are fixed.
    """
    _check.choice("labels", params["labels"], ("binary", "fine"))
    learn, test = _data(params, generator)
    fine = params["labels"] == "fine"
    count = learn.source.count
    net = models.PReLUNet(
        learn.dim,
        params["width"],
        params["p"],
        count if fine else 1,
        hidden_bias=params["hidden_bias"],
        init=models.Blocks(params["init_std"], params["bias_std"], params["vote"]),
        generator=generator,
    ).freeze("votes")
    start = net.neurons.detach().clone()
    seen = learn.fine() if fine else learn
    loss: Literal["cross-entropy", "logistic"] = "cross-entropy" if fine else "logistic"
    lr, steps = params["lr"], params["steps"]
    shown = params.get("shown_steps", [])
    clock = lr / (1.0 - params["momentum"])
    record = train.Record(at=[clock * step for step in shown], snapshots=bool(shown))
    momentum = params["momentum"]
    if params["batch"] == 0:
        path = train.gd(net, seen, loss=loss, lr=lr, momentum=momentum, steps=steps, record=record)
    else:
        path = train.sgd(
            net,
            seen,
            loss=loss,
            lr=lr,
            momentum=momentum,
            batch=params["batch"],
            steps=steps,
            record=record,
            generator=generator,
        )
    return Learned(net, start, learn, test, path)


def _data(params: Mapping[str, Any], generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """Points to learn from and to test on, with the clusters as their source.

    "synthetic" ones, or features of images ("cifar10", "digits"), whose clusters are the means of
    classes, the first half of which is positive.
    """
    if params["problem"] == "synthetic":
        norms = params["norms"]
        clusters = OrthogonalClusters(
            params["dim"],
            params["positive"],
            params["negative"],
            params["sigma"],
            norms=norms or None,
            cosine=params["cosine"],
            generator=generator,
        )
        learn = clusters.sample_each(params["train_each"], generator=generator)
        return learn, clusters.sample_each(params["test_each"], generator=generator)
    images = source({"source": params["problem"], **params["extractor"]})
    order = torch.randperm(len(images), generator=generator)
    cut = round(params["train_share"] * len(images))
    x = images.x - params["centred"] * images.x[order[:cut]].mean(0)
    means = torch.stack([x[order[:cut]][images.y[order[:cut]] == k].mean(0) for k in range(10)])
    classes = GaussianClusters(means.double(), torch.where(torch.arange(10) < 5, 1, -1), 0.0)
    parts = (
        Dataset(x[rows], classes.labels[images.y[rows]], group=images.y[rows], source=classes)
        for rows in (order[:cut], order[cut:])
    )
    return next(parts), next(parts)


def _accuracies(found: Learned) -> dict[str, Any]:
    """Of two classes, by the argmax where labels are fine; and then of all clusters as well.

    "universal_reached" is what the universal attack leaves at 1.3 sqrt(d/k).
    """
    fine = found.net.outputs > 1
    binary = as_binary_classifier(found.net, "argmax" if fine else "binary", found.clusters.labels)
    numbers = {
        "loss": float(found.path.values["loss"][-1]),
        "clean_accuracy": measure.accuracy(binary, found.test),
        "universal_reached": universal(binary, found.test),
    }
    if fine:
        numbers["fine_accuracy"] = measure.accuracy(found.net, found.test.fine())
    return numbers


def _cosines(found: Learned) -> dict[str, Any]:
    """Mean cosines of neurons with features: of their class, of the other, and their own one.

    "cosine_margin" is by how much the class's are above the other's, and with fine labels
    "cosine_own_margin" by how much the own one's is above the others of its class.
    """
    cosines = measure.cosines(found.net.neurons, found.clusters.centers)
    own = found.signs.unsqueeze(1) == found.clusters.labels.unsqueeze(0)
    numbers = {
        "cosine_own_class": float(cosines[own].mean()),
        "cosine_own_least": float(cosines[own].min()),
        "cosine_own_most": float(cosines[own].max()),
        "cosine_other_class": float(cosines[~own].mean()),
        "cosine_margin": float(cosines[own].mean() - cosines[~own].mean()),
        "cosine_own": float(cosines[own].mean()),  # the same where no cluster is a neuron's own
    }
    if found.net.outputs > 1:
        single = nn.functional.one_hot(found.owner, own.shape[1]).bool()
        diagonal, others = cosines[single], cosines[own & ~single]
        numbers |= {
            "cosine_own": float(diagonal.mean()),
            "cosine_own_smallest": float(diagonal.min()),
            "cosine_class_others": float(others.mean()),
            "cosine_own_margin": float(diagonal.mean() - others.mean()),
        }
    return numbers


def _coefficients(found: Learned, parts: measure.Decomposition) -> dict[str, Any]:
    """The verdicts on averaging and on decoupling, and one number for each.

    Neurons of binary labels have no cluster of their own: the one of their largest coefficient is
    taken for the second verdict.
    """
    signs, labels = found.signs, found.clusters.labels
    verdict = measure.averaging(parts.features, signs, labels)
    owner = found.owner if found.net.outputs > 1 else parts.features.argmax(1)
    single = measure.decoupling(parts.features, owner)
    return {
        "averages": float(verdict.holds),
        "scale": verdict.scale,
        "least_own": verdict.least_own,
        "most_foreign": verdict.most_foreign,
        "foreign_size": verdict.foreign_size,
        "ratio": verdict.ratio,
        "averaged_share": measure.averaged_share(parts.features, signs, labels),
        "decouples": float(single.holds),
        "least_diagonal": single.least_own,
        "most_off_diagonal": single.most_other,
        "covered": single.covered,
        "decoupled_share": measure.decoupled_share(parts.features),
        "rest": float(parts.rest.max()),
        "condition": parts.condition,
        "exact": parts.exact,
    }
