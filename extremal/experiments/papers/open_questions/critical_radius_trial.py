"""The critical radius of F^(p): per class, from attack and certificate, beside its closed form.

The study behind `open-questions/critical-radius`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from extremal import models, theory
from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments.papers.shared.strongest import both_sides
from extremal.experiments.trial import Outcome


def critical(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Radii at which F^(p) breaks: at the centres where `spread` is 0, else at samples.

    A class meets as many opposing centres as the other one has, so each has a closed form of its
    own; "worst" is the class whose median is less. Deviations from the closed forms are shares of
    them, the largest of any point.
    """
    mixture = OrthonormalMixture(
        params["dim"], params["positive"], params["negative"], params["spread"]
    )
    data = _data(mixture, params["points"], generator)
    found = both_sides(models.subclass_classifier(mixture, params["p"]), data, generator)
    numbers: dict[str, Any] = {}
    expected = torch.empty(len(data), dtype=torch.float64)
    sides = {"positive": (1, mixture.negative), "negative": (-1, mixture.positive)}
    for side, (sign, opposing) in sides.items():
        own = data.y == sign
        numbers[f"closed_form_{side}"] = expected[own] = theory.subclass_radius(
            opposing, params["p"]
        )
        numbers |= _spread(f"attacked_{side}", found.attacked[own])
        numbers |= _spread(f"certified_{side}", found.certified[own])
    for name in ("attacked", "certified", "closed_form"):
        numbers[f"{name}_worst"] = min(numbers[f"{name}_{side}"] for side in sides)
    gap = 1.0 - found.certified / found.attacked
    gap = torch.where(found.attacked > 0, gap, 0.0)
    return Outcome(
        {
            **numbers,
            "off_attacked": float((found.attacked / expected - 1.0).abs().max()),
            "off_certified": float((found.certified / expected - 1.0).abs().max()),
            "gap": float(gap.median()),
            "gap_99": float(gap.quantile(0.99, interpolation="nearest")),
            "gap_largest": float(gap.max()),
        }
    )


def _data(mixture: OrthonormalMixture, points: int, generator: torch.Generator) -> Dataset:
    """The centres where there is no noise, else as many `points` of each class."""
    if mixture.spread == 0.0:
        return mixture.simplified()
    smaller = min(mixture.positive, mixture.negative)
    many = 20 * points * mixture.count // smaller  # far more than it takes to have enough of both
    drawn = mixture.sample(many, generator=generator, dtype=torch.float64)
    rows = [torch.nonzero(drawn.y == sign).flatten()[:points] for sign in (1, -1)]
    return drawn.take(torch.cat(rows))


def _spread(name: str, radii: Tensor) -> dict[str, float]:
    """The median of a class under `name`, and its extremes."""
    extremes = {f"{name}_least": float(radii.min()), f"{name}_most": float(radii.max())}
    return {name: float(radii.median()), **extremes}
