"""Everything this package knows against a network: at one radius, and for the smallest radius.

Robust accuracy as a function of the radius.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import BATCH, CLEAN, AttackResult, check_points, verified
from extremal.attack.auto_pgd import apgd
from extremal.attack.ball import NORMS, Ball
from extremal.attack.fab import boundary
from extremal.attack.gradient_free_search import random_search
from extremal.attack.mixture_rays import known_clusters, mixture_attack, two_classes
from extremal.attack.projected_gradient_descent import pgd, published_pgd
from extremal.attack.two_layer.frank_wolfe import linear_steps
from extremal.attack.two_layer.minimal_perturbation import shortest
from extremal.data import Box, Dataset, GaussianClusters
from extremal.models import is_shallow

Attack = Callable[[nn.Module, Dataset, Ball, torch.Generator], AttackResult]
"""Whatever attacks a data set within a ball."""


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """Robust accuracy at each radius: the share of points whose smallest found radius is larger."""

    norm: str  # of the balls: "l1", "l2" or "linf"
    radii: Tensor  # (m,) float64, as asked for
    accuracy: Tensor  # (m,) float64
    radius: Tensor  # (n,) float64: smallest radius found for each point, inf where none


def everything(
    net: nn.Module, data: Dataset, ball: Ball, generator: torch.Generator
) -> AttackResult:
    """`run` on a data set, with the closed forms where the data's source is a mixture.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `data`: a `Dataset`; its points are attacked, and its own box is not used.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; the data must lie in the box.
    - `generator`: a `torch.Generator`, the source of all random draws; unused against a `PReLUNet`.
    """
    mixture = known_clusters(data)
    group = data.group if mixture is not None else None
    return run(
        net,
        data.x,
        data.y,
        norm=ball.norm,
        radius=ball.radius,
        box=ball.box,
        mixture=mixture,
        group=group,
        generator=generator,
    )


def published(
    net: nn.Module, data: Dataset, ball: Ball, generator: torch.Generator
) -> AttackResult:
    """`published_pgd` on a data set: l2 without a box.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `data`: a `Dataset`; its points are attacked, and its own box is not used.
    - `ball`: a `Ball` in l2 without a box; any other is a ValueError.
    - `generator`: not used, since the attack draws nothing; any value is taken.
    """
    _check.require(ball.norm == "l2", "norm", "be 'l2' for the published attack", ball.norm)
    _check.require(ball.box is None, "box", "be None for the published attack", ball.box)
    return published_pgd(net, data.x, data.y, radius=ball.radius)


def accuracy_curve(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    norm: str = "l2",
    attack: Attack = everything,
    generator: torch.Generator,
) -> AccuracyCurve:
    """Attack `data` within its box at each radius, and count what stands.

    Radii are taken in ascending order, and a point broken at one is not attacked at a larger one,
    so that the accuracy never rises. A point found broken by less than the radius it was attacked
    with counts as broken at the radii between, too.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `data`: a `Dataset`; its points are attacked, and stay in its box if it has one.
    - `radii`: one or more numbers, at least 0, in any order; the result keeps that order.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `attack`: function of (net, data, ball, generator) that returns an `AttackResult`:
      `everything` (the default), `published` or your own.
    - `generator`: a `torch.Generator`, handed to `attack` at every radius.
    """
    _check.choice("norm", norm, NORMS)
    _check.generator("generator", generator)
    _check.module("net", net)
    _check.instance("data", data, Dataset, "be a Dataset")
    _check.instance("radii", radii, Iterable, "be a sequence of numbers")
    wanted = [_check.number("radii", radius, minimum=0.0) for radius in radii]
    _check.require(len(wanted) > 0, "radii", "hold at least one number", radii)
    broken_at = torch.full((len(data),), torch.inf, dtype=torch.float64, device=data.x.device)
    for radius in sorted(set(wanted)):
        rows = torch.nonzero(torch.isinf(broken_at)).squeeze(1)
        if len(rows) == 0:
            break
        result = attack(net, data.take(rows), Ball(norm, radius, data.box), generator)
        # The re-check's slack may leave a norm above the radius by a share of 1e-5.
        found = result.radius.clamp(max=radius)
        broken_at[rows] = torch.where(result.success, found, torch.inf)
    asked = torch.tensor(wanted, dtype=torch.float64, device=broken_at.device)
    accuracy = (broken_at > asked.unsqueeze(1)).double().mean(1)
    return AccuracyCurve(norm, asked, accuracy, broken_at)


# Of points, labels, ball, their places among all points, and whom to tell of progress.
AttackStep = Callable[[Tensor, Tensor, Ball, Tensor, Progress], AttackResult]

# The length of all of PGD's steps together, in radii. From zero at radius 0.9, 100 steps left 99 %
# of 1000 samples standing on F^(3) with 2.5, 49 % with 10.
_TRAVEL = 10.0
_TARGETS = 9  # wrong classes that APGD and the boundary search are driven toward, at most
_QUERIES = 10  # of the random search, for each step of the others


def run(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    radius: float | Tensor,
    box: Box | None = None,
    steps: int = 100,
    mixture: GaussianClusters | None = None,
    group: Tensor | None = None,
    generator: torch.Generator,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack each point of x (n, dim) within `radius` and keep the worst that is found.

    Against a `PReLUNet` (or a `Grouped` one): full linear steps with neuron-directed starts, and
    where the data's `mixture` is given the closed-form directions (with `group`, the subclasses,
    both families; without it d_0 alone). Against any other network: PGD from zero and from a random
    start, APGD on the margin, APGD toward each likely class on the scale-invariant loss, and a
    random search without gradients. An attack meets only the points that the ones before it left
    standing. Every result is verified in float64, and says which attack found it.

    `steps` is the budget of an attack on any other network: steps of PGD, and of APGD toward each
    class; ten times as many trials of the random search. Full linear steps and closed forms have no
    budget, and do not look at it. `batch` is the number of points at a time. Progress counts points
    and attacks.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `radius`: of the ball, at least 0; one number or one a point (n,).
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `mixture`: `GaussianClusters` with both classes -1 and +1, or None where it is not known.
    - `group`: each point's cluster in `mixture`, integers (n,) in 0..K-1, or None; needs `mixture`.
    - `generator`: a `torch.Generator`, the source of all random draws; unused against a `PReLUNet`.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    _check_mixture(mixture, group, x)
    ball = Ball(norm, radius, box)
    result = verified(net, x, y, x, ball, CLEAN)
    known = is_shallow(net)
    parts = list(
        _shallow_parts(net, mixture, group, batch)
        if known
        else _general_parts(net, mixture, group, steps, batch, generator)
    )
    with Bar("attack", len(parts) * len(x), progress) as bar:
        for turn, part in enumerate(parts, 1):
            rows = torch.nonzero(~result.success).squeeze(1)
            if len(rows) > 0:
                told = functools.partial(_told, bar, turn * len(x) - len(rows))
                found = part(x[rows], y[rows], ball.take(rows), rows, told)
                result = result.merged(rows, found)
            bar.done(turn * len(x))
    return result


def minimal(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    steps: int = 100,
    generator: torch.Generator,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """The smallest radius found at which each point of x (n, dim) breaks; inf where none was.

    One pass gives the whole robust-accuracy curve. Against a `PReLUNet` (or a `Grouped` one)
    `shortest`, which has no budget and does not look at `steps`; against any other network
    `boundary` with `steps` steps toward each likely class. `batch` is the number of points at a
    time.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `generator`: a `torch.Generator`, the source of all random draws; unused against a `PReLUNet`.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    if is_shallow(net):
        return shortest(net, x, y, norm=norm, box=box, batch=batch, progress=progress)
    return boundary(
        net,
        x,
        y,
        norm=norm,
        box=box,
        steps=steps,
        targets=_TARGETS,
        generator=generator,
        batch=batch,
        progress=progress,
    )


def _shallow_parts(
    net: nn.Module, mixture: GaussianClusters | None, group: Tensor | None, batch: int
) -> Iterator[AttackStep]:
    """The attacks on a network whose neurons can be seen."""
    if mixture is not None:
        yield _closed_forms(net, mixture, group, batch)
    yield lambda x, y, ball, _, told: linear_steps(net, x, y, ball=ball, batch=batch, progress=told)


def _general_parts(
    net: nn.Module,
    mixture: GaussianClusters | None,
    group: Tensor | None,
    steps: int,
    batch: int,
    generator: torch.Generator,
) -> Iterator[AttackStep]:
    """The attacks on a network of which only outputs and gradients are known."""
    if mixture is not None:
        yield _closed_forms(net, mixture, group, batch)

    def descend(start: str) -> AttackStep:
        return lambda x, y, ball, _, told: pgd(
            net,
            x,
            y,
            ball=ball,
            steps=steps,
            step=_TRAVEL / steps * ball.radii(x),
            start=start,
            generator=generator,
            batch=batch,
            progress=told,
        )

    def ascend(objective: str, targets: int) -> AttackStep:
        return lambda x, y, ball, _, told: apgd(
            net,
            x,
            y,
            ball=ball,
            objective=objective,
            targets=targets,
            steps=steps,
            generator=generator,
            batch=batch,
            progress=told,
        )

    yield descend("zero")
    yield descend("random")
    yield ascend("margin", 0)
    yield ascend("dlr", _TARGETS)
    queries = _QUERIES * steps
    yield lambda x, y, ball, _, told: random_search(
        net, x, y, ball=ball, steps=queries, generator=generator, batch=batch, progress=told
    )


def _closed_forms(
    net: nn.Module, mixture: GaussianClusters, group: Tensor | None, batch: int
) -> AttackStep:
    def attack(x: Tensor, y: Tensor, ball: Ball, rows: Tensor, _: Progress) -> AttackResult:
        own = None if group is None else group[rows.to(group.device)]
        return mixture_attack(net, x, y, mixture, own, ball, batch=batch)

    return attack


def _told(bar: Bar, before: int, what: str, done: int, total: int) -> None:
    """An attack's word on its points, `before` of which others had done."""
    bar.done(before + done, what)


def _check_mixture(mixture: object, group: object, x: Tensor) -> None:
    known = mixture is None or two_classes(mixture)
    _check.require(known, "mixture", "be GaussianClusters of classes -1 and +1, or None", mixture)
    alone = group is None or mixture is not None
    _check.require(alone, "group", "come with the mixture it belongs to", "no mixture")
    counted = group is None or (isinstance(group, Tensor) and group.shape == x.shape[:1])
    _check.require(counted, "group", f"have one entry for each of {len(x)} points", group)
