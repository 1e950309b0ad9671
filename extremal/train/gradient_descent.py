"""Discrete training: full-batch gradient descent, and SGD and Adam on mini-batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.models import PReLUNet, evaluation_mode, input_dim
from extremal.train.losses import Function, Loss, LossName, as_loss, trainable
from extremal.train.optimisers import Adam, Optimiser, Sgd
from extremal.train.recording import Record, Recorder, Trajectory
from extremal.train.sparse_inputs import SparseDataset

Batches = Iterator[tuple[Tensor, Tensor]]
Step = Callable[[Tensor, Tensor], Tensor]  # on a batch, in place; returns the loss before it

# Every so many steps it is checked whether the loss is still finite.
_STEPS_BETWEEN_CHECKS = 100


def adam(
    net: nn.Module,
    train: Dataset,
    *,
    loss: LossName | Function | Loss = "cross-entropy",
    lr: float = 1e-3,
    batch: int = 1000,
    steps: int | None = None,
    epochs: int | None = None,
    record: Record | None = None,
    progress: bool | Progress = False,
    generator: torch.Generator,
) -> Trajectory:
    """Adam with PyTorch's defaults, for a number of steps or of epochs through the data.

    m <- .9 m + .1 g, s <- .999 s + .001 g^2, theta <- theta - lr m' / (sqrt(s') + 1e-8) with
    m' = m/(1 - .9^t) and s' = s/(1 - .999^t) at step t: Kingma & Ba 2015, Algorithm 1. Each epoch
    visits the data once, in random order. The network is trained in place; times are steps. A
    `PReLUNet`'s points are prepared once, so that beside the data a copy of it is held, a smaller
    one where most columns rarely vary (`train.sparse_inputs`).

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset` with points in the network's own dtype.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `lr`: step size, above 0.
    - `batch`: points a step, 1000 by default; the last batch of an epoch may be smaller.
    - `steps`: how many steps; None where `epochs` are given.
    - `epochs`: how often all data are visited; None where `steps` are given.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    used = as_loss(loss)
    rate = _check.number("lr", lr, above=0.0)
    check_fit(net, train, used)
    each = batches_per_epoch(train, batch)
    _check.generator("generator", generator)
    total = _count_steps(steps, epochs, each)
    rule = Adam(net, used, rate)
    batches, take = plain_steps(rule, train, batch, generator)
    with Bar("adam", total, progress) as bar:

        def step(x: Tensor, y: Tensor) -> Tensor:
            value = take(x, y)
            bar.done(rule.taken)
            return value

        return _train_loop(net, train, used, rate, total, record, batches, step, "adam", 1.0)


def _count_steps(steps: int | None, epochs: int | None, each: int) -> int:
    """The number of steps, of which an epoch has `each`."""
    one = (steps is None) != (epochs is None)
    _check.require(one, "steps", "be given, or epochs, and not both", f"{steps} and {epochs}")
    if epochs is not None:
        return each * _check.integer("epochs", epochs, minimum=1)
    return _check.integer("steps", steps, minimum=1)


def plain_steps(
    rule: Optimiser, train: Dataset, batch: int | None, generator: torch.Generator
) -> tuple[Batches, Step]:
    """Batches without end, and the rule's step on one of them; `batch` None is the whole data.

    For Adam on a `PReLUNet` points are given by their numbers and prepared once: preparing is a
    tenth of a step on images, and the same in every epoch.
    """
    net = rule.net
    if not (isinstance(rule, Adam) and isinstance(net, PReLUNet)):
        return shuffled(train, batch, generator), rule.step
    net.hidden(train.x[:1])  # refuses points of another dtype
    points, parts, loss = SparseDataset(train.x, net.preparation), trainable(net), rule.loss

    def step(rows: Tensor, y: Tensor) -> Tensor:
        found = net.parameter_gradient(points.take(rows), lambda out: loss.slope(out, y))
        rule.apply({name: getattr(found, name) for name in parts})
        return loss.value(found.out, y)

    return shuffled(train, batch, generator, numbers=torch.arange(len(train))), step


def gd(
    net: nn.Module,
    train: Dataset,
    *,
    loss: LossName | Function | Loss = "exp",
    lr: float,
    momentum: float = 0.0,
    steps: int,
    record: Record | None = None,
) -> Trajectory:
    """Full-batch gradient descent: theta <- theta - lr grad L(theta), `steps` times.

    With momentum m heavy balls: s <- m s + grad L(theta), theta <- theta - lr s. The network is
    trained in place; times are steps of lr / (1 - m), the flow time it approximates.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset` with points in the network's own dtype.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `lr`: step size, above 0.
    - `momentum`: m in [0, 1), 0 by default.
    - `steps`: how many steps are taken.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone.
    """
    _check.instance("train", train, Dataset, "be a Dataset")
    whole = itertools.repeat((train.x, train.y))
    rule = Sgd(net, as_loss(loss), lr, momentum)
    return _train_loop(
        net, train, rule.loss, lr, steps, record, whole, rule.step, "gd", rule.flow_time_per_step
    )


def sgd(
    net: nn.Module,
    train: Dataset,
    *,
    loss: LossName | Function | Loss = "exp",
    lr: float,
    momentum: float = 0.0,
    batch: int,
    steps: int,
    record: Record | None = None,
    generator: torch.Generator,
) -> Trajectory:
    """Mini-batch SGD: each epoch visits the data once, in random order, a batch at a time.

    The network is trained in place; times are as in `gd`. Min & Vidal 2024 use lr = 0.2 and
    batch = 100, without momentum.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `train`: the training data, a `Dataset` with points in the network's own dtype.
    - `loss`: "exp", "logistic" or "cross-entropy", a function as in `Loss`, or a `Loss`.
    - `lr`: step size, above 0.
    - `momentum`: as in `gd`, in [0, 1); 0 by default.
    - `batch`: points a step; the last batch of an epoch may be smaller.
    - `steps`: how many steps, each on one batch.
    - `record`: what to record, and when, a `Record`; None for the start and the end alone.
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    batches = shuffled(train, batch, generator)
    rule = Sgd(net, as_loss(loss), lr, momentum)
    return _train_loop(
        net, train, rule.loss, lr, steps, record, batches, rule.step, "sgd", rule.flow_time_per_step
    )


def _train_loop(
    net: nn.Module,
    train: Dataset,
    loss: Loss,
    lr: float,
    steps: int,
    record: Record | None,
    batches: Iterator[tuple[Tensor, Tensor]],
    take: Step,
    method: str,
    flow_time_per_step: float,
) -> Trajectory:
    """The one loop: take a step on a batch; record when a time is passed."""
    _check.number("lr", lr, above=0.0)
    _check.integer("steps", steps, minimum=1)
    check_fit(net, train, loss)
    torch.set_flush_denormal(True)
    recorder = Recorder(record, net, train, loss, steps * flow_time_per_step)
    recorder.start()
    for step in range(1, steps + 1):
        x, y = next(batches)
        value = take(x, y)
        time = step * flow_time_per_step
        due = step == steps or recorder.next_time() <= time * (1.0 + 1e-12)
        if (step % _STEPS_BETWEEN_CHECKS == 0 and not math.isfinite(float(value))) or (
            due and not math.isfinite(recorder.note(time))
        ):
            advice = f"the loss is not finite after {step} steps; use a smaller lr than {lr:g}"
            raise recorder.diverged(time, advice, method=method, steps=step)
    return recorder.finish(converged=True, method=method, steps=steps, lr=lr)


def check_fit(net: nn.Module, train: Dataset, loss: Loss, name: str = "train") -> None:
    """Require that network, labels and loss belong together."""
    _check.module("net", net)
    _check.instance(name, train, Dataset, "be a Dataset")
    outputs = getattr(net, "outputs", None)
    if outputs is None:
        with torch.no_grad(), evaluation_mode(net):
            out = net(train.x[:1])
        rule = "return (n,), or (n, C) for C >= 2 outputs"
        good = out.ndim == 1 or (out.ndim == 2 and out.shape[1] >= 2)
        _check.require(good, "net", rule, f"shape {tuple(out.shape)} for one point")
        outputs = 1 if out.ndim == 1 else out.shape[1]
    loss.check(outputs)
    _check.labels(f"{name}.y", train.y, count=len(train), outputs=outputs)
    dim = input_dim(net) or train.dim
    _check.require(dim == train.dim, f"{name}.x", f"have {dim} columns", train.dim)


def batches_per_epoch(train: Dataset, batch: int | None) -> int:
    """How many batches of at most `batch` points the data have; None is one batch of all."""
    _check.instance("train", train, Dataset, "be a Dataset")
    if batch is None:
        return 1
    size = _check.integer("batch", batch, minimum=1)
    _check.require(size <= len(train), "batch", f"be at most {len(train)} points", size)
    return -(-len(train) // size)


def shuffled(
    train: Dataset,
    batch: int | None,
    generator: torch.Generator,
    *,
    numbers: Tensor | None = None,
) -> Batches:
    """Batches without end: each epoch visits the data once, in random order.

    They are points and labels, or rows of `numbers` and labels; without a `batch` all of them.
    """
    batches_per_epoch(train, batch)
    _check.generator("generator", generator)
    x = train.x if numbers is None else numbers
    if batch is None:
        return itertools.repeat((x, train.y))

    def endless() -> Batches:
        while True:
            order = torch.randperm(len(train), generator=generator)
            for rows in order.split(batch):
                yield x[rows], train.y[rows]

    return endless()
