"""The two step rules of APGD: momentum for l2 and linf, sparse steps for l1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.attack.auto_pgd_ascent import Climb, Task, back_to_best
from extremal.attack.objectives import Ascent
from extremal.attack.projection import sorted_rows

_INERTIA = 0.75  # alpha: weight of the new step against the last one
_RISES = 0.75  # rho: share of steps that must have risen for the step length to stay
_SPARSE_CHECKS = 0.04
_FIRST_SHARE = 0.2  # of all coordinates, moved by the first sparse steps
_SPARSER = 1.5  # the next steps move so much fewer coordinates than the best point has
_SHORTEST = 0.1


@dataclass(frozen=True, eq=False)
class Pace:
    """What `Momentum` keeps of each point since its last checkpoint."""

    step: Tensor  # (n, 1)
    rises: Tensor  # (n,): how many steps rose
    mark: Tensor  # (n,): largest objective at the checkpoint
    halved: Tensor  # (n,) bool: whether the step was halved there


class Momentum:
    """The rule of Croce & Hein 2020, Algorithm 1, for l2 and linf.

    From a step of 2 radius: z = P(d + step * steepest(g)), d <- P(d + 0.75 (z - d) + 0.25 move).
    At checkpoints ceil(p_j steps), p = 0, 0.22, then p_j + max(p_j - p_(j-1) - 0.03, 0.06), the
    step is halved and the best point taken up again where fewer than 75 % of the steps rose, or
    where neither the step nor the best objective has changed since the checkpoint before. Here P is
    the exact projection on ball and box, and coordinates that the box blocks are left out of g.
    """

    def checkpoints(self, steps: int) -> list[int]:
        before, share, found = 0, 22, []  # in hundredths: 0.41 * 100 is more than 41 in floats
        while share <= 100:
            found.append(math.ceil(share * steps / 100))
            before, share = share, share + max(share - before - 3, 6)
        return found

    def begin(self, task: Task, delta: Tensor, now: Ascent) -> Pace:
        step = (2.0 * task.ball.radii(task.x)).to(delta.dtype).unsqueeze(1)
        never = torch.zeros_like(now.value, dtype=torch.bool)
        return Pace(step, torch.zeros_like(now.value), now.value, never)

    def propose(self, climb: Climb) -> Tensor:
        ball, delta = climb.task.ball, climb.delta
        around = ball.around(climb.task.x)
        upward = ball.steepest(around.unblocked(climb.now.gradient, delta))
        aim = around.project(delta + climb.memory.step * upward)
        if not bool(climb.move.any()):
            return aim
        moved = delta + _INERTIA * (aim - delta) + (1.0 - _INERTIA) * climb.move
        begun = climb.move.any(1, keepdim=True)
        return torch.where(begun, around.project(moved), aim)

    def note(self, climb: Climb, now: Ascent) -> Pace:
        rose = (now.value > climb.now.value).to(now.value.dtype)
        pace: Pace = climb.memory
        return replace(pace, rises=pace.rises + rose)

    def review(self, climb: Climb, window: int) -> Climb:
        pace: Pace = climb.memory
        idle = ~pace.halved & (climb.top.value <= pace.mark)
        halve = (pace.rises < _RISES * window) | idle
        step = torch.where(halve.unsqueeze(1), 0.5 * pace.step, pace.step)
        new = Pace(step, torch.zeros_like(pace.rises), climb.top.value, halve)
        return replace(back_to_best(climb, halve), memory=new)


@dataclass(frozen=True, eq=False)
class Thrift:
    """What `Sparse` keeps of each point."""

    step: Tensor  # (n, 1)
    most: Tensor  # (n, 1): the first step's length
    count: Tensor  # (n,) int64: coordinates that a step moves
    support: Tensor  # (n,) int64: coordinates of the best point at the last checkpoint


class Sparse:
    """The rule of Croce & Hein 2021, Algorithm 1 (APGD for l1 in a box).

    d <- P(d + step * s), s the signs of the `count` largest |g_i| over their number. Every 4 % of
    the steps: count becomes the number of coordinates of the best point / 1.5; where that number
    fell by over 5 % the step is the radius again and the best point is taken up again, else the
    step is divided by 1.5, down to a tenth of the radius. P is the exact projection on ball and
    box; coordinates that the box blocks are left out of g.
    """

    def __init__(self, fresh: bool) -> None:
        self._fresh = fresh  # whether the start is a random, dense one

    def checkpoints(self, steps: int) -> list[int]:
        every = max(1, int(_SPARSE_CHECKS * steps))
        return list(range(every, steps + 1, every))

    def begin(self, task: Task, delta: Tensor, now: Ascent) -> Thrift:
        step = task.ball.radii(task.x).to(delta.dtype).unsqueeze(1)
        dim = delta.shape[1]
        if self._fresh:
            count = torch.full((len(delta),), int(_FIRST_SHARE * dim), device=delta.device)
            return Thrift(step, step, count.clamp(min=1), torch.full_like(count, dim))
        support = (delta != 0).sum(1)
        return Thrift(step, step, _fewer(support), support)

    def propose(self, climb: Climb) -> Tensor:
        around, thrift = climb.task.ball.around(climb.task.x), climb.memory
        gradient = around.unblocked(climb.now.gradient, climb.delta)
        size = gradient.abs()
        least = sorted_rows(size).gather(1, size.shape[1] - thrift.count.unsqueeze(1))
        signs = torch.where(size >= least, gradient.sign(), 0.0)
        number = signs.abs().sum(1, keepdim=True).clamp(min=1.0)
        return around.project(climb.delta + thrift.step * signs / number)

    def note(self, climb: Climb, now: Ascent) -> Thrift:
        thrift: Thrift = climb.memory
        return thrift

    def review(self, climb: Climb, window: int) -> Climb:
        thrift: Thrift = climb.memory
        support = (climb.best != 0).sum(1)
        fell = support < 0.95 * thrift.support
        shorter = torch.maximum(thrift.step / _SPARSER, _SHORTEST * thrift.most)
        step = torch.where(fell.unsqueeze(1), thrift.most, shorter)
        new = Thrift(step, thrift.most, _fewer(support), support)
        return replace(back_to_best(climb, fell), memory=new)


def _fewer(support: Tensor) -> Tensor:
    return (support / _SPARSER).long().clamp(min=1)
