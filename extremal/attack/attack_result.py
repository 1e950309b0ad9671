"""What attacks found, point by point."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check

CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The worst point found around each of n points, as `recheck.verified` measured it.

    Where `success` is False, `radius` is infinite and `x_adv` holds the attempt of least margin.
    A point that is misclassified from the start counts as broken: x_adv = x, radius 0, and the
    name "clean".
    """

    x_adv: Tensor  # (n, dim), of the attacked points' dtype
    success: Tensor  # (n,) bool
    radius: Tensor  # (n,) float64: norm of the perturbation where success, else inf
    margin: Tensor  # (n,) float64, at x_adv
    names: tuple[str, ...]  # the attacks that took part
    found: Tensor  # (n,) int64: index into names of the attack that broke the point, or -1

    def __len__(self) -> int:
        return len(self.x_adv)

    @property
    def accuracy(self) -> float:
        """The share of points that were not broken."""
        return 1.0 - int(self.success.sum()) / len(self)

    @property
    def name(self) -> tuple[str, ...]:
        """For each point the name of the attack that broke it, "" where none did."""
        return tuple("" if i < 0 else self.names[i] for i in self.found.tolist())

    def take(self, index: Tensor) -> AttackResult:
        """The result for the chosen points."""
        parts = (self.x_adv, self.success, self.radius, self.margin)
        x_adv, success, radius, margin = (part[index] for part in parts)
        return AttackResult(x_adv, success, radius, margin, self.names, self.found[index])

    def merged(self, index: Tensor, part: AttackResult) -> AttackResult:
        """This result with the points at `index` replaced wherever `part` is worse for them."""
        both = worst([self.take(index), part])
        fields = ("x_adv", "success", "radius", "margin", "found")
        x_adv, success, radius, margin, found = (
            getattr(self, field).index_copy(0, index, getattr(both, field)) for field in fields
        )
        return AttackResult(x_adv, success, radius, margin, both.names, found)


def worst(results: Iterable[AttackResult]) -> AttackResult:
    """For each point the smallest radius that succeeds, and the attack that found it.

    Where no attack succeeded, the attempt of least margin. Of equals, the first.
    """
    every = list(results)
    _check.require(len(every) >= 1, "results", "hold at least one AttackResult", every)
    shapes = {tuple(result.x_adv.shape) for result in every}
    _check.require(len(shapes) == 1, "results", "be of the same points", sorted(shapes))
    return functools.reduce(_worse, every)


def _worse(first: AttackResult, second: AttackResult) -> AttackResult:
    neither = ~first.success & ~second.success
    swap = (second.radius < first.radius) | (neither & (second.margin < first.margin))
    names = tuple(dict.fromkeys(first.names + second.names))  # first's indices stay valid
    place = torch.tensor([names.index(name) for name in second.names], device=swap.device)
    renamed = torch.where(second.found >= 0, place[second.found.clamp(min=0)], -1)
    return AttackResult(
        x_adv=torch.where(swap.unsqueeze(1), second.x_adv, first.x_adv),
        success=torch.where(swap, second.success, first.success),
        radius=torch.where(swap, second.radius, first.radius),
        margin=torch.where(swap, second.margin, first.margin),
        names=names,
        found=torch.where(swap, renamed, first.found),
    )
