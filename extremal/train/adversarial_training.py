"""Adversarial training of any network, by SGD or Adam, with records that do not trust it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.train.early_stopping import Epochs
from extremal.train.gradient_descent import check_fit
from extremal.train.inner_attack import Inner
from extremal.train.losses import Function, Loss, LossName, as_loss
from extremal.train.optimisers import Moments, Optimiser, Sgd
from extremal.train.perturbing import Perturbing
from extremal.train.recording import Record, Recorder
from extremal.train.trajectory import Trajectory
from extremal.train.watch import Watch


def adversarial(
    net: nn.Module,
    train: Dataset,
    *,
    inner: Inner,
    loss: LossName | Function | Loss = "cross-entropy",
    method: Literal["sgd", "adam"] = "sgd",
    lr: float,
    momentum: float = 0.0,
    batch: int | None = None,
    epochs: int,
    warm_up: int = 0,
    clean_share: float = 0.0,
    trades: float | None = None,
    watch: Watch | None = None,
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
    """
    used, watch = as_loss(loss), watch or Watch()
    check_fit(net, train, used)
    inner = _within(inner, train)
    _check.instance("watch", watch, Watch, "be a Watch or None")
    total = _check.integer("epochs", epochs, minimum=1)
    _check_settings(method, momentum, total, warm_up, clean_share, trades)
    held = watch.validation
    if held is not None:
        check_fit(net, held, used, "validation")
    _check.generator("generator", generator)
    asked = record or Record(at=range(1, total) if watch.patience is not None else ())
    _check.instance("record", asked, Record, "be a Record or None")
    torch.set_flush_denormal(True)
    rule: Optimiser = Sgd(net, used, lr, momentum) if method == "sgd" else Moments(net, used, lr)
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
    loop = Epochs(net, rule, recorder, generator, watch.patience, checkpoint, [settings, data])
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


def _within(inner: Inner, train: Dataset) -> Inner:
    """The attack inside the data's box, which it may name and not change."""
    _check.instance("inner", inner, Inner, "be an Inner")
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
