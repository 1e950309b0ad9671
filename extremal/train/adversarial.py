"""Adversarial training of any network, by SGD or Adam, with records that do not trust it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack import run
from extremal.data import Dataset
from extremal.measure import accuracy
from extremal.models import PReLUNet
from extremal.train.adam import by_hand, numbered
from extremal.train.descent import check_fit, shuffled
from extremal.train.epochs import Epochs
from extremal.train.gradient import loss_and_gradient, trainable
from extremal.train.inner import Inner, divergence, divergence_slope, loss_slope
from extremal.train.loss import Function, Loss, LossName, as_loss
from extremal.train.optimisers import Moments, Optimiser, Sgd
from extremal.train.record import Record, Recorder
from extremal.train.trajectory import Trajectory

_BESIDE = 1e-3  # of the radius: at x itself the divergence is least, and has no slope

Batches = Iterator[tuple[Tensor, Tensor]]


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
    validation: Dataset | None = None,
    watched: int = 200,
    watch_steps: int = 50,
    watch_radius: float | None = None,
    patience: int | None = None,
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

    Recorded are, beside the loss and accuracy on the points as they are, "robust_accuracy" on
    `watched` training points, evenly spaced, and, of `validation`, "validation_accuracy" and
    "validation_robust", under all attacks of `ex.attack.run` with `watch_steps` steps within
    `watch_radius`, or the full radius, which are stronger than the one trained with.

    With `patience` training stops once as many records have brought no better "validation_robust"
    and leaves the weights of the best record, of equally robust ones that of least loss; the `info`
    says which epoch's. Then every epoch is recorded unless a `record` says otherwise, and the start
    does not count. With a `checkpoint` it goes on from the file where it was interrupted, to the
    same weights.
    """
    used = as_loss(loss)
    check_fit(net, train, used)
    _check.instance("inner", inner, Inner, "be an Inner")
    _check.choice("method", method, ("sgd", "adam"))
    total = _check.integer("epochs", epochs, minimum=1)
    _check.integer("warm_up", warm_up, minimum=0)
    _check.number("clean_share", clean_share, minimum=0.0, maximum=1.0)
    if trades is not None:
        _check.number("trades", trades, above=0.0)
        _check.require(clean_share == 0.0, "clean_share", "be 0 with trades", clean_share)
    if validation is not None:
        check_fit(net, validation, used, "validation")
    _check.integer("watched", watched, minimum=1)
    _check.integer("watch_steps", watch_steps, minimum=1)
    seen = inner.radius if watch_radius is None else watch_radius
    _check.number("watch_radius", seen, minimum=0.0)
    if patience is not None:
        _check.integer("patience", patience, minimum=1)
        _check.require(validation is not None, "patience", "come with a validation set", patience)
    _check.generator("generator", generator)
    plain = method == "sgd" or momentum == 0.0
    _check.require(plain, "momentum", "be 0 for Adam, which has its own", momentum)
    torch.set_flush_denormal(True)
    rule: Optimiser = Sgd(net, used, lr, momentum) if method == "sgd" else Moments(net, used, lr)
    batches, take = _steps(net, train, used, rule, inner, batch, clean_share, trades, generator)
    sets = {"robust_accuracy": train.spaced(watched)}
    if validation is not None:
        sets["validation_robust"] = validation.spaced(watched)
    strong = replace(inner, radius=seen, steps=watch_steps)
    watch = _watches(sets, validation, strong, generator)
    asked = record or Record(at=range(1, total) if patience is not None else ())
    _check.instance("record", asked, Record, "be a Record or None")
    recorder = Recorder(
        replace(asked, watch={**asked.watch, **watch}), net, train, used, float(total)
    )
    settings = {
        **{"inner": inner, "loss": used, "method": method, "lr": lr, "momentum": momentum},
        **{"batch": batch, "warm_up": warm_up, "clean_share": clean_share, "trades": trades},
        **{"patience": patience, "watched": watched, "strong": strong},
    }
    data = [train.x, train.y, *([] if validation is None else [validation.x, validation.y])]
    loop = Epochs(net, rule, recorder, generator, patience, checkpoint, [settings, data])
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


def _steps(
    net: nn.Module,
    train: Dataset,
    loss: Loss,
    rule: Optimiser,
    inner: Inner,
    batch: int | None,
    clean_share: float,
    trades: float | None,
    generator: torch.Generator,
) -> tuple[Batches, Callable[[Tensor, Tensor, float], Tensor]]:
    """Batches without end, and the step on one within a share of the radius."""
    batches: Batches = itertools.repeat((train.x, train.y))
    if batch is not None:
        batches = shuffled(train, batch, generator)
    if inner.radius == 0.0:
        if isinstance(rule, Moments) and isinstance(net, PReLUNet):
            return _prepared(net, train, loss, rule, batch, generator)
        return batches, lambda x, y, share: rule.step(x, y)

    def attacked(x: Tensor, y: Tensor, share: float) -> Tensor:
        slope = loss_slope(loss, y)
        moved = inner.perturbed(net, x, slope, share=share, generator=generator)
        if clean_share == 0.0:
            return rule.step(moved, y)
        pairs = [loss_and_gradient(net, points, y, loss) for points in (moved, x)]
        weights = (1.0 - clean_share, clean_share)
        mixed = [
            (weight * value, {name: weight * part for name, part in gradient.items()})
            for weight, (value, gradient) in zip(weights, pairs, strict=True)
        ]
        rule.apply({name: mixed[0][1][name] + mixed[1][1][name] for name in mixed[0][1]})
        return mixed[0][0] + mixed[1][0]

    def traded(x: Tensor, y: Tensor, share: float) -> Tensor:
        with torch.no_grad():
            clean = net(x)
        slope = divergence_slope(clean)
        moved = inner.perturbed(net, x, slope, share=share, nudge=_BESIDE, generator=generator)
        parts = trainable(net)
        with torch.enable_grad():
            out = net(x)
            value = loss.value(out, y) + (trades or 0.0) * divergence(out, net(moved)).mean()
            slopes = torch.autograd.grad(value, list(parts.values()))
        rule.apply(dict(zip(parts, slopes, strict=True)))
        return value.detach()

    return batches, attacked if trades is None else traded


def _prepared(
    net: PReLUNet,
    train: Dataset,
    loss: Loss,
    rule: Moments,
    batch: int | None,
    generator: torch.Generator,
) -> tuple[Batches, Callable[[Tensor, Tensor, float], Tensor]]:
    """Adam's own steps on points that are prepared once, where no attack changes them."""
    slopes = by_hand(net, train, loss)
    rows: Batches = itertools.repeat((torch.arange(len(train)), train.y))
    if batch is not None:
        rows = numbered(train, batch, generator)

    def take(index: Tensor, y: Tensor, share: float) -> Tensor:
        del share
        value, gradient = slopes(index, y)
        rule.apply(gradient)
        return value

    return rows, take


def _watches(
    sets: Mapping[str, Dataset],
    validation: Dataset | None,
    strong: Inner,
    generator: torch.Generator,
) -> dict[str, Callable[[nn.Module], float]]:
    """What is looked at whenever something is recorded; each look draws from the same seed.

    Attacks have the norm, radius, box and number of steps of `strong`.
    """
    seed = generator.initial_seed()

    def robust(data: Dataset) -> Callable[[nn.Module], float]:
        def look(net: nn.Module) -> float:
            found = run(
                net,
                data.x,
                data.y,
                norm=strong.norm,
                radius=strong.radius,
                box=strong.box,
                steps=strong.steps,
                generator=torch.Generator().manual_seed(seed),
            )
            return 1.0 - float(found.success.double().mean())

        return look

    watch = {name: robust(data) for name, data in sets.items()}
    if validation is not None:
        watch["validation_accuracy"] = lambda net: accuracy(net, validation)
    return watch
