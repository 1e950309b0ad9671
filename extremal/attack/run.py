"""Everything this package knows against a network: at one radius, and for the smallest radius."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack.apgd import apgd
from extremal.attack.ball import Ball
from extremal.attack.boundary import boundary
from extremal.attack.directions import structured
from extremal.attack.linear import linear_steps
from extremal.attack.pgd import pgd
from extremal.attack.random_search import random_search
from extremal.attack.recheck import BATCH, check_points, verified
from extremal.attack.result import CLEAN, AttackResult
from extremal.attack.shortest import shortest
from extremal.data import OrthonormalMixture
from extremal.models import is_shallow

Box = tuple[float, float] | tuple[Tensor, Tensor]
Part = Callable[[Tensor, Tensor, Ball, Tensor], AttackResult]

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
    mixture: OrthonormalMixture | None = None,
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
    random search without gradients; `steps` is the budget of each. An attack meets only the points
    that the ones before it left standing. Every result is verified in float64, and says which
    attack found it.
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
    with Bar("attack", len(parts), progress) as bar:
        for done, part in enumerate(parts, 1):
            rows = torch.nonzero(~result.success).squeeze(1)
            if len(rows) == 0:
                break
            result = result.merged(rows, part(x[rows], y[rows], ball.take(rows), rows))
            bar.done(done)
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
    `shortest`; against any other network `boundary`, toward each likely class.
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
    net: nn.Module, mixture: OrthonormalMixture | None, group: Tensor | None, batch: int
) -> Iterator[Part]:
    """The attacks on a network whose neurons can be seen."""
    if mixture is not None:
        yield _closed_forms(net, mixture, group, batch)
    yield lambda x, y, ball, _: linear_steps(net, x, y, ball=ball, batch=batch)


def _general_parts(
    net: nn.Module,
    mixture: OrthonormalMixture | None,
    group: Tensor | None,
    steps: int,
    batch: int,
    generator: torch.Generator,
) -> Iterator[Part]:
    """The attacks on a network of which only outputs and gradients are known."""
    if mixture is not None:
        yield _closed_forms(net, mixture, group, batch)

    def descend(start: str) -> Part:
        return lambda x, y, ball, _: pgd(
            net,
            x,
            y,
            ball=ball,
            steps=steps,
            step=_TRAVEL / steps * ball.radii(x),
            start=start,
            generator=generator,
            batch=batch,
        )

    def ascend(objective: str, targets: int) -> Part:
        return lambda x, y, ball, _: apgd(
            net,
            x,
            y,
            ball=ball,
            objective=objective,
            targets=targets,
            steps=steps,
            generator=generator,
            batch=batch,
        )

    yield descend("zero")
    yield descend("random")
    yield ascend("margin", 0)
    yield ascend("dlr", _TARGETS)
    queries = _QUERIES * steps
    yield lambda x, y, ball, _: random_search(
        net, x, y, ball=ball, steps=queries, generator=generator, batch=batch
    )


def _closed_forms(
    net: nn.Module, mixture: OrthonormalMixture, group: Tensor | None, batch: int
) -> Part:
    def attack(x: Tensor, y: Tensor, ball: Ball, rows: Tensor) -> AttackResult:
        own = None if group is None else group[rows.to(group.device)]
        return structured(net, x, y, mixture, own, ball, batch=batch)

    return attack


def _check_mixture(mixture: object, group: object, x: Tensor) -> None:
    known = mixture is None or isinstance(mixture, OrthonormalMixture)
    _check.require(known, "mixture", "be an OrthonormalMixture or None", type(mixture).__name__)
    alone = group is None or mixture is not None
    _check.require(alone, "group", "come with the mixture it belongs to", "no mixture")
    counted = group is None or (isinstance(group, Tensor) and group.shape == x.shape[:1])
    _check.require(counted, "group", f"have one entry for each of {len(x)} points", group)
