"""One step of adversarial training: on perturbed points, on both, with TRADES, or on none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.adam import by_hand, numbered
from extremal.train.gradient import loss_and_gradient, trainable
from extremal.train.gradient_descent import shuffled
from extremal.train.inner_attack import Inner, divergence, divergence_slope, loss_slope
from extremal.train.losses import Loss
from extremal.train.modes import evaluating
from extremal.train.optimisers import Moments, Optimiser

_BESIDE = 1e-3  # of the radius: at x itself the divergence is least, and has no slope

Batches = Iterator[tuple[Tensor, Tensor]]
Step = Callable[[Tensor, Tensor, float], Tensor]  # of a batch, within a share of the radius


@dataclass(frozen=True, eq=False)
class Perturbing:
    """A network, its loss and its rule of descent; the loss after a step is what a step returns."""

    net: nn.Module
    loss: Loss
    rule: Optimiser
    inner: Inner
    clean_share: float
    trades: float | None
    generator: torch.Generator

    def steps(self, train: Dataset, batch: int | None) -> tuple[Batches, Step]:
        """Batches without end, and the step on one of them."""
        net, rule = self.net, self.rule
        unmoved = self.inner.radius == 0.0
        if unmoved and isinstance(rule, Moments) and isinstance(net, PReLUNet):
            return self._prepared(net, rule, train, batch)
        batches: Batches = itertools.repeat((train.x, train.y))
        if batch is not None:
            batches = shuffled(train, batch, self.generator)
        if unmoved:
            return batches, lambda x, y, share: rule.step(x, y)
        return batches, self._attacked if self.trades is None else self._traded

    def _attacked(self, x: Tensor, y: Tensor, share: float) -> Tensor:
        slope = loss_slope(self.loss, y)
        with evaluating(self.net):
            moved = self.inner.perturbed(self.net, x, slope, share=share, generator=self.generator)
        if self.clean_share == 0.0:
            return self.rule.step(moved, y)
        weights = (1.0 - self.clean_share, self.clean_share)
        pairs = [loss_and_gradient(self.net, points, y, self.loss) for points in (moved, x)]
        (first, perturbed), (second, clean) = pairs
        self.rule.apply(
            {name: weights[0] * perturbed[name] + weights[1] * clean[name] for name in clean}
        )
        return weights[0] * first + weights[1] * second

    def _traded(self, x: Tensor, y: Tensor, share: float) -> Tensor:
        assert self.trades is not None
        with evaluating(self.net):
            with torch.no_grad():
                slope = divergence_slope(self.net(x))
            moved = self.inner.perturbed(
                self.net, x, slope, share=share, nudge=_BESIDE, generator=self.generator
            )
        parts = trainable(self.net)
        with torch.enable_grad():
            out = self.net(x)
            value = self.loss.value(out, y) + self.trades * divergence(out, self.net(moved)).mean()
            slopes = torch.autograd.grad(value, list(parts.values()))
        self.rule.apply(dict(zip(parts, slopes, strict=True)))
        return value.detach()

    def _prepared(
        self, net: PReLUNet, rule: Moments, train: Dataset, batch: int | None
    ) -> tuple[Batches, Step]:
        """Adam's own steps on points that are prepared once, where no attack changes them."""
        slopes = by_hand(net, train, self.loss)
        rows: Batches = itertools.repeat((torch.arange(len(train)), train.y))
        if batch is not None:
            rows = numbered(train, batch, self.generator)

        def take(index: Tensor, y: Tensor, share: float) -> Tensor:
            del share
            value, gradient = slopes(index, y)
            rule.apply(gradient)
            return value

        return rows, take
