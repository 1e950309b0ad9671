"""Full linear steps: the attack at one radius that knows a shallow network.

d <- argmax of <grad (f_t - f_own)(x + d), d'> over the ball and the box. There is no step size; a
few steps are enough where PGD needs hundreds. Targets t are tried in phases, and a point takes part
in the next one only if it still stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
from extremal.attack.surrogate import ReducedProblem, reduced_problem
from extremal.models import group_margins, is_shallow

PHASES = ((1, 3), (3, 8), (None, 10))  # targets by linearised margin (None: all), and steps
NEURONS = 8  # that one point is sent toward
SETTLED = 1e-3  # of the radius: a walk whose steps move no coordinate farther has arrived


def linear_steps(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    ball: Ball,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> AttackResult:
    """Attack a `PReLUNet` (or a `Grouped` one) by full linear steps.

    First toward whichever foreign output is best, 2 steps; then toward the target of least
    linearised margin, 3 steps; the best three, 8; all, 10; and from starts on the way to the
    opposing neurons that could gain most, 8 (for p >= 3 the gradient toward a far neuron vanishes,
    and nothing else goes there). Deterministic. `batch` is the number of (point, target) pairs at a
    time. Neurons of no effect are left out at first, but not for points that only the others break.
    Any other network is a ValueError.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one; it is not changed.
    - `x`: points (n, dim) to attack, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    y = check_points(net, x, y)
    check_ball(ball)
    check_shallow(net)
    _check.integer("batch", batch, minimum=1)
    with Bar("linear steps", len(x), progress) as bar:
        task = reduced_problem(net, x, y, ball)
        best = _searched(task, batch, bar)
    result = _landed(net, x, y, task, best)
    left = torch.nonzero((best.lowest <= 0) & ~result.success).squeeze(1)
    if len(left) == 0:
        return result
    part, labels = x[left], y[left]
    task = reduced_problem(net, part, labels, ball.take(left), whole=True)
    return result.merged(left, _landed(net, part, labels, task, _searched(task, batch, None)))


def _searched(task: ReducedProblem, batch: int, bar: Bar | None) -> LowestMargins:
    """The perturbations of least margin in the task's coordinates."""
    best = LowestMargins.start(task)
    for at in batches(len(task), batch):
        attack_in_phases(task, best, torch.arange(at.start, at.stop, device=task.x.device), batch)
        if bar is not None:
            bar.done(at.stop)
    return best


def _landed(
    net: nn.Module, x: Tensor, y: Tensor, task: ReducedProblem, best: LowestMargins
) -> AttackResult:
    x_adv = task.ball.land(task.ball.project(task.lift(best.delta), x), x)
    return verified(net, x, y, x_adv, task.ball, "linear")


def check_shallow(net: nn.Module) -> None:
    """Require a network whose neurons can be seen."""
    rule = "be a PReLUNet or a Grouped one for an attack that knows the network"
    _check.require(is_shallow(net), "net", rule, type(net).__name__)


@dataclass(frozen=True, eq=False)
class LowestMargins:
    """The perturbation of least margin of each point so far, updated in place."""

    delta: Tensor  # (n, dim')
    lowest: Tensor  # (n,)
    enough: Tensor  # (n,): broken at or below it

    @classmethod
    def start(cls, task: ReducedProblem) -> LowestMargins:
        """Nothing but the points themselves."""
        never = torch.full_like(task.x[:, 0], torch.inf)
        return cls(torch.zeros_like(task.x), never, task.enough())

    def standing(self, rows: Tensor) -> Tensor:
        """Which of the points at `rows` are not broken yet, bool."""
        return self.lowest[rows] > self.enough[rows]

    def note(self, rows: Tensor, value: Tensor, delta: Tensor) -> None:
        """Keep what is lower than before; a row may occur several times, and NaN is no success."""
        value = torch.where(value.isnan(), torch.inf, value)
        self.lowest.scatter_reduce_(0, rows, value, "amin")
        won = value == self.lowest[rows]
        self.delta[rows[won]] = delta[won]


def attack_in_phases(task: ReducedProblem, best: LowestMargins, rows: Tensor, batch: int) -> None:
    """All phases for the points at `rows`."""
    frank_wolfe(task, best, rows, None, 2, settled=SETTLED)
    rows = rows[best.standing(rows)]
    if len(rows) == 0:
        return
    ranked = _ranked(task, rows)
    for count, steps in PHASES:
        targets = ranked[:, :count]
        for some in _pairs(best, rows, targets, batch):
            row, target = rows[some // targets.shape[1]], targets.flatten()[some]
            frank_wolfe(task, best, row, target, steps, settled=SETTLED)
    rows = rows[best.standing(rows)]
    if len(rows) == 0:
        return
    for start in directed_starts(task.take(rows)):
        alive = best.standing(rows)
        frank_wolfe(task, best, rows[alive], None, 8, start[alive], settled=SETTLED)


def _pairs(best: LowestMargins, rows: Tensor, targets: Tensor, batch: int) -> Iterator[Tensor]:
    """Indices of (row, target) pairs of points that stand, `batch` at a time."""
    count = targets.shape[1]
    index = torch.arange(len(rows) * count, device=rows.device)
    index = index[(targets.flatten() >= 0) & best.standing(rows)[index // count]]
    for some in index.split(batch):
        yield some[best.standing(rows[some // count])]


def frank_wolfe(
    task: ReducedProblem,
    best: LowestMargins,
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
        best.note(rows, group_margins(out, own), delta)
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


def _ranked(task: ReducedProblem, rows: Tensor) -> Tensor:
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


def directed_starts(task: ReducedProblem, count: int = NEURONS) -> Iterator[Tensor]:
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
    chosen = gain.topk(min(count, gain.shape[1]), dim=1).indices
    down = _unit(form.gradient(at, slope, form.weights[mine]))
    every = gain.clamp(min=0.0) ** (1.0 / form.p) @ form.directions
    for toward in (every, *(form.directions[neuron] for neuron in chosen.T)):
        up = _unit(form.preparation.pull_back(at, toward))
        yield task.ball.linear_maximum(torch.nan_to_num(up - down), point)
        if task.ball.norm == "l1":  # which spends all on a few coordinates, be they up or down
            yield task.ball.linear_maximum(torch.nan_to_num(up), point)


def _unit(rows: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, 1.0)
