"""The first stage of the flow: neurons do not interact, each takes its own steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from extremal.train.flow.neuron_dynamics import Angles
from extremal.train.flow.runge_kutta import SHAMPINE, Counts, State, moved
from extremal.train.frame import unit

_ROUNDS = 16  # between looks at which neurons rest


class Pull(Protocol):
    """A constant push on neurons, as it is while the network's output is negligible."""

    @property
    def p(self) -> float: ...

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor, total: int) -> None:
        """Renew what is known of the neurons `rows` where it is too old."""
        ...

    def look(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Renew it for the chosen ones."""
        ...

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G up to a multiple of u, (k, r + 1), and g, (k,), of the neurons `rows`."""
        ...


def turn(pull: Tensor, growth: Tensor, state: State, angles: Angles) -> State:
    """The right-hand side for (place, theta): the pull across u, and the growth g."""
    place, theta = state
    return angles.ratio(theta)[:, None] * across(pull, place), growth


def across(pull: Tensor, place: Tensor) -> Tensor:
    """The part of the pull that turns a neuron, (h, r + 1)."""
    radial = (pull * place).sum(1, keepdim=True) / place.square().sum(1, keepdim=True)
    return pull - radial * place


class Aligning:
    """Neurons under a constant push, each with steps of its own."""

    def __init__(
        self, field: Pull, angles: Angles, first: float, tolerance: float, counts: Counts
    ) -> None:
        self.field, self.angles = field, angles
        self.tolerance, self.counts = tolerance, counts
        self.size = torch.full_like(angles.log_scale, first)
        self.rests: Tensor | None = None  # (h, r + 1): where neurons came to rest

    def advance(self, state: State, span: float) -> State:
        """Bring each neuron forward by the time `span`."""
        place, theta = state[0].clone(), state[1].clone()
        left = torch.full_like(theta, span)
        active = torch.arange(len(theta))
        before = (place.clone(), left.clone())
        rounds = 0
        while len(active):
            rounds += 1
            here = (place[active], theta[active])
            self.field.refresh(here[0], left[active], active, len(theta))
            angles = self.angles.take(active)
            side = self._side(active, angles)
            pull, growth = self.field.pull(here[0], active)
            first = turn(pull, growth, here, angles)
            still = self._settled(across(pull, here[0]), first, left[active])
            still |= self._rested(here[0], active)
            if rounds % _ROUNDS == 0:
                still |= self._resting(first[1], here[0], left[active], before, active)
                before = (place.clone(), left.clone())
            if bool(still.any()):
                self.field.look(here[0], left[active], active, still)
                first = side(here)
                theta[active[still]] += first[1][still] * left[active[still]]
                left[active[still]] = 0.0
            size = torch.minimum(self.size[active], left[active])
            new, error = _attempt(side, here, first, size)
            good = (error <= self.tolerance) & ~still
            rows = active[good]
            place[rows], theta[rows] = unit(new[0][good]), new[1][good]
            left[rows] -= size[good]
            self._resize(active, size, error / self.tolerance, good, still)
            active = active[left[active] > 1e-12 * span]
        return place, theta

    def _side(self, rows: Tensor, angles: Angles) -> Callable[[State], State]:
        return lambda state: turn(*self.field.pull(state[0], rows), state, angles)

    def _resize(
        self, active: Tensor, size: Tensor, error: Tensor, good: Tensor, still: Tensor
    ) -> None:
        factor = (0.9 * (error + 1e-12) ** (-1.0 / SHAMPINE.order)).clamp(0.2, 5.0)
        # A step cut short by the end says nothing against the longer one that was planned.
        planned = torch.where(good & (size < self.size[active]), self.size[active], 0.0)
        changed = torch.maximum(planned, size * factor)
        self.size[active] = torch.where(still, self.size[active], changed)
        self.counts.sides += 4 * len(active) / len(self.size)
        self.counts.steps += 1

    def _settled(self, turning: Tensor, slope: State, left: Tensor) -> Tensor:
        """Which neurons will not turn any more: they approach their direction at the rate p g.

        A neuron with a small vote hardly turns now, yet will when its vote has grown: what counts
        is at least what would turn it if |v| were ||w||.
        """
        speed = torch.maximum(turning.abs().amax(1), slope[0].abs().amax(1))
        rate = (self.field.p * slope[1].abs()).clamp(min=1e-300)
        return speed * torch.minimum(left, 1.0 / rate) <= 0.01 * self.tolerance

    def _resting(
        self, growth: Tensor, place: Tensor, left: Tensor, before: State, active: Tensor
    ) -> Tensor:
        """Which neurons have stayed where they are for a while, at the edge of what is stable.

        With p = 1 a neuron may rest where an opposing cluster is just inactive, pushed back within
        a time that is short beside the rest: explicit steps then tremble within the tolerance.
        """
        moved = (place - before[0][active]).abs().amax(1)
        rested = (before[1][active] - left) * self.field.p * growth.abs()
        found = (moved <= self.tolerance) & (rested >= 3.0)
        if self.field.p < 2.0:
            self.rests = torch.full_like(before[0], torch.inf) if self.rests is None else self.rests
            self.rests[active[found]] = place[found]
        return found

    def _rested(self, place: Tensor, active: Tensor) -> Tensor:
        """Which neurons are where they came to rest at a kink: the push on them has not changed."""
        if self.rests is None:
            return torch.zeros(len(active), dtype=torch.bool)
        return (place - self.rests[active]).abs().amax(1) <= self.tolerance


def _attempt(
    side: Callable[[State], State], state: State, first: State, size: Tensor
) -> tuple[State, Tensor]:
    """A step of Bogacki & Shampine with a size for each neuron, and each one's error, (h,)."""
    slopes = [first]
    for weights in SHAMPINE.stages:
        new = tuple(
            moved((part,), [(slope[i],) for slope in slopes], weights, h)[0]
            for i, (part, h) in enumerate(zip(state, (size[:, None], size), strict=True))
        )
        slopes.append(side(new))
    miss = [
        h * sum(w * slope[i] for w, slope in zip(SHAMPINE.error, slopes, strict=True))
        for i, h in enumerate((size[:, None], size))
    ]
    return new, torch.maximum(miss[0].abs().amax(1), miss[1].abs())
