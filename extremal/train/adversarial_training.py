"""Adversarial training of any network, by SGD or Adam, with records that do not trust it.

One step of adversarial training: on perturbed points, on both, with TRADES, or on none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.early_stopping import EpochLoop, RobustValidation
from extremal.train.gradient_descent import check_fit, prepared_gradient, row_batches, shuffled
from extremal.train.inner_attack import InnerAttack, divergence, divergence_slope, loss_slope
from extremal.train.losses import Function, Loss, LossName, as_loss, loss_and_gradient, trainable
from extremal.train.modes import evaluating
from extremal.train.optimisers import Adam, Optimiser, Sgd
from extremal.train.recording import Record, Recorder, Trajectory

_BESIDE = 1e-3  # of the radius: at x itself the divergence is least, and has no slope

Batches = Iterator[tuple[Tensor, Tensor]]
Step = Callable[[Tensor, Tensor, float], Tensor]  # of a batch, within a share of the radius


@dataclass(frozen=True, eq=False)
class Perturbing:
    """A network, its loss and its rule of descent; the loss after a step is what a step returns."""

    net: nn.Module
    loss: Loss
    rule: Optimiser
    inner: InnerAttack
    clean_share: float
    trades: float | None
    generator: torch.Generator

    def steps(self, train: Dataset, batch: int | None) -> tuple[Batches, Step]:
        """Batches without end, and the step on one of them."""
        net, rule = self.net, self.rule
        unmoved = self.inner.radius == 0.0
        if unmoved and isinstance(rule, Adam) and isinstance(net, PReLUNet):
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
        self, net: PReLUNet, rule: Adam, train: Dataset, batch: int | None
    ) -> tuple[Batches, Step]:
        """Adam's own steps on points that are prepared once, where no attack changes them."""
        slopes = prepared_gradient(net, train, self.loss)
        rows: Batches = itertools.repeat((torch.arange(len(train)), train.y))
        if batch is not None:
            rows = row_batches(train, batch, self.generator)

        def take(index: Tensor, y: Tensor, share: float) -> Tensor:
            del share
            value, gradient = slopes(index, y)
            rule.apply(gradient)
            return value

        return rows, take


def adversarial(
    net: nn.Module,
    train: Dataset,
    *,
    inner: InnerAttack,
    loss: LossName | Function | Loss = "cross-entropy",
    method: Literal["sgd", "adam"] = "sgd",
    lr: float,
    momentum: float = 0.0,
    batch: int | None = None,
    epochs: int,
    warm_up: int = 0,
    clean_share: float = 0.0,
    trades: float | None = None,
    watch: RobustValidation | None = None,
    record: Record | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | Progress = False,
    generator: torch.Generator,
) -> Trajectory:
    """Train on what the attack `inner` makes of each batch, for a number of `epochs`.

    The network is trained in place; times are epochs. `batch` None is full-batch descent. Over the
    first `warm_up` epochs the radius grows evenly. The loss is (1 - `clean_share`) of that on
    perturbed points plus `clean_share` of that on the points; with `trades` it is the loss on the
    points plus `trades` times the mean KL divergence of the perturbed outputs from theirs, which
    the attack then raises (Zhang et al. 2019). At radius 0 it is plain training, to the bit.

    Recorded are, beside the loss and accuracy on the points as they are, "robust_accuracy" and,
    where `watch` has a validation set, "validation_accuracy" and "validation_robust", under attacks
    that are stronger than the one trained with. Records and the inner attack see the network in
    evaluation mode, so that they leave no trace in it; steps are taken in the mode that it is in.
    Perturbed points stay in the data's box, where there is one.

    With a patience, training stops once as many records have brought no better "validation_robust"
    and leaves the weights of the best record, of equally robust ones that of least loss; the `info`
    says which epoch's. Then every epoch is recorded unless a `record` says otherwise, and the start
    does not count. With a `checkpoint` it goes on from the file where it was interrupted, to the
    same weights.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset` with points in the network's own dtype.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `method`: "sgd", which may have momentum, or "adam".
    - `lr`: step size, above 0.
    - `momentum`: as in `gd`, in [0, 1); it must be 0 for Adam.
    - `watch`: how robust accuracy is recorded, a `RobustValidation`; None for its defaults.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone, or for
      every epoch where there is a patience.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    used, watch = as_loss(loss), watch or RobustValidation()
    check_fit(net, train, used)
    inner = _within(inner, train)
    _check.instance("watch", watch, RobustValidation, "be a RobustValidation or None")
    total = _check.integer("epochs", epochs, minimum=1)
    _check_settings(method, momentum, total, warm_up, clean_share, trades)
    held = watch.validation
    if held is not None:
        check_fit(net, held, used, "validation")
    _check.generator("generator", generator)
    asked = record or Record(at=range(1, total) if watch.patience is not None else ())
    _check.instance("record", asked, Record, "be a Record or None")
    torch.set_flush_denormal(True)
    rule: Optimiser = Sgd(net, used, lr, momentum) if method == "sgd" else Adam(net, used, lr)
    step = Perturbing(net, used, rule, inner, clean_share, trades, generator)
    batches, take = step.steps(train, batch)
    looks = {**asked.watch, **watch.looks(train, inner, generator)}
    recorder = Recorder(replace(asked, watch=looks), net, train, used, float(total))
    settings = {
        **{"inner": inner, "loss": used, "method": method, "lr": lr, "momentum": momentum},
        **{"batch": batch, "warm_up": warm_up, "clean_share": clean_share, "trades": trades},
        "watch": replace(watch, validation=None, patience=None),
        "patience": watch.patience,
    }
    data = [train.x, train.y, *([] if held is None else [held.x, held.y])]
    loop = EpochLoop(net, rule, recorder, generator, watch.patience, checkpoint, [settings, data])
    each = 1 if batch is None else -(-len(train) // batch)
    with Bar("adversarial", total, progress) as bar:
        for epoch in loop.run(total):
            share = min(1.0, epoch / warm_up) if warm_up else 1.0
            value = torch.zeros(())
            for x, y in itertools.islice(batches, each):
                value = take(x, y, share)
            loop.done(epoch, math.isfinite(float(value)))
            bar.done(epoch)
    return loop.finish(method=f"adversarial {method}", lr=lr, radius=inner.radius)


def _check_settings(
    method: str,
    momentum: float,
    epochs: int,
    warm_up: int,
    clean_share: float,
    trades: float | None,
) -> None:
    _check.choice("method", method, ("sgd", "adam"))
    plain = method == "sgd" or momentum == 0.0
    _check.require(plain, "momentum", "be 0 for Adam, which has its own", momentum)
    _check.integer("warm_up", warm_up, minimum=0)
    _check.require(warm_up <= epochs, "warm_up", f"be at most epochs, {epochs}", warm_up)
    _check.number("clean_share", clean_share, minimum=0.0, maximum=1.0)
    if trades is not None:
        _check.number("trades", trades, above=0.0)
        _check.require(clean_share == 0.0, "clean_share", "be 0 with trades", clean_share)


def _within(inner: InnerAttack, train: Dataset) -> InnerAttack:
    """The attack inside the data's box, which it may name and not change."""
    _check.instance("inner", inner, InnerAttack, "be an InnerAttack")
    if train.box is None:
        return inner
    if inner.box is None:
        return replace(inner, box=train.box)
    rule = f"be the data's, {train.box}, or None"
    for own, other in zip(inner.box, train.box, strict=True):
        ends = [torch.as_tensor(end).to(train.x) for end in (own, other)]
        fits = ends[0].ndim == 0 or ends[0].shape == train.x.shape[1:]
        same = fits and bool((ends[0] == ends[1]).all())
        _check.require(same, "inner.box", rule, inner.box)
    return inner
