"""Adam on mini-batches, with gradients by hand where we know how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.gradient import loss_and_gradient, trainable
from extremal.train.gradient_descent import _descend, check_fit, shuffled
from extremal.train.losses import Function, Loss, LossName, as_loss
from extremal.train.optimisers import Moments
from extremal.train.recording import Record
from extremal.train.sparse_inputs import Points
from extremal.train.trajectory import Trajectory

# The loss before a step and its gradient, on a batch.
Slopes = Callable[[Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]


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
    """Adam with PyTorch's defaults, for a number of `steps` or of `epochs` through the data.

    m <- .9 m + .1 g, s <- .999 s + .001 g^2, theta <- theta - lr m' / (sqrt(s') + 1e-8) with
    m' = m/(1 - .9^t) and s' = s/(1 - .999^t) at step t: Kingma & Ba 2015, Algorithm 1. Each epoch
    visits the data once, in random order, `batch` points at a time (the last batch may be smaller).
    The network is trained in place; times are steps. A `PReLUNet`'s points are prepared once, so
    that beside the data a copy of it is held, a smaller one where most columns rarely vary
    (`train.sparse_inputs`). `progress` is False, True for a bar on the standard error, or a
    function of (what, done, total).
    """
    used = as_loss(loss)
    rate = _check.number("lr", lr, above=0.0)
    check_fit(net, train, used)
    batches = shuffled(train, batch, generator)
    total = count_steps(steps, epochs, -(-len(train) // batch))
    moments = Moments(net, used, rate)
    slopes: Slopes = partial(loss_and_gradient, net, loss=used)
    if isinstance(net, PReLUNet):
        batches, slopes = numbered(train, batch, generator), by_hand(net, train, used)
    with Bar("adam", total, progress) as bar:

        def step(x: Tensor, y: Tensor) -> Tensor:
            value, gradient = slopes(x, y)
            moments.apply(gradient)
            bar.done(moments.taken)
            return value

        return _descend(net, train, used, rate, total, record, batches, step, "adam", 1.0)


def count_steps(steps: int | None, epochs: int | None, each: int) -> int:
    """The number of steps, of which an epoch has `each`."""
    one = (steps is None) != (epochs is None)
    _check.require(one, "steps", "be given, or epochs, and not both", f"{steps} and {epochs}")
    if epochs is not None:
        return each * _check.integer("epochs", epochs, minimum=1)
    return _check.integer("steps", steps, minimum=1)


def numbered(
    train: Dataset, batch: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches without end, as the numbers of their points and their labels."""
    while True:
        for rows in torch.randperm(len(train), generator=generator).split(batch):
            yield rows, train.y[rows]


def by_hand(net: PReLUNet, train: Dataset, loss: Loss) -> Slopes:
    """The loss and its gradient on points that are given by their numbers and prepared once.

    Preparing is a tenth of a step on images, and the same in every epoch.
    """
    net.hidden(train.x[:1])  # refuses points of another dtype
    points, parts = Points(train.x, net.preparation), trainable(net)

    def slopes(rows: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        found = net.parameter_gradient(points.take(rows), lambda out: loss.slope(out, y))
        return loss.value(found.out, y), {name: getattr(found, name) for name in parts}

    return slopes
