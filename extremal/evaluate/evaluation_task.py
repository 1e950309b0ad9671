"""What an evaluation attacks and certifies, and the steps that give its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Progress
from extremal._tensors import batches
from extremal.attack import CLEAN_NAME, AttackResult, Ball, minimal, run, verified
from extremal.certify import Certificate, certificate
from extremal.data import Dataset, GaussianClusters
from extremal.models import check_outputs, float64_copy, run_dtype


@dataclass(frozen=True, eq=False)
class EvaluationTask:
    """What is attacked, and how; each method gives a result that is at least as bad."""

    net: nn.Module
    test: Dataset
    norm: str
    steps: int
    batch: int
    generator: torch.Generator
    mixture: GaussianClusters | None = None  # the clusters that the points come from, where known

    @property
    def dtype(self) -> torch.dtype:
        """That of the network's weights, or of the points where it has none."""
        return run_dtype(self.net, self.test.x)

    def outputs(self) -> Tensor:
        """The outputs (n,) or (n, C) in float64; they say early whether network and data fit."""
        test, twin = self.test, float64_copy(self.net)
        with torch.no_grad():
            parts = [twin(test.x[at].double()) for at in batches(len(test), self.batch)]
        out = torch.cat(parts)
        check_outputs(out)
        rule = f"have a row for each of {len(test)} points"
        _check.require(len(out) == len(test), "net(x)", rule, f"shape {tuple(out.shape)}")
        _check.finite("net(x)", out)
        return out

    def minimal_attack(
        self, progress: bool | Progress, rays: Sequence[Tensor] = ()
    ) -> AttackResult:
        """The smallest radius found for each point within the box, 0 for a misclassified one."""
        test, group = self.test, None if self.mixture is None else self.test.group
        clean = verified(
            self.net, test.x, test.y, test.x, Ball(self.norm, 0.0, test.box), CLEAN_NAME
        )
        right = torch.nonzero(~clean.success).squeeze(1)
        if len(right) == 0:
            return clean
        found = minimal(
            self.net,
            test.x[right],
            test.y[right],
            norm=self.norm,
            box=test.box,
            steps=self.steps,
            mixture=self.mixture,
            group=None if group is None else group[right],
            rays=[ray[right] for ray in rays],
            generator=self.generator,
            batch=self.batch,
            progress=progress,
        )
        return clean.merged(right, found)

    def certified(
        self,
        found: AttackResult,
        count: int | None,
        effort: Literal["tight", "fast"],
        progress: bool | Progress,
    ) -> Certificate:
        """The certificate of the first `count` points, from the attack where it may start there."""
        same = self.norm == "l2" and self.test.box is None
        few = self.test.take(slice(count))
        return certificate(
            self.net,
            few.x,
            few.y,
            norm=self.norm,
            box=few.box,
            effort=effort,
            attacked=found.x_adv[:count] if same else None,
            batch=self.batch,
            progress=progress,
        )

    def attack_undecided(self, found: AttackResult, lower: Tensor, radius: float) -> AttackResult:
        """All attacks at one radius, against the points that are undecided there."""
        rows = torch.nonzero((lower < radius) & (radius < found.radius)).squeeze(1)
        if len(rows) == 0:
            return found
        part = self.test.take(rows)
        result = run(
            self.net,
            part.x,
            part.y,
            norm=self.norm,
            radius=radius,
            box=part.box,
            steps=self.steps,
            mixture=self.mixture,
            group=None if self.mixture is None else part.group,
            smallest=False,
            generator=self.generator,
            batch=self.batch,
        )
        return found.merged(rows, result)
