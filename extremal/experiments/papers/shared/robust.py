"""Robust accuracy given three ways: APGD-CE alone, the strongest attack, a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, certify, measure
from extremal.data import Dataset
from extremal.evaluate import check_bracket


@dataclass(frozen=True, eq=False)
class ThreeWays:
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


def three_ways(
    net: nn.Module,
    test: Dataset,
    radii: Sequence[float],
    *,
    norm: str,
    steps: int,
    certified: int,
    generator: torch.Generator,
) -> ThreeWays:
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
    return ThreeWays(norm, wanted, alone, worst, lower)


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


def area(places: Sequence[float], values: Sequence[float]) -> float:
    """The mean of a curve that is linear between its points, over all of their range."""
    x, y = (torch.tensor(part, dtype=torch.float64) for part in (places, values))
    return float(torch.trapezoid(y, x) / (x[-1] - x[0]))


def share(mask: Tensor) -> float:
    """The share of entries that are set."""
    return float(mask.double().mean())
