"""Theorems 1 and 3: accuracy of F and F^(p) against radius, between the proven bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from extremal import attack, measure, models, theory
from extremal.data import OrthonormalMixture
from extremal.experiments import Experiment, Line, Setting, VerticalLine
from extremal.experiments.papers.shared.claim_rows import CRITICAL_RADII, average_radius, claims
from extremal.experiments.papers.shared.mixture_training import mixture_of
from extremal.experiments.papers.shared.robust_numbers import radius_at_half_accuracy
from extremal.experiments.trial import Outcome

_AVERAGE_LINE, _SUBCLASS_LINE = CRITICAL_RADII
_OPTIMAL_RADIUS = theory.OPTIMAL_RADIUS


def _panel(name: str, symbol: str, spread: float, mark: VerticalLine) -> Line:
    return Line(
        f"{symbol}, α = {spread:g}",
        "radius",
        {
            "accuracy": "worst attack",
            "lower_bound": "proven lower bound",
            "upper_bound": "proven upper bound",
        },
        "l2 radius",
        "accuracy",
        where={"classifier": name, "spread": spread},
        styles={"lower_bound": "dashed", "upper_bound": "dotted"},
        vertical_lines=(mark,),
    )


theorem_1 = Experiment(
    name="min-vidal-2024/theorem-1",
    title="Theorems 1 and 3: F breaks at 1/sqrt(K), F^(p) at sqrt(2)/2",
    source="Min & Vidal 2024, Theorem 1 and Theorem 3 (Appendix C.4)",
    study="extremal.experiments.studies.reference:reference",
    settings={
        "dim": Setting(1000, "O", "D of Section 5.1; the theorems hold for any"),
        "positive": Setting(6, "O", "K1 of Section 5.1"),
        "negative": Setting(4, "O", "K - K1 of Section 5.1"),
        "spread": Setting([0.1, 0.3, 1.0], "O", "alpha; at 1.0 most bounds say nothing"),
        "classifier": Setting(["average", "subclass"], "S", "F of eq. 3 and F^(p) of eq. 2"),
        "p": Setting(3.0, "O", "the theorem takes any p >= 2"),
        "test_points": Setting(5000, "O"),
        "radii": Setting([round(0.02 * i, 2) for i in range(51)], "O"),
        "seeds": Setting(3, "O"),
    },
    quick={"dim": 300, "test_points": 500, "radii": [0.04 * i for i in range(26)], "seeds": 1},
    smoke={
        "dim": 50,
        "spread": [0.1, 0.3, 1.0],
        "test_points": 40,
        "radii": [0.0, 0.2, 0.4, 0.6, 0.8],
        "seeds": 1,
    },
    axes=("classifier", "spread"),
    columns=3,
    panels=(
        *(_panel("average", "F", spread, _AVERAGE_LINE) for spread in (0.1, 0.3, 1.0)),
        *(_panel("subclass", "F^(3)", spread, _SUBCLASS_LINE) for spread in (0.1, 0.3, 1.0)),
    ),
    claims=(
        *claims(
            "1/sqrt(K), Remark 2",
            {"classifier": "average", "spread": 0.1},
            ("F: radius where accuracy is 1/2, α = 0.1", "half_radius", average_radius, 0.03),
            against="theory",
        ),
        *claims(
            "sqrt(2)/2, Remark 2",
            {"classifier": "subclass", "spread": 0.1},
            ("F^(3): radius where accuracy is 1/2, α = 0.1", "half_radius", _OPTIMAL_RADIUS, 0.03),
            against="theory",
        ),
    ),
    notes=(
        "The bounds use C = 1/2, exact for Gaussians. A share of n points may miss its probability "
        "by sampling; a bound counts as broken beyond that margin (once in a million by chance). "
        "None can be, since they are proven: tests hold that, and rows have the radii."
    ),
)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Accuracy of F or F^(p) against radius under the worst attack, and what the theorems allow."""
    mixture = mixture_of(params)
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
        "half_radius": radius_at_half_accuracy(radii, accuracy),
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
