"""How robust a network is, as numbers that a trial keeps: radii and accuracies from both sides.

On the mixture attacks also try the rays that its centres suggest. On images accuracy is given three
ways: under APGD-CE alone, under the strongest attack, and certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, certify, measure, models
from extremal.data import Dataset
from extremal.evaluate import Robustness, check_bracket, evaluate

# The quantiles of radii that a trial keeps are at these levels.
_QUANTILE_LEVELS = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]


def robust_numbers(
    found: Robustness, radii: list[float], certified: int | None = None
) -> dict[str, Any]:
    """Accuracy against radius from above and below, medians, quantiles, and the gap.

    `certified`: how many of the first points were, None for all. `half_radius` is the median of
    the attacked radii, and `bracket_gap` the share 1 - certified / attacked that is left between
    the two, 0 for a misclassified point.
    """
    upper, lower = found.upper, found.lower[:certified]
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
        "quantile_levels": _QUANTILE_LEVELS,
        "attacked_quantiles": _quantiles(upper, _QUANTILE_LEVELS),
        "certified_quantiles": _quantiles(lower, _QUANTILE_LEVELS),
    }


def _quantiles(values: Tensor, levels: list[float]) -> list[float]:
    """The values at ranks `levels`, with none made up between two of them, since some are inf."""
    at = torch.tensor(levels, dtype=values.dtype, device=values.device)
    found: list[float] = values.quantile(at, interpolation="nearest").tolist()
    return found


def radius_at_half_accuracy(radii: list[float], accuracy: list[float]) -> float:
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


@dataclass(frozen=True, eq=False)
class RobustAccuracies:
    """Each point's radius as each way has it; the certified ones are of the first points alone.

    0 for a misclassified point, infinite where an attack found nothing at the radii it tried.
    """

    norm: str
    radii: list[float]  # ascending, from 0
    apgd: Tensor  # (n,)
    attacked: Tensor  # (n,), never above `apgd`
    certified: Tensor  # (m,), m <= n

    def curves(self) -> dict[str, list[float]]:
        """Accuracy at each radius by each way, and what attacks leave of the certified points."""
        few = self.attacked[: len(self.certified)]
        found = {
            "apgd": [share(self.apgd > radius) for radius in self.radii],
            "attacked": [share(self.attacked > radius) for radius in self.radii],
        }
        if len(self.certified) > 0:
            right = few > 0
            held = [share(right & (self.certified >= radius)) for radius in self.radii]
            found |= {"certified": held, "attacked_few": [share(few > r) for r in self.radii]}
        return found


def accuracy_by_attack_and_proof(
    net: nn.Module,
    test: Dataset,
    radii: Sequence[float],
    *,
    norm: str,
    steps: int,
    certified: int,
    generator: torch.Generator,
) -> RobustAccuracies:
    """Attack `test` within its box at each radius > 0, and certify its first `certified` points.

    APGD-CE takes `steps` steps from one random start, as in Min & Vidal 2024; the strongest attack
    meets what it leaves standing. Certificates are tight in l2, where the box is left out of
    account; in linf and l1 they are linear bounds within the box. A point that breaks within its
    certified radius is a `BracketViolation`.
    """
    wanted = sorted({0.0, *radii})
    tried = wanted[1:]

    def apgd_ce(
        net: nn.Module, data: Dataset, ball: attack.Ball, generator: torch.Generator
    ) -> attack.AttackResult:
        return attack.apgd(
            net,
            data.x,
            data.y,
            ball=ball,
            objective="cross-entropy",
            start="random",
            steps=steps,
            generator=generator,
        )

    alone = attack.accuracy_curve(
        net, test, tried, norm=norm, attack=apgd_ce, generator=generator
    ).radius
    alone = torch.where(measure.correct(net, test), alone, 0.0)
    worst = _strongest(net, test, tried, norm, alone, generator)
    lower = worst[:0]
    if certified > 0:
        few = test.take(slice(certified))
        effort: Any = "tight" if norm == "l2" else "fast"
        lower = certify.certificate(net, few.x, few.y, norm=norm, box=few.box, effort=effort).radius
    check_bracket(lower, worst[: len(lower)], f"{norm}, of a trained network")
    return RobustAccuracies(norm, wanted, alone, worst, lower)


def _strongest(
    net: nn.Module,
    test: Dataset,
    radii: Sequence[float],
    norm: str,
    known: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """The radii (n,) at which points break under all attacks, given those already `known`."""
    smallest = known.clone()
    for radius in radii:
        rows = torch.nonzero(smallest > radius).squeeze(1)
        if len(rows) == 0:
            break
        found = attack.run(
            net,
            test.x[rows],
            test.y[rows],
            norm=norm,
            radius=radius,
            box=test.box,
            generator=generator,
        )
        # The re-check's slack may leave a norm above the radius by a share of 1e-5.
        reached = torch.where(found.success, found.radius.clamp(max=radius), torch.inf)
        smallest[rows] = torch.minimum(smallest[rows], reached)
    return smallest


def mean_over_radii(places: Sequence[float], values: Sequence[float]) -> float:
    """The mean of a curve that is linear between its points, over all of their range."""
    x, y = (torch.tensor(part, dtype=torch.float64) for part in (places, values))
    return float(torch.trapezoid(y, x) / (x[-1] - x[0]))


def share(mask: Tensor) -> float:
    """The share of entries that are set."""
    return float(mask.double().mean())


def share_left_by_longer_attacks(
    net: nn.Module,
    test: Dataset,
    found: Robustness,
    radii: list[float],
    count: int,
    generator: torch.Generator,
) -> dict[str, Any]:
    """What 100 steps of each attack find on the first points, beside the radii already `found`.

    "longer_share" is the sum of the smaller radii, none beyond the last of `radii`, as a share of
    those found: 1 where the longer attacks gain nothing. Every third radius is looked at. Of deep
    networks alone: `evaluate` has one number of steps for shallow ones.
    """
    if count == 0 or models.is_shallow(net):
        return {}
    part = test.take(slice(count))
    known = found.upper[: len(part)].clamp(max=radii[-1])
    tight = evaluate(
        net, part, radii=radii[1::3], effort="tight", certify=False, generator=generator
    )
    shorter = float(known.sum())
    total = float(tight.upper.minimum(known).sum())
    return {"longer_share": total / shorter if shorter > 0 else 1.0}
