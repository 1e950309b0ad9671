"""Robust accuracy as a function of the radius."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack.attack_result import AttackResult
from extremal.attack.ball import NORMS, Ball
from extremal.attack.ensemble import run
from extremal.attack.mixture_rays import known_clusters
from extremal.attack.projected_gradient_descent import published_pgd
from extremal.data import Dataset

Attack = Callable[[nn.Module, Dataset, Ball, torch.Generator], AttackResult]
"""Whatever attacks a data set within a ball."""


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """Robust accuracy at each radius: the share of points whose smallest found radius is larger."""

    norm: str
    radii: Tensor  # (m,) float64, as asked for
    accuracy: Tensor  # (m,) float64
    radius: Tensor  # (n,) float64: smallest radius found for each point, inf where none


def everything(
    net: nn.Module, data: Dataset, ball: Ball, generator: torch.Generator
) -> AttackResult:
    """`run` on a data set, with the closed forms where the data's source is a mixture."""
    mixture = known_clusters(data)
    group = data.group if mixture is not None else None
    return run(
        net,
        data.x,
        data.y,
        norm=ball.norm,
        radius=ball.radius,
        box=ball.box,
        mixture=mixture,
        group=group,
        generator=generator,
    )


def published(
    net: nn.Module, data: Dataset, ball: Ball, generator: torch.Generator
) -> AttackResult:
    """`published_pgd` on a data set: l2 without a box."""
    _check.require(ball.norm == "l2", "norm", "be 'l2' for the published attack", ball.norm)
    _check.require(ball.box is None, "box", "be None for the published attack", ball.box)
    return published_pgd(net, data.x, data.y, radius=ball.radius)


def accuracy_curve(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    norm: str = "l2",
    attack: Attack = everything,
    generator: torch.Generator,
) -> AccuracyCurve:
    """Attack `data` within its box at each radius, and count what stands.

    Radii are taken in ascending order, and a point broken at one is not attacked at a larger one,
    so that the accuracy never rises. A point found broken by less than the radius it was attacked
    with counts as broken at the radii between, too.
    """
    _check.choice("norm", norm, NORMS)
    _check.generator("generator", generator)
    _check.module("net", net)
    _check.instance("data", data, Dataset, "be a Dataset")
    _check.instance("radii", radii, Iterable, "be a sequence of numbers")
    wanted = [_check.number("radii", radius, minimum=0.0) for radius in radii]
    _check.require(len(wanted) > 0, "radii", "hold at least one number", radii)
    broken_at = torch.full((len(data),), torch.inf, dtype=torch.float64, device=data.x.device)
    for radius in sorted(set(wanted)):
        rows = torch.nonzero(torch.isinf(broken_at)).squeeze(1)
        if len(rows) == 0:
            break
        result = attack(net, data.take(rows), Ball(norm, radius, data.box), generator)
        # The re-check's slack may leave a norm above the radius by a share of 1e-5.
        found = result.radius.clamp(max=radius)
        broken_at[rows] = torch.where(result.success, found, torch.inf)
    asked = torch.tensor(wanted, dtype=torch.float64, device=broken_at.device)
    accuracy = (broken_at > asked.unsqueeze(1)).double().mean(1)
    return AccuracyCurve(norm, asked, accuracy, broken_at)
