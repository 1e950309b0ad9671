"""Random search: an attack that sees outputs alone, and no gradient that could be masked."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import NORM_ORDERS
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    attack_in_batches,
    check_attack,
)
from extremal.attack.ball import Ball, PreparedBall
from extremal.attack.surrogate import stopping_margin, surrogate_network
from extremal.models import margin

# The first trials change this share of the coordinates.
_FIRST_CHANGED_SHARE = 0.8
# The share of coordinates that a trial changes is halved after each of these shares of the trials,
# as in the Square Attack.
_HALVED_AFTER_SHARES = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


def random_search(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    steps: int = 5000,
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
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
    y = check_attack(net, x, y, ball, batch)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    twin = surrogate_network(net, x)

    def search(rows: slice) -> Tensor:
        with torch.no_grad():
            return _search(twin, x[rows], y[rows], ball.take(rows), steps, generator)

    bar = Bar("random search", len(x), progress)
    return attack_in_batches(search, net, x, y, ball, "random-search", batch, bar)


def _search(
    net: nn.Module, x: Tensor, y: Tensor, ball: Ball, steps: int, g: torch.Generator
) -> Tensor:
    """The perturbations (n, dim) of least margin that the search meets."""
    clean = margin(net, x, y)
    best = BestPerturbations.begin(torch.zeros_like(x), stopping_margin(clean), clean)
    rows = torch.arange(len(x), device=x.device)
    part, labels, inner = x, y, ball.around(x)
    for step in range(steps):
        standing = best.standing(rows)
        if not bool(standing.all()):
            rows = rows[standing]
            if len(rows) == 0:
                break
            part, labels, inner = x[rows], y[rows], ball.take(rows).around(x[rows])
        share = _FIRST_CHANGED_SHARE * 0.5 ** sum(step > at * steps for at in _HALVED_AFTER_SHARES)
        trial = _changed(best.delta[rows], inner, part, share, g)
        value = margin(net, part + trial, labels)
        # On a plateau of margin 0 it wanders on, away from the edge, where rounding would undo it.
        best.note_lower(rows, value, trial, ties=value <= 0)
    return best.delta


def _changed(
    delta: Tensor, ball: PreparedBall, x: Tensor, share: float, g: torch.Generator
) -> Tensor:
    """Perturbations with a random set of coordinates changed, in the ball and the box."""
    radius = ball.radius.to(x.dtype)
    taking = _random_set(x, share, g)
    if ball.norm == "linf":
        return ball.project(torch.where(taking, radius * _random_signs(x, g), delta))
    order = NORM_ORDERS[ball.norm]
    giving = _random_set(x, share, g) & ~taking
    old = torch.where(taking, delta, 0.0)
    fresh = torch.where(taking, _heavy_tailed_signs(x, g), 0.0)
    direction = _unit(_unit(old, order) + _random_share(x, g) * _unit(fresh, order), order)
    left = _random_share(x, g) if ball.norm == "l2" else torch.zeros_like(radius)  # l1 wants few
    kept = torch.where(taking, 0.0, torch.where(giving, left * delta, delta))
    rest = (radius**order - _size(kept, order) ** order).clamp(min=0.0) ** (1.0 / order)
    return ball.project(kept + rest * direction)


def _random_set(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """A random set of coordinates of each point, (n, dim) bool, never empty."""
    drawn = torch.rand(x.shape, generator=g, device=g.device) < share
    one = torch.randint(x.shape[1], (len(x), 1), generator=g, device=g.device)
    return drawn.scatter_(1, one, True).to(x.device)


def _random_signs(x: Tensor, g: torch.Generator) -> Tensor:
    heads = torch.randint(2, x.shape, generator=g, device=g.device)
    return (2 * heads - 1).to(x)


def _heavy_tailed_signs(x: Tensor, g: torch.Generator) -> Tensor:
    """Random signs of sizes that differ much, so that few coordinates may have most of the mass."""
    return torch.randn(x.shape, generator=g, device=g.device, dtype=torch.float64).to(x) ** 3


def _random_share(x: Tensor, g: torch.Generator) -> Tensor:
    return torch.rand(len(x), 1, generator=g, device=g.device, dtype=torch.float64).to(x)


def _size(delta: Tensor, order: float) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(delta, order, dim=1, keepdim=True)
    return size


def _unit(delta: Tensor, order: float) -> Tensor:
    size = _size(delta, order)
    return delta / torch.where(size > 0, size, 1.0)
