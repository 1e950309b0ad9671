"""Robust accuracy against radius from both sides, as numbers that a trial keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, certify
from extremal.data import Dataset
from extremal.evaluate import check_bracket
from extremal.experiments.papers.shared.robust import share

_LEVELS = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]  # of the quantiles that are kept


@dataclass(frozen=True, eq=False)
class Bracket:
    """The smallest radius found for each point (n,), and the certified ones of the first m <= n."""

    attacked: Tensor
    certified: Tensor

    def numbers(self, radii: list[float]) -> dict[str, Any]:
        """Accuracy against radius from above and below, medians, quantiles, and the gap.

        `half_radius` is the median of the attacked radii, and `bracket_gap` the share
        1 - certified / attacked that is left between the two, 0 for a misclassified point.
        """
        upper, lower = self.attacked, self.certified
        few = upper[: len(lower)]
        right = few > 0
        gap = torch.where(right, 1.0 - lower / few, 0.0)
        return {
            "robust_accuracy": [share(upper > radius) for radius in radii],
            "certified_accuracy": [share(right & (lower >= radius)) for radius in radii],
            "half_radius": float(upper.median()),
            "half_radius_certified": float(lower.median()),
            "bracket_gap": float(gap.median()),
            "bracket_gap_99": _quantiles(gap, [0.99])[0],
            "quantile_levels": _LEVELS,
            "attacked_quantiles": _quantiles(upper, _LEVELS),
            "certified_quantiles": _quantiles(lower, _LEVELS),
        }


def bracketed(
    net: nn.Module, test: Dataset, generator: torch.Generator, certified: int | None = None
) -> Bracket:
    """Each point's attacked radius, and the certified one of the first `certified`, or of all."""
    found = attack.minimal(net, test.x, test.y, generator=generator)
    few = slice(certified)
    lower = certify.certificate(net, test.x[few], test.y[few], attacked=found.x_adv[few]).radius
    check_bracket(lower, found.radius[few], "l2")
    return Bracket(found.radius, lower)


def bracket(
    net: nn.Module, test: Dataset, radii: list[float], generator: torch.Generator
) -> dict[str, Any]:
    """The numbers of all points' brackets."""
    return bracketed(net, test, generator).numbers(radii)


def _quantiles(values: Tensor, levels: list[float]) -> list[float]:
    """The values at ranks `levels`, with none made up between two of them, since some are inf."""
    at = torch.tensor(levels, dtype=values.dtype, device=values.device)
    found: list[float] = values.quantile(at, interpolation="nearest").tolist()
    return found


def half_radius(radii: list[float], accuracy: list[float]) -> float:
    """The radius at which an accuracy curve crosses one half, linear between its points.

    Infinite where it never falls so far, 0 where it starts below.
    """
    if accuracy[0] < 0.5:
        return 0.0
    for i in range(1, len(radii)):
        if accuracy[i] < 0.5:
            share = (accuracy[i - 1] - 0.5) / (accuracy[i - 1] - accuracy[i])
            return radii[i - 1] + share * (radii[i] - radii[i - 1])
    return float("inf")
