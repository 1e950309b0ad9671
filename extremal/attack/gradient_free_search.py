"""Random search: an attack that sees outputs alone, and no gradient that could be masked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    BATCH,
    AttackResult,
    batches,
    check_ball,
    check_points,
    verified,
)
from extremal.attack.ball import Ball
from extremal.attack.projection import ORDERS
from extremal.attack.surrogate import stopping_margin, surrogate_network
from extremal.models import margin

_FIRST_SHARE = 0.8
# Shares of the steps after which the share of coordinates that change is halved.
_HALVED = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


def random_search(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    steps: int = 5000,
    generator: torch.Generator,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack by random changes of the perturbation, each kept where the margin falls.

    The idea and the schedule are those of the Square Attack (Andriushchenko et al. 2020), with
    random sets of coordinates in the place of windows of an image. linf: the coordinates of a set
    go to +radius or -radius. l2: a set gives up a random share of its mass, and another takes it,
    with its own direction and a random share of a random one added. l1: the same, but the set
    gives up all. A set has 80 % of the coordinates at first, and half as many each time after
    0.1, 0.5, 2, 5, 10, 20, 40, 60, 80 % of the `steps` trials. A point leaves once it is broken.
    Where this breaks points that gradient attacks did not, do not believe the gradients.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `steps`: trials for each point, at least 1; 5000 by default.
    - `generator`: a `torch.Generator`, the source of all random draws.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    check_ball(ball)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    _check.integer("batch", batch, minimum=1)
    twin = surrogate_network(net, x)
    x_adv = torch.empty_like(x)
    with Bar("random search", len(x), progress) as bar, torch.no_grad():
        for rows in batches(len(x), batch):
            part, inner = x[rows], ball.take(rows)
            best = _search(twin, part, y[rows], inner, steps, generator)
            x_adv[rows] = inner.land(best, part)
            bar.done(rows.stop)
    return verified(net, x, y, x_adv, ball, "random-search")


def _search(
    net: nn.Module, x: Tensor, y: Tensor, ball: Ball, steps: int, g: torch.Generator
) -> Tensor:
    """The perturbations (n, dim) of least margin that the search meets."""
    best, lowest = torch.zeros_like(x), margin(net, x, y)
    enough = stopping_margin(lowest)
    for step in range(steps):
        rows = torch.nonzero(lowest > enough).squeeze(1)
        if len(rows) == 0:
            break
        part, inner = x[rows], ball.take(rows)
        share = _FIRST_SHARE * 0.5 ** sum(step > at * steps for at in _HALVED)
        trial = _changed(best[rows], inner, part, share, g)
        value = margin(net, part + trial, y[rows])
        # On a plateau of margin 0 it wanders on, away from the edge, where rounding would undo it.
        better = (value < lowest[rows]) | ((value == lowest[rows]) & (value <= 0))
        lowest[rows[better]] = value[better]
        best[rows[better]] = trial[better]
    return best


def _changed(delta: Tensor, ball: Ball, x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """Perturbations with a random set of coordinates changed, in the ball and the box."""
    radius = ball.radii(x).to(x.dtype).unsqueeze(1)
    taking = _some(x, share, g)
    if ball.norm == "linf":
        return ball.project(torch.where(taking, radius * _signs(x, g), delta), x)
    order = ORDERS[ball.norm]
    giving = _some(x, share, g) & ~taking
    old = torch.where(taking, delta, 0.0)
    fresh = torch.where(taking, _spikes(x, g), 0.0)
    direction = _unit(_unit(old, order) + _share(x, g) * _unit(fresh, order), order)
    left = _share(x, g) if ball.norm == "l2" else torch.zeros_like(radius)  # l1 wants few
    kept = torch.where(taking, 0.0, torch.where(giving, left * delta, delta))
    rest = (radius**order - _size(kept, order) ** order).clamp(min=0.0) ** (1.0 / order)
    return ball.project(kept + rest * direction, x)


def _some(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """A random set of coordinates of each point, (n, dim) bool, never empty."""
    drawn = torch.rand(x.shape, generator=g, device=g.device) < share
    one = torch.randint(x.shape[1], (len(x), 1), generator=g, device=g.device)
    return drawn.scatter_(1, one, True).to(x.device)


def _signs(x: Tensor, g: torch.Generator) -> Tensor:
    heads = torch.randint(2, x.shape, generator=g, device=g.device)
    return (2 * heads - 1).to(x)


def _spikes(x: Tensor, g: torch.Generator) -> Tensor:
    """Random signs of sizes that differ much, so that few coordinates may have most of the mass."""
    return torch.randn(x.shape, generator=g, device=g.device, dtype=torch.float64).to(x) ** 3


def _share(x: Tensor, g: torch.Generator) -> Tensor:
    return torch.rand(len(x), 1, generator=g, device=g.device, dtype=torch.float64).to(x)


def _size(delta: Tensor, order: float) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(delta, order, dim=1, keepdim=True)
    return size


def _unit(delta: Tensor, order: float) -> Tensor:
    size = _size(delta, order)
    return delta / torch.where(size > 0, size, 1.0)
