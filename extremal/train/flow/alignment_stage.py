"""The flow while the network's output is below the tolerance, and how long that is safe to say.

The first stage of the flow: neurons do not interact, each takes its own steps.

A part of the samples in place of all of them, with corrections, while the push is constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from extremal.train.flow.cluster_field import ClusterField, Constant
from extremal.train.flow.neuron_dynamics import NeuronAngles, NeuronSystem, tangential, turn, unit
from extremal.train.flow.runge_kutta import BOGACKI_SHAMPINE_32, Counts, State, moved
from extremal.train.flow.sample_field import SampleField

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


class Aligning:
    """Neurons under a constant push, each with steps of its own."""

    def __init__(
        self, field: Pull, angles: NeuronAngles, first: float, tolerance: float, counts: Counts
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
            still = self._settled(tangential(pull, here[0]), first, left[active])
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

    def _side(self, rows: Tensor, angles: NeuronAngles) -> Callable[[State], State]:
        return lambda state: turn(*self.field.pull(state[0], rows), state, angles)

    def _resize(
        self, active: Tensor, size: Tensor, error: Tensor, good: Tensor, still: Tensor
    ) -> None:
        factor = (0.9 * (error + 1e-12) ** (-1.0 / BOGACKI_SHAMPINE_32.order)).clamp(0.2, 5.0)
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
    for weights in BOGACKI_SHAMPINE_32.stages:
        new = tuple(
            moved((part,), [(slope[i],) for slope in slopes], weights, h)[0]
            for i, (part, h) in enumerate(zip(state, (size[:, None], size), strict=True))
        )
        slopes.append(side(new))
    miss = [
        h * sum(w * slope[i] for w, slope in zip(BOGACKI_SHAMPINE_32.error, slopes, strict=True))
        for i, h in enumerate((size[:, None], size))
    ]
    return new, torch.maximum(miss[0].abs().amax(1), miss[1].abs())


_PART = 2000  # samples that stand for all of them between two looks at all
_TURNED = 100.0  # tolerances: how far a neuron may turn between two such looks


class SubsampledPull:
    """A constant push on neurons by a part of the samples, corrected by looks at all of them.

    The correction is what all samples pull more than the part does, where the neuron was when it
    was last looked at. It errs by how much that difference changes on the way since, and not at all
    where a neuron rests.
    """

    def __init__(self, samples: SampleField, push: Tensor, tolerance: float) -> None:
        self.samples, self.push, self.turned = samples, push, _TURNED * tolerance
        self.p = samples.p
        small = len(samples) <= 2 * _PART
        index = samples.some(_PART)
        grown = len(samples) / len(index)
        self.sketch = None if small else samples.part(index, grown * samples.share[index])
        self.thin = grown * push[index]
        self.seen: Tensor | None = None  # (h, r + 1): places at the last looks
        self.since: Tensor | None = None  # (h,): the time left then
        self.more: tuple[Tensor, Tensor] | None = None
        self.looks = 0.0  # at all samples, in passes over all neurons

    def refresh(self, place: Tensor, left: Tensor, rows: Tensor, total: int) -> None:
        """Look at all samples again for neurons that have turned, or grown, since the last time."""
        if self.sketch is None:
            return
        if self.seen is None or self.since is None or self.more is None:
            self.seen = torch.full((total, place.shape[1]), torch.inf, dtype=place.dtype)
            self.since = torch.zeros(total, dtype=place.dtype)
            self.more = (torch.zeros(total, place.shape[1]).double(), torch.zeros(total).double())
        turned = (place - self.seen[rows]).abs().amax(1)
        grown = (self.since[rows] - left) * self.p * self.samples.fastest
        stale = (turned > self.turned) | ((grown > 1.0) & (turned > 0.0))
        self.look(place, left, rows, stale)

    def look(self, place: Tensor, left: Tensor, rows: Tensor, chosen: Tensor) -> None:
        """Look at all samples for the chosen neurons."""
        if self.sketch is None or not bool(chosen.any()):
            return
        assert self.seen is not None
        assert self.since is not None
        assert self.more is not None
        mine, here = rows[chosen], place[chosen]
        whole = self.samples.pull(here, self.push, mine)
        part = self.sketch.pull(here, self.thin, mine)
        self.seen[mine], self.since[mine] = here, left[chosen]
        self.more[0][mine], self.more[1][mine] = whole[0] - part[0], whole[1] - part[1]
        self.looks += len(mine) / len(self.seen)

    def pull(self, place: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """G, (k, r + 1), and g, (k,), of the neurons `rows`."""
        if self.sketch is None or self.more is None:
            return self.samples.pull(place, self.push, rows)
        pull, growth = self.sketch.pull(place, self.thin, rows)
        return pull + self.more[0][rows], growth + self.more[1][rows]


_QUIET = 0.3  # of the tolerance: the output up to which neurons go on by themselves
_LOUD = 2.0  # of the tolerance: the output at which a step was too long


class Quiet:
    """Neurons that don't hear each other: the push is that of zero outputs.

    `first_loss` is the mean loss then, `fastest` a bound on how fast an angle grows.
    """

    def __init__(
        self, neurons: NeuronSystem, start: State, tolerance: float, counts: Counts
    ) -> None:
        self.neurons, self.tolerance = neurons, tolerance
        field, loss = neurons.field, neurons.loss
        rest = field.outputs(start[0], torch.zeros_like(start[1]))
        push = field.push(loss, rest, neurons.rate)
        self.first_loss = field.loss(loss, rest)
        pull: Pull = (
            Constant(field, push)
            if isinstance(field, ClusterField)
            else SubsampledPull(field, push, tolerance)
        )
        first = 0.1 / float(push.abs().sum())
        self.aligning = Aligning(pull, neurons.angles, first, tolerance, counts)
        self.fastest = field.fastest * neurons.rate * (0.5 if loss.name == "logistic" else 1.0)

    def advance(self, state: State, most: float) -> tuple[State, float] | None:
        """The state after a time of at most `most`, and that time; None where outputs count."""
        largest = self._largest_output(state)
        span = min(most, self._safe_time(state))
        while largest < _QUIET * self.tolerance:
            after = self.aligning.advance(state, span)
            if self._largest_output(after) <= _LOUD * self.tolerance:
                return after, span
            span, largest = 0.5 * span, 0.0
        return None

    def still(self, state: State) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        place, theta = state
        pull, growth = self.aligning.field.pull(place, torch.arange(len(theta)))
        return not bool(growth.any()) and not bool(tangential(pull, place).any())

    def _safe_time(self, state: State) -> float:
        """A time in which the output can't grow to the tolerance: sinh(2 theta) < exp(2 theta)."""
        log_total = float(torch.logsumexp(self.neurons.angles.log_ceiling(state[1]), 0))
        wait = (math.log(self.tolerance) - log_total) / (2.0 * self.fastest)
        return max(wait, 0.05 / self.fastest)

    def _largest_output(self, state: State) -> float:
        return float(self.neurons.outputs(state).abs().max())
