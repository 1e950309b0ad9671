"""Train on clusters that differ from the theory's: correlated, of low rank, unequal.

The study behind `open-questions/correlation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from extremal import _check, data, measure, models, train
from extremal.experiments.papers.shared.robust_numbers import bracketed
from extremal.experiments.trial import Outcome

KINDS = ("cosine", "rank", "imbalance", "spread")


def clusters(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """One gradient flow on such clusters, and each test point's radius from both sides.

    With `centred` points are taken relative to the training points' mean, as images are in Min &
    Vidal 2024. The flow's tolerance is the usual one, unless a case has its own and p > 2. Test
    points come from all clusters alike. `half_radius_share` is the median over points of the
    attacked radius over half the distance of the point's centre to the nearest one of the other
    class, which is 1 for the nearest centre's class without noise; "worst" numbers are of the
    cluster that fares worst.
    """
    source = made(params, generator)
    init = models.Gaussian(params["init_std"])
    net = models.PReLUNet(source.dim, params["width"], params["p"], init=init, generator=generator)
    points = source.sample(params["train_points"], generator=generator)
    mean = points.x.mean(0) if params["centred"] else torch.zeros(source.dim)
    points = replace(points, x=points.x - mean)
    flow = train.gradient_flow(
        net,
        points,
        loss=params["loss"],
        until=params["flow_time"],
        tolerance=params.get("tolerance") if params["p"] > 2 else None,
    )
    evenly = data.GaussianClusters(source.centers, source.labels, source.noise)
    test = evenly.sample(params["test_points"], generator=generator)
    test = replace(test, x=test.x - mean)
    found = bracketed(net, test, generator, params["certified_points"])
    radii = list(params["radii"])
    numbers = found.numbers(radii)
    right = measure.correct(net, test).double()
    assert test.group is not None
    shares = found.attacked / source.separations[test.group]
    return Outcome(
        {
            **numbers,
            "radius": radii,
            "loss": float(flow.values["loss"][-1]),
            "clean_accuracy": float(right.mean()),
            "worst_accuracy": _worst(right, test, torch.mean),
            "worst_radius": _worst(found.attacked, test, torch.median),
            "separation": source.separation,
            "half_radius_share": float(shares.median()),
            "worst_radius_share": _worst(shares, test, torch.median),
            "unfollowed": len(measure.following(net, source.centers - mean).unfollowed),
        }
    )


def made(params: Mapping[str, Any], generator: torch.Generator) -> data.GaussianClusters:
    """Clusters of a `kind` that are the farther from the theory's the larger their `level`.

    "cosine": the cosine of any two centres. "rank": random centres in the span of as many axes.
    "imbalance": how many times more points the largest cluster of a class has than the smallest.
    "spread": how many times wider the widest cluster of a class is than the narrowest. In the last
    two the others lie between at equal ratios, and centres are orthonormal.
    """
    kind, level = params["kind"], params["level"]
    _check.choice("kind", kind, KINDS)
    if kind in ("imbalance", "spread"):
        _check.number("level", level, minimum=1.0)
    dim, sizes = params["dim"], (params["positive"], params["negative"])
    labels = torch.tensor([1] * sizes[0] + [-1] * sizes[1])
    noise = params["spread"] / dim**0.5
    if kind == "cosine":
        return data.GaussianClusters(
            data.correlated_centers(dim, len(labels), level), labels, noise
        )
    if kind == "rank":
        centers = data.random_centers(dim, len(labels), level, generator=generator)
        return data.GaussianClusters(centers, labels, noise)
    centers = torch.eye(len(labels), dim, dtype=torch.float64)
    ratios = torch.cat([_ladder(size, level) for size in sizes])
    if kind == "imbalance":
        return data.GaussianClusters(centers, labels, noise, weights=ratios)
    return data.GaussianClusters(centers, labels, noise * ratios)


def _ladder(size: int, ratio: float) -> Tensor:
    """Numbers (size,) with geometric mean 1, the last `ratio` times the first."""
    half = 0.5 * math.log(ratio)
    return torch.linspace(-half, half, size, dtype=torch.float64).exp()


def _worst(values: Tensor, test: data.Dataset, of: Callable[[Tensor], Tensor]) -> float:
    """The least mean or median over clusters."""
    assert test.group is not None
    return min(float(of(values[test.group == k])) for k in test.group.unique().tolist())
