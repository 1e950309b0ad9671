"""Adversarial training of any network, by SGD or Adam, with records under stronger attacks.

A step is on perturbed points, on both kinds, or that of TRADES; at radius 0 it is a plain one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.models import evaluation_mode
from extremal.train.checkpoint import Checkpoint
from extremal.train.early_stopping import EpochLoop, RobustValidation
from extremal.train.gradient_descent import (
    Batches,
    batches_per_epoch,
    check_fit,
    plain_steps,
    shuffled,
)
from extremal.train.inner_attack import InnerAttack, divergence, divergence_slope, loss_slope
from extremal.train.losses import Function, Loss, LossName, as_loss, loss_and_gradient, trainable
from extremal.train.optimisers import Adam, Optimiser, Sgd
from extremal.train.recording import Record, Recorder, Trajectory

# TRADES starts at a random point of this share of the radius: at x itself the divergence is
# least, and has no slope.
_TRADES_START_RADIUS_SHARE = 1e-3

# A step on a batch (x, y) within a share of the radius; it returns the loss before it.
SharedStep = Callable[[Tensor, Tensor, float], Tensor]


def _steps(
    rule: Optimiser,
    inner: InnerAttack,
    clean_share: float,
    trades: float | None,
    train: Dataset,
    batch: int | None,
    generator: torch.Generator,
) -> tuple[Batches, SharedStep]:
    """Batches without end, and the step on one of them."""
    if inner.radius == 0.0:
        batches, step = plain_steps(rule, train, batch, generator)
        return batches, lambda x, y, share: step(x, y)
    batches = shuffled(train, batch, generator)
    if trades is None:
        return batches, partial(_attacked_step, rule, inner, clean_share, generator)
    return batches, partial(_trades_step, rule, inner, trades, generator)


def _attacked_step(
    rule: Optimiser,
    inner: InnerAttack,
    clean_share: float,
    generator: torch.Generator,
    x: Tensor,
    y: Tensor,
    share: float,
) -> Tensor:
    """A step on perturbed points, or on both with `clean_share` for the points as they are."""
    net, loss = rule.net, rule.loss
    with evaluation_mode(net):
        moved = inner.perturbed(net, x, loss_slope(loss, y), share=share, generator=generator)
    if clean_share == 0.0:
        return rule.step(moved, y)
    first, perturbed = loss_and_gradient(net, moved, y, loss)
    second, clean = loss_and_gradient(net, x, y, loss)
    rest = 1.0 - clean_share
    rule.apply({name: rest * perturbed[name] + clean_share * clean[name] for name in clean})
    return rest * first + clean_share * second


def _trades_step(
    rule: Optimiser,
    inner: InnerAttack,
    trades: float,
    generator: torch.Generator,
    x: Tensor,
    y: Tensor,
    share: float,
) -> Tensor:
    """A step of TRADES: the loss on the points plus `trades` times the divergence nearby."""
    net, loss, parts = rule.net, rule.loss, trainable(rule.net)
    with evaluation_mode(net):
        with torch.no_grad():
            slope = divergence_slope(net(x))
        near = _TRADES_START_RADIUS_SHARE
        moved = inner.perturbed(
            net, x, slope, share=share, start_radius_share=near, generator=generator
        )
    with torch.enable_grad():
        out = net(x)
        value = loss.value(out, y) + trades * divergence(out, net(moved)).mean()
        slopes = torch.autograd.grad(value, list(parts.values()))
    rule.apply(dict(zip(parts, slopes, strict=True)))
    return value.detach()


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
    """Train on what the attack `inner` makes of each batch.

    The network is trained in place; times are epochs. The loss is (1 - `clean_share`) of that on
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
    does not count.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset` with points in the network's own dtype.
    - `inner`: the `InnerAttack` that each batch meets first.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `method`: "sgd", which may have momentum, or "adam".
    - `lr`: step size, above 0.
    - `momentum`: as in `gd`, in [0, 1); it must be 0 for Adam.
    - `batch`: points a step; None (the default) for full-batch descent.
    - `epochs`: how often all data are visited.
    - `warm_up`: over so many first epochs the radius grows evenly; 0 by default.
    - `clean_share`: of the loss that is on the points as they are, in [0, 1]; 0 by default.
    - `trades`: the weight of the KL divergence, see above; None (the default) for the plain loss.
    - `watch`: how robust accuracy is recorded, a `RobustValidation`; None for its defaults.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone, or for
      every epoch where there is a patience.
    - `checkpoint`: a file to go on from after an interruption, to the same weights; None for none.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    used, watch = as_loss(loss), watch or RobustValidation()
    check_fit(net, train, used)
    inner = _in_data_box(inner, train)
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
    each = batches_per_epoch(train, batch)
    batches, take = _steps(rule, inner, clean_share, trades, train, batch, generator)
    probes = {**asked.watch, **watch.probes(train, inner, generator)}
    recorder = Recorder(replace(asked, watch=probes), net, train, used, float(total))
    saved = None
    if checkpoint is not None:
        settings = [inner, used, method, lr, momentum, batch, warm_up, clean_share, trades, watch]
        asked_for = [sorted(probes), asked.snapshots, train.x, train.y]
        parts = "network, data, settings, record and seed"
        saved = Checkpoint(
            checkpoint,
            [*settings, *asked_for, net, generator.get_state()],
            training="adversarial training",
            parts=parts,
        )
    loop = EpochLoop(net, rule, recorder, generator, watch.patience, saved)
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


def _in_data_box(inner: InnerAttack, train: Dataset) -> InnerAttack:
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
