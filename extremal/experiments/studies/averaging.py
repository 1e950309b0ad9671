"""Averaged or decoupled features: one training with coarse or fine labels, and what it learned.

The study behind `li-2025-averaging/figure-1`, `dynamics` and `ablations`, and of the synthetic part
of `figure-2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check, attack, certify, measure, models, theory, train
from extremal.data import Clusters, Dataset, OrthogonalClusters
from extremal.evaluate import check_bracket
from extremal.experiments.studies.bracket import half_radius
from extremal.experiments.studies.feature_sources import source
from extremal.experiments.studies.robust import share
from extremal.experiments.trial import Outcome

READINGS = ("binary", "argmax", "sums")
_UNIVERSAL = 1.3  # of sqrt(d/k), where the universal attack is looked at


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network, where it started, the data it saw, and where it was in between."""

    net: models.PReLUNet
    start: Tensor  # (width, dim)
    learn: Dataset
    test: Dataset
    path: train.Trajectory

    @property
    def clusters(self) -> Clusters:
        """What made the data."""
        assert isinstance(self.learn.source, Clusters)
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


def averaging(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One training: cosines, coefficients with their verdicts, clean and robust accuracy."""
    found = learned(params, generator)
    parts = measure.decompose(found.net.neurons, found.start, found.learn)
    numbers = {**_accuracies(found), **_cosines(found), **_coefficients(found, parts)}
    if params["radii"]:
        numbers |= _robustness(found, params, generator)
    cosines = measure.cosines(found.net.neurons, found.clusters.centers).float()
    classes = list(range(found.clusters.count))
    return Outcome({**numbers, "features": classes}, {"cosines": cosines})


def ablation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """`averaging`, and the attacked radius over sqrt(d/k)."""
    found = averaging(params, generator)
    clusters = params["positive"] + params["negative"]
    over = found.numbers["half_radius"] / theory.averaging_scale(params["dim"], clusters)
    return Outcome({**found.numbers, "over_scale": over})


def dynamics(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Coefficients on features along training: own ones, those of the class, foreign ones, noise.

    Means over neurons, and extremes of the own class's; in units of 1/sqrt(d), so that a weight of
    norm 1 along a feature has coefficient 1.
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
    noise = parts.noise.abs().sum(1).unflatten(0, (count, width)).mean(1) * unit
    numbers = {
        "step": [round(time / params["lr"]) for time in found.path.times.tolist()],
        "own_class": coefficients[:, own].mean(1).tolist(),
        "own_class_least": coefficients[:, own].amin(1).tolist(),
        "own_class_most": coefficients[:, own].amax(1).tolist(),
        "other_class": coefficients[:, ~own].mean(1).tolist(),
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
    classes = Clusters(means.double(), torch.where(torch.arange(10) < 5, 1, -1), 0.0)
    parts = (
        Dataset(x[rows], classes.labels[images.y[rows]], group=images.y[rows], source=classes)
        for rows in (order[:cut], order[cut:])
    )
    return next(parts), next(parts)


def _accuracies(found: Learned) -> dict[str, Any]:
    """Of two classes, by the argmax where labels are fine; and then of all clusters as well."""
    numbers = {"loss": float(found.path.values["loss"][-1])}
    if found.net.outputs == 1:
        return numbers | {"clean_accuracy": measure.accuracy(found.net, found.test)}
    binary = read(found.net, "argmax", found.clusters.labels)
    return numbers | {
        "clean_accuracy": measure.accuracy(binary, found.test),
        "fine_accuracy": measure.accuracy(found.net, found.test.fine()),
    }


def _cosines(found: Learned) -> dict[str, Any]:
    """Mean cosines of neurons with features: of their class, of the other, and their own one."""
    cosines = measure.cosines(found.net.neurons, found.clusters.centers)
    own = found.signs.unsqueeze(1) == found.clusters.labels.unsqueeze(0)
    numbers = {
        "cosine_own_class": float(cosines[own].mean()),
        "cosine_own_least": float(cosines[own].min()),
        "cosine_own_most": float(cosines[own].max()),
        "cosine_other_class": float(cosines[~own].mean()),
        "cosine_own": float(cosines[own].mean()),  # the same where no cluster is a neuron's own
    }
    if found.net.outputs > 1:
        diagonal = cosines.gather(1, found.owner.unsqueeze(1))
        numbers |= {
            "cosine_own": float(diagonal.mean()),
            "cosine_own_smallest": float(diagonal.min()),
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
        "least_own": verdict.least_own,
        "most_foreign": verdict.most_foreign,
        "ratio": verdict.ratio,
        "averaged_share": measure.averaged_share(parts.features, signs, labels),
        "decouples": float(single.holds),
        "least_diagonal": single.least_own,
        "most_off_diagonal": single.most_other,
        "decoupled_share": measure.decoupled_share(parts.features),
        "rest": float(parts.rest.max()),
        "condition": parts.condition,
        "exact": parts.exact,
    }


def read(net: nn.Module, reading: str, signs: Tensor) -> nn.Module:
    """The network as a binary classifier: as it is, by its argmax's group, or by signed sums."""
    _check.choice("reading", reading, READINGS)
    if reading == "binary":
        return net
    if reading == "sums":
        assert isinstance(net, models.PReLUNet)
        return models.summed(net, signs)
    return models.Grouped(net, (signs > 0).long(), signed=True)


def _robustness(
    found: Learned, params: Mapping[str, Any], generator: torch.Generator
) -> dict[str, Any]:
    """Accuracy against l2 radius by the published attack, the universal one, the strongest.

    The published attack is PGD of 7 steps from a random start: on the margin, or, where a
    fine-label network is read by its argmax, on the summed probabilities.
    """
    clusters, test = found.clusters, found.test
    net = read(found.net, params["reading"], clusters.labels)
    aimed = models.LogOdds(found.net, clusters.labels) if params["reading"] == "argmax" else net
    radii = [float(radius) for radius in params["radii"]]
    few = _spaced(test, params["attacked_points"])
    by_pgd = [_published(net, aimed, few, radius, generator) for radius in radii]
    away = attack.average_direction(clusters).to(test.x.dtype)
    reached = _UNIVERSAL * theory.averaging_scale(test.dim, clusters.count)
    numbers = {
        "radius": radii,
        "published": by_pgd,
        "half_radius_published": half_radius(radii, by_pgd),
        "universal": [_moved(net, test, radius * away) for radius in radii],
        "universal_reached": _moved(net, test, reached * away),
    }
    best = attack.minimal(net, few.x, few.y, generator=generator)
    best = attack.worst([best, _along_centers(net, few, best)])
    lower = certify.radius(
        net,
        few.x[: params["certified_points"]],
        few.y[: params["certified_points"]],
        attacked=best.x_adv[: params["certified_points"]],
    )
    upper = best.radius[: len(lower)]
    check_bracket(lower, upper, f"l2, read by {params['reading']!r}")
    return numbers | {
        "attacked": [share(best.radius > radius) for radius in radii],
        "half_radius": float(best.radius.median()),
        "certified": [share((upper > 0) & (lower >= radius)) for radius in radii],
        "half_radius_certified": float(lower.median()) if len(lower) > 0 else 0.0,
    }


def _spaced(test: Dataset, count: int) -> Dataset:
    """That many points, evenly spaced, then mixed so that the first ones are of all clusters."""
    few = test.spaced(count)
    return few.take(torch.randperm(len(few), generator=torch.Generator().manual_seed(0)))


def _published(
    net: nn.Module, aimed: nn.Module, data: Dataset, radius: float, generator: torch.Generator
) -> float:
    """Accuracy under PGD on `aimed`, 7 steps of a quarter of the radius from a random start."""
    if radius == 0:
        return measure.accuracy(net, data)
    ball = attack.Ball("l2", radius)
    found = attack.pgd(
        aimed,
        data.x,
        data.y,
        ball=ball,
        steps=7,
        step=radius / 4,
        start="random",
        generator=generator,
    )
    if aimed is net:
        return share(~found.success)
    again = attack.verified(net, data.x, data.y, found.x_adv, ball, "published")
    return share(~again.success)


def _along_centers(
    net: nn.Module, data: Dataset, found: attack.AttackResult
) -> attack.AttackResult:
    """The closed-form directions, up to the radii already found."""
    assert data.group is not None
    ball = attack.Ball("l2", found.radius.clamp(max=float(10 * data.dim) ** 0.5))
    return attack.structured(net, data.x, data.y, data.source, data.group, ball)


def _moved(net: nn.Module, data: Dataset, away: Tensor) -> float:
    """Accuracy once every point is moved by -y `away`, the same way for all of its class."""
    return measure.accuracy(net, replace(data, x=data.x - data.y.unsqueeze(1) * away))
