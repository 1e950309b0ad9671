"""A network of coarse or fine labels read as a binary classifier, and how robust it then is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check, attack, measure, models, theory, train
from extremal.data import Dataset, GaussianClusters
from extremal.evaluate import bracket
from extremal.experiments.papers.shared.robust_numbers import radius_at_half_accuracy, share
from extremal.train import input_gradient

# The published attack has so many steps.
_PUBLISHED_STEPS = 7
READING_NAMES = ("binary", "argmax", "sums")
# The universal attack is looked at at so many times sqrt(d/k).
_UNIVERSAL_SCALE = 1.3


def as_binary_classifier(net: nn.Module, reading: str, signs: Tensor) -> nn.Module:
    """The network as a binary classifier: as it is, by its argmax's group, or by signed sums."""
    _check.choice("reading", reading, READING_NAMES)
    if reading == "binary":
        return net
    if reading == "sums":
        assert isinstance(net, models.PReLUNet)
        return models.signed_sum(net, signs)
    return models.Grouped(net, (signs > 0).long(), signed=True)


def universal(net: nn.Module, data: Dataset, radius: float | None = None) -> float:
    """Accuracy once each point is moved by -y along sum mu_+ - sum mu_-, all by the same vector.

    The length is `radius`, or 1.3 sqrt(d/k).
    """
    assert isinstance(data.source, GaussianClusters)
    length = radius
    if length is None:
        length = _UNIVERSAL_SCALE * theory.averaging_scale(data.dim, data.source.count)
    away = length * attack.average_direction(data.source).to(data.x.dtype)
    return measure.accuracy(net, replace(data, x=data.x - data.y.unsqueeze(1) * away))


def robustness(
    trained: models.PReLUNet,
    test: Dataset,
    params: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Accuracy against l2 radius by the published attack, the universal one, the strongest.

    The published attack is PGD of 7 steps from a random start: on the margin, or, where a
    fine-label network is read by its argmax, on the summed probabilities. "overstepped" is the same
    attack with its last step not brought back into the ball. "over_averaged" is the strongest
    attack's median as a share of what `averaged_radius` has on the same points.
    """
    clusters = test.source
    assert isinstance(clusters, GaussianClusters)
    net = as_binary_classifier(trained, params["reading"], clusters.labels)
    aimed = models.LogOdds(trained, clusters.labels) if params["reading"] == "argmax" else net
    radii = [float(radius) for radius in params["radii"]]
    few = _spaced(test, params["attacked_points"])
    by_pgd = [_published(net, aimed, few, radius, generator) for radius in radii]
    beyond = [_overstepped(net, aimed, few, radius, generator) for radius in radii]
    numbers = {
        "radius": radii,
        "published": by_pgd,
        "half_radius_published": radius_at_half_accuracy(radii, by_pgd),
        "overstepped": beyond,
        "half_radius_overstepped": radius_at_half_accuracy(radii, beyond),
        "universal": [universal(net, test, radius) for radius in radii],
    }
    count = params["certified_points"]
    best = bracket(net, few, mixture=clusters, certified=count, generator=generator)
    half, reach = float(best.upper.median()), averaged_radius(few)
    proven = certified_numbers(best.lower[:count], best.upper[:count], radii) if count > 0 else {}
    return {
        **numbers,
        "attacked": [share(best.upper > radius) for radius in radii],
        "half_radius": half,
        "over_averaged": half / reach if reach > 0 else float("inf"),
        **proven,
    }


def averaged_radius(data: Dataset) -> float:
    """The median distance of points to the boundary <sum mu_+ - sum mu_-, x> = 0 of averages.

    Of `models.averaged_classifier` for the points' own clusters, whatever their norms and angles:
    for orthogonal features of one length it is sqrt(d/k), up to noise.
    """
    assert isinstance(data.source, GaussianClusters)
    along = data.x.double() @ attack.average_direction(data.source)
    return float((data.y * along).median())


def certified_numbers(lower: Tensor, upper: Tensor, radii: list[float]) -> dict[str, Any]:
    """Accuracy that is certified at each radius, and medians of both sides over the same points.

    "certified_share" is the certified median as a share of the attacked one.
    """
    proven, found = float(lower.median()), float(upper.median())
    return {
        "certified": [share((upper > 0) & (lower >= radius)) for radius in radii],
        "half_radius_certified": proven,
        "half_radius_same": found,
        "certified_share": proven / found if found > 0 else 1.0,
    }


def _spaced(test: Dataset, count: int) -> Dataset:
    """That many points, evenly spaced, then mixed so that the first ones are of all clusters."""
    few = test.evenly_spaced(count)
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
        steps=_PUBLISHED_STEPS,
        step=radius / 4,
        start="random",
        generator=generator,
    )
    if aimed is net:
        return share(~found.success)
    again = attack.verified(net, data.x, data.y, found.x_adv, ball, "published")
    return share(~again.success)


def _overstepped(
    net: nn.Module, aimed: nn.Module, data: Dataset, radius: float, generator: torch.Generator
) -> float:
    """Accuracy under the same steps, the last of which may leave the ball, by a fifth or so.

    They descend the margin as `attack.pgd` does: a loss's slope is zero where the margin is large.
    For a linear f and a start across its gradient, 6 steps lead 0.887 radii along it, and the last
    one to 1.137.
    """
    if radius == 0:
        return measure.accuracy(net, data)
    length = radius / 4
    inside = train.InnerAttack("l2", radius, _PUBLISHED_STEPS - 1, length, start="random")

    def slope(out: Tensor) -> Tensor:
        return -data.y.to(out)

    x = inside.perturbed(aimed, data.x, slope, generator=generator)
    upward = attack.Ball("l2", radius).steepest(input_gradient(aimed, x, slope))
    return measure.accuracy(net, replace(data, x=x + length * upward))
