"""The smallest radius at which a shallow network breaks, point by point: a whole curve at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import batches
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    NORM_SLACK_SHARE,
    AttackResult,
    BestPerturbations,
    check_points,
    verified,
)
from extremal.attack.ball import Ball
from extremal.attack.surrogate import COARSE_TOLERANCE, ReducedProblem, reduced_problem
from extremal.attack.two_layer.convex_concave import (
    MOST_COORDINATES,
    convex_concave_search,
    small_enough,
)
from extremal.attack.two_layer.extra_starts import (
    center_distance,
    newton_to_silence,
    projected_to_silence,
    scatter,
)
from extremal.attack.two_layer.frank_wolfe import (
    attack_in_phases,
    check_shallow,
    directed_starts,
    frank_wolfe,
)
from extremal.attack.two_layer.linearised_boundary import (
    at_radii,
    bisect,
    linearised_step,
    no_perturbations,
    note_smallest,
    tightened,
)
from extremal.data import Box

# The rounds of linearised steps: how many targets are kept (None: all), and how many steps are
# made toward each.
TARGETS_KEPT_AND_STEPS = ((None, 2), (4, 4), (2, 10))
# The polish searches at these shares of the radius found.
POLISH_RADIUS_SHARES = (0.9, 0.97, 0.99)
# The polish makes so many full linear steps at each radius.
POLISH_LINEAR_STEPS = 3
# The polish ends with so many linearised steps.
POLISH_LINEARISED_STEPS = 4
# A perturbation that the re-check on the network itself does not take as broken is made longer by
# the first of these factors that is enough.
RECHECK_LENGTHENING_FACTORS = (1.00001, 1.0001, 1.0003, 1.001, 1.003, 1.01, 1.03)
# Where tightening made a perturbation longer by this share, the one that was searched is tried too:
# near silent neurons margins are so flat that tightening may go far beyond.
CLEARLY_LONGER_SHARE = 1e-3
# The second search for perturbations, from other starts, is made at this share of the radius found.
SECOND_SEARCH_RADIUS_SHARE = 0.97
# The third search for perturbations, where neurons are few, is made at this share of the radius
# found.
THIRD_SEARCH_RADIUS_SHARE = 0.997
# Networks of at most this many neurons, in so many coordinates that no convex problems are solved,
# are searched from more starts, since each costs little.
MOST_NEURONS_OF_EXTRA_SEARCHES = 64
# At a given radius so many points are searched for their smallest perturbations at first.
FIRST_POINTS_WITHIN = 16
# So many full linear steps are made from each start toward opposing neurons.
SHORT_DIRECTED_STEPS = 2
# The first radius at which points are attacked of which nothing was found, as a share of the
# median radius of the others.
FIRST_FAR_RADIUS_SHARE = 0.25
# The radius at which points are attacked of which nothing was found is doubled so often.
RADIUS_DOUBLINGS = 8
# More points are taken at a time where neurons and coordinates together are fewer than this.
SMALL_PROBLEM_SIZE = 64


def shortest(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """The smallest perturbation found that breaks each point of a `PReLUNet`, or a `Grouped` one.

    d <- argmin of ||d'|| over d' in the box with linearised f_t - f_own >= 0, for all targets t at
    first and then the ones that need least; then from starts toward opposing neurons; then full
    linear steps just under the radius found, as long as they succeed. Where neurons and coordinates
    are few (at most 64 coordinates, and neurons times coordinates squared at most 2^22; in l2
    without a box coordinates are those of the neurons' span) the convex-concave procedure follows,
    from many starts: of more than 64 points, or 16 where they are much work, on so many at first,
    and on the others only if one of those got shorter by .3 %. Last come linearised steps on the
    network itself. Deterministic. Any other network is a ValueError.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one; it is not changed.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: of the perturbations: "l1", "l2" (the default) or "linf".
    - `box`: (low, high), numbers or (dim,) tensors, that `x` and the result lie in; None for none.
    - `batch`: points attacked at a time, 1024 by default; where it is not less than that, it grows
      if only a few neurons matter.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    check_shallow(net)
    _check.integer("batch", batch, minimum=1)
    ball = Ball(norm, 0.0, box)

    def attack(
        rows: Tensor | slice,
        tolerance: float,
        dtype: torch.dtype,
        tell: Callable[[int], object] | None,
    ) -> tuple[AttackResult, Tensor]:
        """The result for the chosen points, and where the search itself broke them."""
        part, labels = x[rows], y[rows]
        task = reduced_problem(net, part.to(dtype), labels, ball, tolerance=tolerance)
        best = _searched(task, batch, tell)
        return _verified_on_network(net, part, labels, task, best, batch), best.size.isfinite()

    with Bar("shortest", len(x), progress) as bar:
        result, broken = attack(slice(None), COARSE_TOLERANCE, x.dtype, bar.done)
    # What float32 takes for broken, and the re-check does not, float64 looks at again.
    return result.retried(lambda rows: attack(rows, 0.0, torch.float64, None)[0], broken)


def solves_convex_problems(net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> bool:
    """Whether `shortest` solves convex problems around points x in their own coordinates.

    It then finds perturbations that full linear steps at one radius miss.
    """
    if x.shape[1] > MOST_COORDINATES:
        return False
    task = reduced_problem(net, x[:1], y[:1], ball.take(slice(1)), tolerance=COARSE_TOLERANCE)
    return small_enough(len(task.form.directions), task.x.shape[1])


def shortest_within(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """The perturbations of `shortest` that lie within the ball.

    Of many points a few are searched first, and the others only if one of those is broken.
    """
    given: dict[str, Any] = {"norm": ball.norm, "box": ball.box, "batch": batch}
    count, radii, x_adv = len(x), ball.radii(x), x.clone()
    first = torch.linspace(0, count - 1, min(count, FIRST_POINTS_WITHIN)).round().long()
    others = torch.ones(count, dtype=torch.bool)
    others[first] = False
    with Bar("shortest", count, progress) as bar:
        for rows in (first, others.nonzero().squeeze(1)):
            if len(rows) == 0:
                break
            before = 0 if rows is first else len(first)
            found = shortest(net, x[rows], y[rows], progress=_after(bar, before), **given)
            near = found.radius <= radii[rows]
            x_adv[rows[near.to(rows.device)]] = found.x_adv[near]
            if not bool(near.any()):
                break
        bar.done(count)
    return verified(net, x, y, x_adv, ball, "shortest")


def _after(bar: Bar, before: int) -> Progress:
    """What a search tells of its points, after the `before` that others have done."""
    return lambda what, done, _: bar.done(before + done)


def _searched(
    task: ReducedProblem, batch: int, tell: Callable[[int], object] | None
) -> BestPerturbations:
    """The smallest perturbations found in the task's coordinates."""
    best = no_perturbations(task, task.broken_below())
    more = max(1, SMALL_PROBLEM_SIZE // task.widest) if batch >= ATTACK_BATCH_POINTS else 1
    neurons = len(task.form.directions)
    small = small_enough(neurons, task.x.shape[1])
    for at in batches(len(task), more * batch):
        rows = torch.arange(at.start, at.stop, device=task.x.device)
        _linearised(task, best, rows)
        newton_to_silence(task, best, rows)
        _directed(task, best, rows, SECOND_SEARCH_RADIUS_SHARE)
        _polish(task, best, rows)
        if not small and neurons <= MOST_NEURONS_OF_EXTRA_SEARCHES:
            projected_to_silence(task, best, rows)
            scatter(task, best, rows, SECOND_SEARCH_RADIUS_SHARE)
            _directed(task, best, rows, THIRD_SEARCH_RADIUS_SHARE)
            _polish(task, best, rows)
        _farther(task, best, rows, batch)
        if small:
            convex_concave_search(task, best, rows)
        if tell is not None:
            tell(at.stop)
    return best


def _linearised(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """The smallest steps to the linearised boundaries, with fewer targets from round to round."""
    foreign = ~task.own[rows]
    row, target = foreign.nonzero(as_tuple=True)
    row = rows[row]
    delta = torch.zeros_like(task.x[row])
    memory: Tensor | None = None
    for kept, steps in TARGETS_KEPT_AND_STEPS:
        if kept is not None:
            keep = _nearest_targets(row, task.ball.norms(delta), kept)
            row, target, delta = row[keep], target[keep], delta[keep]
            memory = None if memory is None else memory[keep]
        for _ in range(steps):
            delta, memory = linearised_step(task, best, row, target, delta, memory)
    note_smallest(task, best, row, delta)


def _nearest_targets(row: Tensor, size: Tensor, kept: int) -> Tensor:
    """Indices of the `kept` pairs of least size for each row."""
    order = size.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]  # by row, then by size
    counts = row[order].unique_consecutive(return_counts=True)[1]
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    place = torch.arange(len(order), device=order.device) - first
    return order[place < kept]


def _farther(task: ReducedProblem, best: BestPerturbations, rows: Tensor, batch: int) -> None:
    """Attacks at doubling radii of the points of which nothing was found, as far as they go."""
    known = best.size[best.size.isfinite() & (best.size > 0)]
    sizes = known if len(known) > 0 else task.ball.norms(task.x[rows])
    radius = FIRST_FAR_RADIUS_SHARE * (float(sizes.median()) or 1.0)
    for _ in range(RADIUS_DOUBLINGS):
        left = rows[best.size[rows].isinf()]
        if len(left) == 0:
            return
        part, inner, every = at_radii(task, best, left, torch.full_like(best.size[left], radius))
        attack_in_phases(part, inner, every, batch)
        note_smallest(task, best, left, inner.delta, inner.margin)
        found = left[inner.margin <= inner.broken_below]
        bisect(task, best, found)
        _polish(task, best, found)
        radius *= 2.0


def _directed(task: ReducedProblem, best: BestPerturbations, rows: Tensor, share: float) -> None:
    """Full linear steps from starts toward opposing neurons, at a share of the radius found.

    Where nothing was found yet, at the distance of the centre, where a network without biases is 0.
    """
    size = best.size[rows]
    radius = torch.where(size.isinf(), center_distance(task, rows), share * size)
    part, inner, every = at_radii(task, best, rows, radius)
    for start in directed_starts(part):
        alive = inner.standing(every)
        frank_wolfe(part, inner, every[alive], None, SHORT_DIRECTED_STEPS, start[alive])
    note_smallest(task, best, rows, inner.delta, inner.margin)
    bisect(task, best, rows[inner.margin <= inner.broken_below])


def _polish(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Full linear steps at growing shares of the radius found, from the perturbation found."""
    rows = rows[best.size[rows].isfinite() & (best.size[rows] > 0)]
    if len(rows) == 0:
        return
    for share in POLISH_RADIUS_SHARES:
        part, inner, every = at_radii(task, best, rows, share * best.size[rows])
        start = part.ball.project(share * best.delta[rows], part.x)
        frank_wolfe(part, inner, every, None, POLISH_LINEAR_STEPS, start)
        note_smallest(task, best, rows, inner.delta, inner.margin)
    delta = best.delta[rows]
    for _ in range(POLISH_LINEARISED_STEPS):
        delta, _ = linearised_step(task, best, rows, None, delta, None)
    note_smallest(task, best, rows, delta)


def _verified_on_network(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    task: ReducedProblem,
    best: BestPerturbations,
    batch: int,
) -> AttackResult:
    """The perturbations found, tightened on the fine network, verified, and longer where need be.

    Longer where the network itself does not take them as broken, by as little as is enough.
    """
    start = x.to(task.x.dtype)
    fine = ReducedProblem(task.fine, start, task.own, task.ball, task.fine)
    found, delta = best.size.isfinite(), torch.zeros_like(start)
    for rows in torch.nonzero(found & (best.size > 0)).squeeze(1).split(batch):
        delta[rows] = tightened(task.take(rows), fine.take(rows), best.delta[rows])

    def measured(rows: Tensor, move: Tensor) -> AttackResult:
        """x + move, cut by the box, as the re-check sees it."""
        part, move = x[rows], move.to(x.dtype)
        ball = replace(task.ball, radius=task.ball.norms(move) * (1.0 + NORM_SLACK_SHARE))
        return verified(net, part, y[rows], ball.rounded_points(move, part), ball, "shortest")

    def broken_by(rows: Tensor, move: Tensor) -> AttackResult:
        """`measured`, with moves made longer by as little as is enough."""
        result = measured(rows, move)
        for factor in RECHECK_LENGTHENING_FACTORS:
            longer = factor * move
            result = result.retried(lambda left: measured(rows[left], longer[left]), found[rows])  # noqa: B023
        return result

    result = broken_by(torch.arange(len(x), device=x.device), delta)
    longer = found & (result.radius > (1.0 + CLEARLY_LONGER_SHARE) * best.size)
    rows = torch.nonzero(longer).squeeze(1)
    if len(rows) == 0:
        return result
    return result.merged(rows, broken_by(rows, task.take(rows).lift(best.delta[rows]).to(start)))
