"""Full linear steps: the attack at one radius that knows a shallow network.

d <- argmax of <grad (f_t - f_own)(x + d), d'> over the ball and the box. There is no step size; a
few steps are enough where PGD needs hundreds. Targets t are tried in phases, and a point takes part
in the next one only if it still stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import batches, unit_rows
from extremal.attack.attack_result import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    BestPerturbations,
    check_attack,
    verified,
)
from extremal.attack.ball import Ball
from extremal.attack.surrogate import FINE_TOLERANCE, ReducedProblem, reduced_problem
from extremal.models import group_margins, is_shallow

# The phases of an attack: how many targets of least linearised margin are tried (None: all of
# them), and with how many steps.
TARGETS_AND_STEPS = ((1, 3), (3, 8), (None, 10))
# So many steps are made at first toward whichever foreign output is best.
UNTARGETED_STEPS = 2
# A point is sent toward so many of the opposing neurons that could gain most.
DIRECTED_NEURONS = 8
# So many steps are made from each start toward such neurons.
DIRECTED_STEPS = 8
# A point has arrived once a step moves no coordinate by more than this share of the radius.
SETTLED_MOVE_SHARE = 1e-3


def linear_steps(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    batch: int = ATTACK_BATCH_POINTS,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack a `PReLUNet` (or a `Grouped` one) by full linear steps.

    First toward whichever foreign output is best, 2 steps; then toward the target of least
    linearised margin, 3 steps; the best three, 8; all, 10; and from starts on the way to the
    opposing neurons that could gain most, 8 (for p >= 3 the gradient toward a far neuron vanishes,
    and nothing else goes there). Deterministic. Neurons of no effect are left out at first, but not
    for points that only the others break. Any other network is a ValueError.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one; it is not changed.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `batch`: (point, target) pairs attacked at a time, 1024 by default; fewer need less memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_attack(net, x, y, ball, batch)
    check_shallow(net)

    def attack(
        rows: Tensor | slice, tolerance: float, tell: Callable[[int], object] | None
    ) -> tuple[AttackResult, Tensor]:
        """The result for the chosen points, and the least margins of the search itself."""
        part, labels, inner = x[rows], y[rows], ball.take(rows)
        task = reduced_problem(net, part, labels, inner, tolerance=tolerance)
        best = BestPerturbations.begin(torch.zeros_like(task.x), task.broken_below())
        for at in batches(len(task), batch):
            places = torch.arange(at.start, at.stop, device=x.device)
            attack_in_phases(task, best, places, batch)
            if tell is not None:
                tell(at.stop)
        x_adv = inner.rounded_points(inner.project(task.lift(best.delta), part), part)
        return verified(net, part, labels, x_adv, inner, "linear"), best.margin

    with Bar("linear steps", len(x), progress) as bar:
        result, lowest = attack(slice(None), FINE_TOLERANCE, bar.done)
    return result.retried(lambda rows: attack(rows, 0.0, None)[0], lowest <= 0)


def check_shallow(net: nn.Module) -> None:
    """Require a network whose neurons can be seen."""
    rule = "be a PReLUNet or a Grouped one for an attack that knows the network"
    _check.require(is_shallow(net), "net", rule, type(net).__name__)


def attack_in_phases(
    task: ReducedProblem, best: BestPerturbations, rows: Tensor, batch: int
) -> None:
    """All phases for the points at `rows`."""
    frank_wolfe(task, best, rows, None, UNTARGETED_STEPS, settled=SETTLED_MOVE_SHARE)
    rows = rows[best.standing(rows)]
    if len(rows) == 0:
        return
    ranked = _ranked_targets(task, rows)
    for count, steps in TARGETS_AND_STEPS:
        targets = ranked[:, :count]
        for some in _standing_pairs(best, rows, targets, batch):
            row, target = rows[some // targets.shape[1]], targets.flatten()[some]
            frank_wolfe(task, best, row, target, steps, settled=SETTLED_MOVE_SHARE)
    rows = rows[best.standing(rows)]
    if len(rows) == 0:
        return
    for start in directed_starts(task.take(rows)):
        alive = best.standing(rows)
        frank_wolfe(
            task, best, rows[alive], None, DIRECTED_STEPS, start[alive], settled=SETTLED_MOVE_SHARE
        )


def _standing_pairs(
    best: BestPerturbations, rows: Tensor, targets: Tensor, batch: int
) -> Iterator[Tensor]:
    """Indices of (row, target) pairs of points that stand, `batch` at a time."""
    count = targets.shape[1]
    index = torch.arange(len(rows) * count, device=rows.device)
    index = index[(targets.flatten() >= 0) & best.standing(rows)[index // count]]
    for some in index.split(batch):
        yield some[best.standing(rows[some // count])]


def frank_wolfe(
    task: ReducedProblem,
    best: BestPerturbations,
    rows: Tensor,
    targets: Tensor | None,
    steps: int,
    start: Tensor | None = None,
    *,
    settled: float = 0.0,
) -> None:
    """`steps` full linear steps of the points at `rows`, toward targets or the best foreign output.

    From the points themselves, or from perturbations `start`. Broken points end, and those of which
    a step moves no coordinate by more than a share `settled` of the radius.
    """
    delta = torch.zeros_like(task.x[rows]) if start is None else start
    for step in range(steps + 1):
        if len(rows) == 0:
            return
        at = task.form.preparation.at(task.x[rows] + delta)
        out, slope = task.form.powers(at)
        own = task.own[rows]
        best.note_lower(rows, group_margins(out, own), delta, ties=True)
        if step == steps:
            return
        weight = target_minus_own(task, out, own, targets)
        gradient = task.form.gradient(at, slope, weight)
        ball = task.ball.take(rows)
        new = ball.linear_maximum(torch.nan_to_num(gradient), task.x[rows])
        little = (settled * ball.radii(new)).to(new.dtype).unsqueeze(1)
        on = best.standing(rows) & ((new - delta).abs() > little).any(1)
        rows, delta = rows[on], new[on]
        targets = None if targets is None else targets[on]


def target_minus_own(
    task: ReducedProblem, out: Tensor, own: Tensor, targets: Tensor | None
) -> Tensor:
    """The weights (n, h) of f_t - f_own: the best own output, and the target or the rival."""
    mine = out.masked_fill(~own, -torch.inf).argmax(1)
    other = out.masked_fill(own, -torch.inf).argmax(1) if targets is None else targets
    return task.form.weights[other] - task.form.weights[mine]


def _ranked_targets(task: ReducedProblem, rows: Tensor) -> Tensor:
    """Foreign outputs by their margin after the best linear step, (n, C); own ones are -1."""
    point, own, ball = task.x[rows], task.own[rows], task.ball.take(rows)
    at = task.form.preparation.at(point)
    out, slope = task.form.powers(at)
    left = torch.full_like(out, torch.inf)
    for target in range(out.shape[1]):
        toward = torch.full_like(rows, target)
        gradient = task.form.gradient(at, slope, target_minus_own(task, out, own, toward))
        gain = (gradient * ball.linear_maximum(torch.nan_to_num(gradient), point)).sum(1)
        left[:, target] = -out[:, target] - gain
    left = left.masked_fill(own, torch.inf)
    order = left.argsort(1)
    order = torch.where(left.gather(1, order).isinf(), -1, order)
    return order[:, : int((~own).sum(1).max())]


def directed_starts(task: ReducedProblem) -> Iterator[Tensor]:
    """Starts (n, dim') at the radius toward all opposing neurons, then toward each that could gain.

    The direction is u_j - grad f_own / ||grad f_own||: for two clusters that is (mu_l - mu_k), Min
    & Vidal 2024, Section C.4. A neuron could gain A_j relu(s_j + radius)^p, with A_j its largest
    foreign weight less its own one.
    """
    form, point = task.form, task.x
    at = form.preparation.at(point)
    out, slope = form.powers(at)
    mine = out.masked_fill(~task.own, -torch.inf).argmax(1)
    kinds, kind = task.own.unique(dim=0, return_inverse=True)
    foreign = torch.stack([form.weights[~own].amax(0) for own in kinds])
    weight = foreign[kind] - form.weights[mine]
    reach = task.ball.radii(point).to(point.dtype).unsqueeze(1)
    gain = weight * torch.relu(form.active(at) + reach) ** form.p
    chosen = gain.topk(min(DIRECTED_NEURONS, gain.shape[1]), dim=1).indices
    down = unit_rows(form.gradient(at, slope, form.weights[mine]))
    every = gain.clamp(min=0.0) ** (1.0 / form.p) @ form.directions
    for toward in (every, *(form.directions[neuron] for neuron in chosen.T)):
        up = unit_rows(form.preparation.pull_back(at, toward))
        yield task.ball.linear_maximum(torch.nan_to_num(up - down), point)
        # In l1 all is spent on a few coordinates, be they up or down, so up alone is tried too.
        if task.ball.norm == "l1":
            yield task.ball.linear_maximum(torch.nan_to_num(up), point)
