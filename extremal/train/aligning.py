"""The first stage of the flow on clusters: neurons do not interact, each takes its own steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from extremal.train.closure import Clusters
from extremal.train.polar import Angles
from extremal.train.runge_kutta import ERROR, ORDER, Counts, State

_ROUNDS = 16  # between looks at which neurons rest


def turn(state: State, clusters: Clusters, angles: Angles, push: Tensor) -> State:
    """The right-hand side for (place, theta): the clusters' pull across u, and the growth g."""
    place, theta = state
    pull, growth = clusters.pull(place, push)
    radial = (pull * place).sum(1, keepdim=True)
    return angles.ratio(theta)[:, None] * (pull - radial * place), growth


class Aligning:
    """Neurons under a constant push, as it is while the network's output is negligible."""

    def __init__(
        self, clusters: Clusters, angles: Angles, push: Tensor, tolerance: float, counts: Counts
    ) -> None:
        self.clusters, self.angles, self.push = clusters, angles, push
        self.tolerance, self.counts = tolerance, counts
        self.size = torch.full_like(angles.log_scale, 0.1 / float(push.abs().sum()))

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
            side = partial(
                turn, clusters=self.clusters, angles=self.angles.take(active), push=self.push
            )
            first = side(here)
            still = self._settled(first, left[active])
            if rounds % _ROUNDS == 0:
                still |= self._resting(first[1], here[0], left[active], before, active)
                before = (place.clone(), left.clone())
            theta[active[still]] += first[1][still] * left[active[still]]
            left[active[still]] = 0.0
            size = torch.minimum(self.size[active], left[active])
            new, error = _attempt(side, here, first, size)
            good = (error <= self.tolerance) & ~still
            rows = active[good]
            place[rows], theta[rows] = new[0][good], new[1][good]
            left[rows] -= size[good]
            self._resize(active, size, error / self.tolerance, good, still)
            active = active[left[active] > 1e-12 * span]
        return place, theta

    def _resize(
        self, active: Tensor, size: Tensor, error: Tensor, good: Tensor, still: Tensor
    ) -> None:
        factor = (0.9 * (error + 1e-12) ** (-1.0 / ORDER)).clamp(0.2, 5.0)
        # A step cut short by the end says nothing against the longer one that was planned.
        planned = torch.where(good & (size < self.size[active]), self.size[active], 0.0)
        changed = torch.maximum(planned, size * factor)
        self.size[active] = torch.where(still, self.size[active], changed)
        self.counts.sides += 4 * len(active) / len(self.size)
        self.counts.steps += 1

    def _settled(self, slope: State, left: Tensor) -> Tensor:
        """Which neurons will not turn any more: they approach their direction at the rate p g."""
        speed, growth = slope[0].abs().amax(1), slope[1].abs()
        ahead = torch.minimum(left, 1.0 / (self.clusters.p * growth).clamp(min=1e-300))
        return speed * ahead <= 0.01 * self.tolerance

    def _resting(
        self, growth: Tensor, place: Tensor, left: Tensor, before: State, active: Tensor
    ) -> Tensor:
        """Which neurons have stayed where they are for a while, at the edge of what is stable.

        With p = 1 a neuron may rest where an opposing cluster is just inactive, pushed back within
        a time that is short beside the rest: explicit steps then tremble within the tolerance.
        """
        moved = (place - before[0][active]).abs().amax(1)
        rested = (before[1][active] - left) * self.clusters.p * growth.abs()
        return (moved <= self.tolerance) & (rested >= 3.0)


def _attempt(
    side: Callable[[State], State], state: State, first: State, size: Tensor
) -> tuple[State, Tensor]:
    """A step of Bogacki & Shampine with a size for each neuron, and each one's error, (h,)."""
    sizes = (size[:, None], size)

    def moved(slopes: tuple[State, ...], weights: tuple[float, ...]) -> State:
        return tuple(
            part + h * sum(w * slope[i] for w, slope in zip(weights, slopes, strict=True))
            for i, (part, h) in enumerate(zip(state, sizes, strict=True))
        )

    second = side(moved((first,), (0.5,)))
    third = side(moved((second,), (0.75,)))
    new = moved((first, second, third), (2 / 9, 1 / 3, 4 / 9))
    fourth = side(new)
    miss = [
        h
        * sum(w * slope[i] for w, slope in zip(ERROR, (first, second, third, fourth), strict=True))
        for i, h in enumerate(sizes)
    ]
    return new, torch.maximum(miss[0].abs().amax(1), miss[1].abs())
