"""All attacks together: at one radius, for the smallest radius, and as a curve over radii."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    CLEAN_NAME,
    AttackResult,
    check_points,
    verified,
)
from extremal.attack.auto_pgd import apgd
from extremal.attack.ball import NORMS, Ball
from extremal.attack.fab import boundary
from extremal.attack.gradient_free_search import random_search
from extremal.attack.mixture_rays import (
    known_clusters,
    mixture_attack,
    shortened_along_rays,
    two_classes,
)
from extremal.attack.projected_gradient_descent import pgd
from extremal.attack.two_layer.frank_wolfe import linear_steps
from extremal.attack.two_layer.minimal_perturbation import (
    shortest,
    shortest_within,
    solves_convex_problems,
)
from extremal.data import Box, Dataset, GaussianClusters
from extremal.models import is_shallow

Attack = Callable[[nn.Module, Dataset, Ball, torch.Generator], AttackResult]
"""Whatever attacks a data set within a ball."""

# An attack of `run`: a function of (net, x, y, ball=, batch=, progress=) and its other arguments,
# of which tensors (n,) hold one value for each point.
AttackStep = tuple[Callable[..., AttackResult], dict[str, Any]]

# The steps of PGD are together this many radii long. From zero at radius 0.9, 100 steps left 99 %
# of 1000 samples standing on F^(3) with 2.5, 49 % with 10.
_PGD_TRAVEL_RADII = 10.0
# APGD and the boundary search are driven toward at most so many wrong classes.
_MOST_TARGETS = 9
# The random search makes so many trials for each step of the other attacks.
_QUERIES_PER_STEP = 10


@dataclass(frozen=True, eq=False)
class AccuracyCurve:
    """Robust accuracy at each radius: the share of points whose smallest found radius is larger."""

    norm: str  # of the balls: "l1", "l2" or "linf"
    radii: Tensor  # (m,) float64, as asked for
    accuracy: Tensor  # (m,) float64
    radius: Tensor  # (n,) float64: smallest radius found for each point, inf where none


def accuracy_curve(
    net: nn.Module,
    data: Dataset,
    radii: Sequence[float],
    *,
    norm: str = "l2",
    attack: Attack | None = None,
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
    - `attack`: function of (net, data, ball, generator) that returns an `AttackResult`; None (the
      default) for `run`, with the closed forms where the data's source is a mixture.
    - `generator`: a `torch.Generator`, handed to `attack` at every radius.
    """
    _check.choice("norm", norm, NORMS)
    _check.generator("generator", generator)
    _check.module("net", net)
    _check.instance("data", data, Dataset, "be a Dataset")
    _check.instance("radii", radii, Iterable, "be a sequence of numbers")
    wanted = [_check.number("radii", radius, minimum=0.0) for radius in radii]
    _check.require(len(wanted) > 0, "radii", "hold at least one number", radii)
    attack = _attack_by_all if attack is None else attack
    broken_at = torch.full((len(data),), torch.inf, dtype=torch.float64, device=data.x.device)
    for radius in sorted(set(wanted)):
        rows = torch.nonzero(torch.isinf(broken_at)).squeeze(1)
        if len(rows) == 0:
            break
        result = attack(net, data.take(rows), Ball(norm, radius, data.box), generator)
        rule = "return an AttackResult, as ex.attack.verified(net, x, y, points, ball, name) does"
        _check.instance("attack", result, AttackResult, rule)
        # The re-check's slack may leave a norm above the radius by a share of 1e-5.
        found = result.radius.clamp(max=radius)
        broken_at[rows] = torch.where(result.success, found, torch.inf)
    asked = torch.tensor(wanted, dtype=torch.float64, device=broken_at.device)
    accuracy = (broken_at > asked.unsqueeze(1)).double().mean(1)
    return AccuracyCurve(norm, asked, accuracy, broken_at)


def _attack_by_all(
    net: nn.Module, data: Dataset, ball: Ball, generator: torch.Generator
) -> AttackResult:
    """`run` on a data set, with the closed forms where the data's source is a mixture."""
    mixture = known_clusters(data)
    return run(
        net,
        data.x,
        data.y,
        norm=ball.norm,
        radius=ball.radius,
        box=ball.box,
        mixture=mixture,
        group=data.group if mixture is not None else None,
        generator=generator,
    )


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
    smallest: bool = True,
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack each point of x (n, dim) within `radius` and keep the worst that is found.

    Against a `PReLUNet` (or a `Grouped` one): full linear steps with neuron-directed starts, where
    neurons and coordinates are few the smallest perturbations of `shortest` as well (of 16 points
    first, and of the others if one of those is broken), and where the data's `mixture` is given the
    closed-form directions (with `group`, the subclasses, both families; without it d_0 alone).
    Against any other network: PGD from zero and from a random start, APGD on the margin, APGD
    toward each likely class on the scale-invariant loss, and a random search without gradients. An
    attack meets only the points that the ones before it left standing. Every result is verified in
    float64, and says which attack found it.

    Progress counts points and attacks.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `radius`: of the ball, at least 0; one number or one a point (n,).
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `steps`: of PGD, and of APGD toward each class, 100 by default, with ten times as many trials
      of the random search; full linear steps and closed forms have no budget, and do not look at
      it.
    - `mixture`: `GaussianClusters` with both classes -1 and +1, or None where it is not known.
    - `group`: each point's cluster in `mixture`, integers (n,) in 0..K-1, or None; needs `mixture`.
    - `smallest`: False leaves out `shortest`, as where `minimal` was asked for these points before.
    - `generator`: a `torch.Generator`, the source of all random draws; unused against a `PReLUNet`.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    _check_mixture(mixture, group, x)
    ball = Ball(norm, radius, box)
    if is_shallow(net):
        known = smallest and solves_convex_problems(net, x, y, ball)
        table: list[AttackStep] = [(linear_steps, {}), *[(shortest_within, {})] * known]
    else:
        table = _general_steps(x, ball, steps, generator)
    if mixture is not None:
        table = [(_closed_forms, {"mixture": mixture, "group": group}), *table]
    return _attack_in_turn(net, x, y, ball, table, batch, progress)


def minimal(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    steps: int = 100,
    mixture: GaussianClusters | None = None,
    group: Tensor | None = None,
    rays: Sequence[Tensor] = (),
    generator: torch.Generator,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """The smallest radius found at which each point of x (n, dim) breaks; inf where none was.

    One pass gives the whole robust-accuracy curve. Against a `PReLUNet` (or a `Grouped` one)
    `shortest`; against any other network `boundary` toward each likely class. Where the points are
    from a `mixture`, the rays between its centres are searched as well, ever more finely: for
    p >= 5 gradients toward far neurons vanish so fast that attacks which follow them end where
    several opposing centres share the way, up to a quarter too far.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is attacked.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `steps`: of `boundary` toward each likely class, 100 by default; `shortest` has no budget and
      does not look at it.
    - `mixture`: `GaussianClusters` with both classes -1 and +1, or None where it is not known.
    - `group`: each point's cluster in `mixture`, integers (n,) in 0..K-1; without it the only ray
      is the one along the classes' averages.
    - `rays`: more directions (n, dim) to search, such as what broke another network.
    - `generator`: a `torch.Generator`, the source of all random draws; unused against a `PReLUNet`.
    - `batch`: points attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    _check.integer("steps", steps, minimum=1)
    _check.generator("generator", generator)
    _check_mixture(mixture, group, x)
    shared: dict[str, Any] = {"norm": norm, "box": box, "batch": batch, "progress": progress}
    if is_shallow(net):
        found = shortest(net, x, y, **shared)
    else:
        targets = _MOST_TARGETS
        found = boundary(net, x, y, steps=steps, targets=targets, generator=generator, **shared)
    if mixture is None and not rays:
        return found
    known: dict[str, Any] = {"mixture": mixture, "group": group, "norm": norm, "box": box}
    return shortened_along_rays(net, x, y, found, rays, batch=batch, **known)


def _general_steps(
    x: Tensor, ball: Ball, steps: int, generator: torch.Generator
) -> list[AttackStep]:
    """The attacks on a network of which only outputs and gradients are known."""
    shared = {"steps": steps, "generator": generator}
    descent = {**shared, "step": _PGD_TRAVEL_RADII / steps * ball.radii(x)}
    return [
        (pgd, {**descent, "start": "zero"}),
        (pgd, {**descent, "start": "random"}),
        (apgd, {**shared, "objective": "margin"}),
        (apgd, {**shared, "objective": "dlr", "targets": _MOST_TARGETS}),
        (random_search, {**shared, "steps": _QUERIES_PER_STEP * steps}),
    ]


def _closed_forms(
    net: nn.Module, x: Tensor, y: Tensor, *, progress: Progress, **settings: Any
) -> AttackResult:
    """`mixture_attack`, which is so fast that it tells nobody of its progress."""
    return mixture_attack(net, x, y, **settings)


def _attack_in_turn(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    table: list[AttackStep],
    batch: int,
    progress: bool | Progress,
) -> AttackResult:
    """Each attack of the table on the points that the ones before it left standing."""
    result = verified(net, x, y, x, ball, CLEAN_NAME)
    with Bar("attack", len(table) * len(x), progress) as bar:
        for turn, (attack, settings) in enumerate(table, 1):
            rows = torch.nonzero(~result.success).squeeze(1)
            if len(rows) > 0:
                found = attack(
                    net,
                    x[rows],
                    y[rows],
                    ball=ball.take(rows),
                    batch=batch,
                    progress=_tell_bar(bar, turn * len(x) - len(rows)),
                    **{
                        name: value[rows.to(value.device)] if isinstance(value, Tensor) else value
                        for name, value in settings.items()
                    },
                )
                result = result.merged(rows, found)
            bar.done(turn * len(x))
    return result


def _tell_bar(bar: Bar, before: int) -> Progress:
    """What an attack says of its points, added to the `before` that were done by others."""
    return lambda what, done, _: bar.done(before + done, what)


def _check_mixture(mixture: object, group: object, x: Tensor) -> None:
    known = mixture is None or two_classes(mixture)
    _check.require(known, "mixture", "be GaussianClusters of classes -1 and +1, or None", mixture)
    alone = group is None or mixture is not None
    _check.require(alone, "group", "come with the mixture it belongs to", "no mixture")
    counted = group is None or (isinstance(group, Tensor) and group.shape == x.shape[:1])
    _check.require(counted, "group", f"have one entry for each of {len(x)} points", group)
