"""The theory's own classifiers under attack, with the theorems' bounds beside (Theorems 1, 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from extremal import attack, measure, models, theory
from extremal.data import OrthonormalMixture
from extremal.experiments.papers.shared.robust_numbers import half_radius
from extremal.experiments.trial import Outcome


def reference(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Accuracy of F or F^(p) against radius under the worst attack, and what the theorems allow."""
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    test = mixture.sample(params["test_points"], generator=generator, dtype=torch.float64)
    average = params["classifier"] == "average"
    net = (
        models.average_classifier(mixture)
        if average
        else models.subclass_classifier(mixture, params["p"])
    )
    radii = list(params["radii"])
    curve = attack.accuracy_curve(net, test, radii, generator=generator)
    accuracy = curve.accuracy.tolist()
    limits = [_limits(mixture, average, params["p"], radius) for radius in radii]
    # Sampling: a share of n points may miss its probability by this much, once in 1e6 cases.
    slack = math.sqrt(math.log(2e6) / (2 * len(test)))
    broken = sum(
        not low - slack <= share <= high + slack
        for share, (low, high) in zip(accuracy, limits, strict=True)
    )
    numbers = {
        "radius": radii,
        "accuracy": accuracy,
        "lower_bound": [low for low, _ in limits],
        "upper_bound": [high for _, high in limits],
        "bounds_broken": broken,
        "half_radius": half_radius(radii, accuracy),
        "clean_accuracy": measure.accuracy(net, test),
    }
    return Outcome(numbers)


def _limits(
    mixture: OrthonormalMixture, average: bool, p: float, radius: float
) -> tuple[float, float]:
    """What Theorems 1 and 3 allow for the accuracy at a radius, within [0, 1]."""
    known = (mixture.dim, mixture.positive, mixture.negative, mixture.spread)
    if average:
        excess = radius * math.sqrt(mixture.count) - 1.0  # rho, negative below the critical radius
        lower = theory.average_robust_bound(*known, -excess) if excess <= 0 else None
        upper = theory.average_attack_bound(*known, excess) if excess >= 0 else None
    else:
        excess = 2.0 * radius - math.sqrt(2.0)  # delta
        lower = theory.subclass_robust_bound(*known, -excess, p) if excess <= 0 else None
        upper = theory.subclass_attack_bound(*known, excess) if excess > 0 else None
    low = 0.0 if lower is None else max(0.0, lower.value)
    high = 1.0 if upper is None else min(1.0, upper.value)
    return low, high
