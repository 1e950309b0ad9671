"""The convex-concave procedure: smallest perturbations from many starts, on small networks.

A point is broken where foreign neurons speak as loudly as own ones. With a = W_own - W_target that
is (sum over a_j < 0 of |a_j| relu(s_j)^p)^(1/p) >= (sum over a_j > 0 of a_j relu(s_j)^p)^(1/p).
Both sides are convex in the perturbation. The foreign one is nowhere below its tangents, the
weighted sums of |a_j|^(1/p) s_j; with one of them in its place the problem is convex, and whatever
solves it breaks the point. The tangent there leads on, until nothing gets shorter. For p = 1 a
tangent stands for a set of foreign neurons that speak, and the solution is exact for that set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import RowRecord, batches
from extremal.attack.attack_result import BestPerturbations
from extremal.attack.projection import Bounds
from extremal.attack.surrogate import ReducedProblem
from extremal.attack.two_layer.interior_point import (
    ConvexBoundary,
    LiftedNeurons,
    smallest_to_convex,
)
from extremal.attack.two_layer.linearised_boundary import note_smallest

# Networks are searched in this way that have at most so many coordinates ...
MOST_COORDINATES = 64
# ... and whose neurons times coordinates squared, the work of a step, are at most this.
MOST_WORK = 2**22
# So many points are searched first, and the others only if one of those got clearly shorter ...
MOST_FIRST_POINTS = 64
# ... fewer where they would together be more work than this, as large as that of one may be ...
FIRST_WORK = 2**25
# ... but so many in any case.
LEAST_FIRST_POINTS = 16
# A perturbation got clearly shorter if by this share.
CLEARLY_SHORTER = 3e-3
# So many points are searched at a time, from some ten starts each.
POINTS_AT_ONCE = 128
# Tangents whose weights are the same to this part of the largest are taken for the same.
EQUAL_WEIGHT_STEPS = 16
# Each convex problem is solved by so many Newton steps, the first with slack times multiplier as
# large as the second number says, in units of the radius; its solution makes the next problem.
STEPS_AND_PRODUCT = ((12, 0.3), (8, 0.03), (8, 0.003))
# A start is given up if after the first problems its perturbation is longer than the smallest
# known by these factors.
MOST_RADII = (3.0, 1.5)
# Where inputs are normalised tangents are no bounds, and so many more problems follow, each from
# half of the way.
HALF_STEPS = 3
# The first round of starts has so many directions all around.
FIRST_DIRECTIONS = 4
# The second round starts toward each of so many foreign neurons.
DIRECTED_NEURONS = 12
# Own neurons are silenced against so many of the best foreign outputs.
SILENT_TARGETS = 3
# Later rounds have so many directions around the points, and as many around what is known.
LATER_DIRECTIONS = 4
# Later rounds are made for points that got shorter by this share in the one before.
WORTHWHILE_SHARE = 1e-3
# So many later rounds are made at most.
MOST_LATER_ROUNDS = 4
# Starts all around are at up to so many radii, and those around a perturbation so much nearer.
FARTHEST_START_RADII, NEAR_SHARE = 1.5, 0.3
# In the convex problems own neurons speak louder by this, in units of the radius, and the line is
# higher by half of it, so that neurons that are to fall silent do.
LOUDER = 1e-5
# Solutions are made longer by the first of these factors that breaks the point.
LENGTHENING_FACTORS = (1.0, 1.00001, 1.0001, 1.0005, 1.002, 1.01)
# A margin counts as broken once it is below zero by this share of the one at the point.
BROKEN_MARGIN_SHARE = 1e-12
# Slopes are taken to be at least this share of what all neurons' slopes together could be.
LEAST_SLOPE_SHARE = 1e-3
# The order of the norm that is dual to each norm.
DUAL_ORDERS = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}
# Numbers that are divided by are at least this.
TINY = 1e-150


def small_enough(neurons: int, coordinates: int) -> bool:
    """Whether a network is so small that each convex problem costs little."""
    return coordinates <= MOST_COORDINATES and neurons * coordinates**2 <= MOST_WORK


def search_regions(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Look for smaller perturbations of the points at `rows`, by convex problems from many starts.

    Of many points some are searched first, evenly spaced, and the others only if one of those got
    clearly shorter. Deterministic: directions are always the same.
    """
    rows = rows[best.size[rows] > 0]
    work = max(1, len(task.form.directions) * task.x.shape[1] ** 2)
    few = min(len(rows), max(LEAST_FIRST_POINTS, min(MOST_FIRST_POINTS, FIRST_WORK // work)))
    first = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    first[torch.linspace(0, len(rows) - 1, few).round().long()] = True
    some, others = rows[first], rows[~first]
    before = best.size[some]
    _search(task, best, some)
    if bool((best.size[some] < (1.0 - CLEARLY_SHORTER) * before).any()):
        _search(task, best, others)


def _search(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
    """Look for smaller perturbations of all points at `rows`."""
    for at in batches(len(rows), POINTS_AT_ONCE):
        some = rows[at]
        regions = _Regions.of(task, best, some)
        regions.search()
        found, shorter = regions.found, regions.found.size < best.size[some]
        best.size[some[shorter]] = found.size[shorter]
        best.delta[some[shorter]] = found.delta[shorter].to(best.delta.dtype)


@dataclass(frozen=True, eq=False)
class _Tangents(RowRecord):
    """Starts of the procedure: which point goes where, and which foreign neurons are to speak."""

    place: Tensor  # (m,): of the point
    delta: Tensor  # (m, n): where the search begins
    mine: Tensor  # (m,): the own output that is to lose
    other: Tensor  # (m,): the foreign one that is to win
    weight: Tensor  # (m, h): of the foreign neurons, zero for all others

    def keys(self) -> Tensor:
        """Numbers (m,), equal where point, outputs and weights are, the latter to a 16th."""
        largest = self.weight.amax(1, keepdim=True).clamp(min=TINY)
        coarse = (EQUAL_WEIGHT_STEPS * self.weight / largest).round().long()
        every = torch.cat([torch.stack([self.place, self.mine, self.other], 1), coarse], 1)
        generator = torch.Generator().manual_seed(0)
        factors = torch.randint(2**62, (every.shape[1],), generator=generator)
        return (every * factors.to(every.device)).sum(1)


@dataclass(frozen=True, eq=False)
class _Regions:
    """Points of a task in float64, with a network whose biases are neurons, and what was found.

    s = (z, size) @ neurons.T, where size is 1, or ||z||^normalize where inputs are normalised:
    there all neurons are multiplied by it, which changes no class.
    """

    task: ReducedProblem
    found: BestPerturbations
    bounds: Bounds | None  # that the box leaves to perturbations
    neurons: LiftedNeurons  # (h, n + 1)
    weights: Tensor  # (C, h)
    solved_keys: list[Tensor]  # of the tangents that were starts

    @classmethod
    def of(cls, task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> _Regions:
        """The points at `rows`, with what is known of them."""
        part = task.take(rows)
        bounds = part.ball.bounds(part.x)
        form = part.form.to(torch.float64)
        part = replace(part, form=form, x=part.x.double())
        broken_below = -BROKEN_MARGIN_SHARE * form.margins(part.x, part.own).abs()
        found = BestPerturbations.begin(torch.zeros_like(part.x), broken_below)
        known = torch.nonzero(best.size[rows].isfinite()).squeeze(1)
        note_smallest(part, found, known, best.delta[rows[known]].double())
        neurons = torch.cat([form.directions, form.all_offsets.unsqueeze(1)], 1)
        bias = torch.zeros_like(neurons[:1])
        bias[:, -1] = 1.0
        return cls(
            part,
            found,
            None if bounds is None else (bounds[0].double(), bounds[1].double()),
            LiftedNeurons.of(torch.cat([neurons, bias])),
            torch.cat([form.weights, form.constant.unsqueeze(1)], 1),
            [],
        )

    def search(self) -> None:
        """All rounds of starts."""
        generator = torch.Generator().manual_seed(0)
        places = torch.arange(len(self.task), device=self.task.x.device)
        self.descend(self._first_starts(places, generator))
        self.descend(self._toward_neurons())
        for _ in range(MOST_LATER_ROUNDS):
            before = self.found.size[places]
            self.descend(self._later_starts(places, generator))
            shorter = self.found.size[places] < (1.0 - WORTHWHILE_SHARE) * before
            places = places[shorter]
            if len(places) == 0:
                return

    def descend(self, starts: _Tangents) -> None:
        """Solve one convex problem after the other from each start, and note what breaks points."""
        starts = self._unsolved(starts)
        radius = self.radii()[starts.place]
        normalised = self.task.form.preparation.normalize > 0.0
        plan = STEPS_AND_PRODUCT + STEPS_AND_PRODUCT[-1:] * (HALF_STEPS if normalised else 0)
        for turn, (steps, product) in enumerate(plan):
            if len(starts.place) == 0:
                return
            delta = self.solved(starts, radius, steps, product)
            size = self.task.ball.norms(delta)
            if turn < len(MOST_RADII):
                keep = size <= MOST_RADII[turn] * self.radii()[starts.place]
                starts, delta, size, radius = (
                    starts.take(keep),
                    delta[keep],
                    size[keep],
                    radius[keep],
                )
            radius = torch.where(size > 0, torch.minimum(size, 2.0 * radius), radius)
            if normalised and turn > 0 and self.task.form.p < 2.0:
                delta = 0.5 * (delta + starts.delta)
            starts = self.tangents(starts.place, delta)
            if not normalised:
                distinct = _first_of_equals(starts.keys())
                starts, radius = starts.take(distinct), radius[distinct]

    def _unsolved(self, starts: _Tangents) -> _Tangents:
        """The starts whose tangents are those of no problem that was a start before.

        Where inputs are normalised, problems differ by where they are looked at from: all of them.
        """
        if self.task.form.preparation.normalize > 0.0:
            return starts
        keys = starts.keys()
        new = _first_of_equals(keys)
        for known in self.solved_keys:
            new = new[~torch.isin(keys[new], known)]
        self.solved_keys.append(keys[new])
        return starts.take(new)

    def radii(self) -> Tensor:
        """The smallest radius known of each point, or the distance of the centre."""
        center = self.task.form.preparation.center
        far = self.task.ball.norms(self.task.x if center is None else self.task.x - center)
        size = self.found.size
        return torch.where(size.isfinite() & (size > 0), size, torch.where(far > 0, far, 1.0))

    def tangents(self, place: Tensor, delta: Tensor) -> _Tangents:
        """The tangents at perturbations (m, n), with the best own and foreign output there."""
        s, _, _ = self._preactivations(place, delta)
        out, own = torch.relu(s) ** self.task.form.p @ self.weights.T, self.task.own[place]
        mine = out.masked_fill(~own, -torch.inf).argmax(1)
        other = out.masked_fill(own, -torch.inf).argmax(1)
        a, p = self.weights[mine] - self.weights[other], self.task.form.p
        weight = _speaking(a.abs() ** (1.0 / p) * s, p, a < 0)
        return _Tangents(place, delta, mine, other, weight)

    def solved(
        self,
        starts: _Tangents,
        radius: Tensor,
        steps: int,
        product: float,
        *,
        silent: bool = False,
    ) -> Tensor:
        """The solutions (m, n) of the convex problems, noted where they break their point.

        With `silent` all own neurons are to be silent, whatever they weigh.
        """
        unit = radius.unsqueeze(1)
        boundary = self._boundary(starts, unit, silent)
        bounds = self._bounds(starts.place)
        scaled = None if bounds is None else (bounds[0] / unit, bounds[1] / unit)
        norm = self.task.ball.norm
        delta = unit * smallest_to_convex(
            boundary, norm, scaled, starts.delta / unit, steps, product
        )
        left = torch.arange(len(delta), device=delta.device)
        for factor in LENGTHENING_FACTORS:
            longer = self._cut(starts.place[left], factor * delta[left])
            margin = note_smallest(self.task, self.found, starts.place[left], longer)
            left = left[~(margin <= self.found.broken_below[starts.place[left]])]
            if len(left) == 0:
                break
        return self._cut(starts.place, delta)

    def _boundary(self, starts: _Tangents, unit: Tensor, silent: bool) -> ConvexBoundary:
        """The convex problems of starts, in units of radii (m, 1) and of the boundary's slope."""
        scale, p = self.task.form.preparation.scale, self.task.form.p
        a = self.weights[starts.mine] - self.weights[starts.other]
        s, jacobian, bow = self._preactivations(starts.place, starts.delta)
        size, weight = a.abs() ** (1.0 / p), starts.weight
        if silent:
            p, size, weight = 1.0, (a > 0).to(a), torch.zeros_like(a)
        s, at = size * s, starts.delta / unit
        if bow is not None:
            bow = scale * unit * bow if p >= 2.0 else None
        plain = ConvexBoundary(
            p, self.neurons, jacobian, bow, scale * unit * size, a > 0, at, s, s[:, 0], at
        )
        weight = torch.where(a < 0, weight, 0.0)
        slope = plain.gradient(at, weight)
        level = (weight * s).sum(1) - (slope * at).sum(1)
        own = plain.gradient(at, _speaking(s, p, a > 0)) - slope
        most = plain.gradient(at, (a > 0).to(s))
        steepness = torch.maximum(self._dual(own), LEAST_SLOPE_SHARE * self._dual(most))
        steepness = torch.where(steepness > 0, steepness, 1.0)
        louder = LOUDER * a.shape[1] ** (-1.0 / p)
        return replace(
            plain,
            sizes=plain.sizes / steepness.unsqueeze(1),
            values=s / steepness.unsqueeze(1) + louder,
            level=level / steepness + 0.5 * louder,
            slope=slope / steepness.unsqueeze(1),
        )

    def _preactivations(
        self, place: Tensor, delta: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """s (m, h) of perturbed points, and how `size` depends on z; None if it is 1.

        Its gradient g (m, n), and the bow c (m, 1) with size + <g, move> + c |move|^2 / 2 nowhere
        below it: ||z||^normalize is concave in ||z||, and ||z|| <= (||z||^2 / l + l) / 2.
        """
        preparation = self.task.form.preparation
        z = preparation.scaled_offset(self.task.x[place] + delta)
        size, gradient, bow = torch.ones_like(z[:, :1]), None, None
        if preparation.normalize > 0.0:
            length = torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=TINY)
            size = length**preparation.normalize
            gradient = preparation.normalize * size / length * (z / length)
            bow = preparation.normalize * size / length / length
        return torch.cat([z, size], 1) @ self.neurons.directions.T, gradient, bow

    def _first_starts(self, places: Tensor, generator: torch.Generator) -> _Tangents:
        """The points themselves, what is known, directions all around, and own neurons silent."""
        self._note_center(places)
        silent, silenced = self._silenced(places)
        around = self._around(places, FIRST_DIRECTIONS, generator)
        delta = torch.cat([torch.zeros_like(self.task.x), self.found.delta, around, silenced])
        return self.tangents(torch.cat([places.repeat(2 + FIRST_DIRECTIONS), silent]), delta)

    def _later_starts(self, places: Tensor, generator: torch.Generator) -> _Tangents:
        """What is known, directions all around the points, and around what is known."""
        known = self.found.delta[places]
        around = self._around(places, 2 * LATER_DIRECTIONS, generator)
        far, near = around.split(LATER_DIRECTIONS * len(places))
        place = places.repeat(LATER_DIRECTIONS)
        near = self._cut(place, self.found.delta[place] + NEAR_SHARE * near)
        every = places.repeat(1 + 2 * LATER_DIRECTIONS)
        return self.tangents(every, torch.cat([known, far, near]))

    def _around(self, places: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Perturbations in `count` directions, the same for all places, (count * m, n)."""
        n = self.task.x.shape[1]
        ways = torch.randn(count, n, generator=generator, dtype=torch.float64).to(self.task.x)
        share = torch.rand(count, generator=generator, dtype=torch.float64).to(self.task.x)
        ways *= (FARTHEST_START_RADII * share / self.task.ball.norms(ways)).unsqueeze(1)
        delta = (ways.unsqueeze(1) * self.radii()[places].unsqueeze(1)).flatten(0, 1)
        return self._cut(places.repeat(count), delta)

    def _toward_neurons(self) -> _Tangents:
        """For each of the foreign neurons that can speak loudest, that it alone speaks."""
        places = torch.arange(len(self.task), device=self.task.x.device)
        zero = torch.zeros_like(self.task.x)
        s, _, _ = self._preactivations(places, zero)
        mine = self.tangents(places, zero).mine
        foreign = self.weights.masked_fill(self.task.own.unsqueeze(2), -torch.inf)
        most, target = foreign.max(1)
        gain = (most - self.weights[mine]).clamp(min=0.0) ** (1.0 / self.task.form.p)
        steepness = self.task.form.preparation.scale * self._dual(self.neurons.directions[:, :-1])
        loudest = gain * (s + self.radii().unsqueeze(1) * steepness)
        loudest = torch.where(gain > 0, loudest, -torch.inf)
        loudest[:, -1] = -torch.inf  # a bias does not move
        value, neuron = loudest.topk(min(DIRECTED_NEURONS, loudest.shape[1]), dim=1)
        row, column = torch.nonzero(value.isfinite(), as_tuple=True)
        neuron = neuron[row, column]
        weight = torch.nn.functional.one_hot(neuron, s.shape[1]).to(s)
        return _Tangents(row, zero[row], mine[row], target[row, neuron], weight)

    def _note_center(self, places: Tensor) -> None:
        """Note where a network without biases is zero, which counts as broken."""
        center = self.task.form.preparation.center
        delta = -self.task.x if center is None else center - self.task.x
        note_smallest(self.task, self.found, places, self._cut(places, delta))

    def _silenced(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Perturbations that silence all own neurons, which breaks a point if biases are equal.

        Against some of the best foreign outputs; the places of points (m,), and these (m, n).
        """
        at = self.tangents(places, torch.zeros_like(self.task.x))
        out = self.task.form.outputs(self.task.x).masked_fill(self.task.own, -torch.inf)
        value, target = out.topk(min(SILENT_TARGETS, out.shape[1]), dim=1)
        equal = self.weights[at.mine, -1].unsqueeze(1) == self.weights[target, -1]
        place, rank = torch.nonzero(equal & value.isfinite(), as_tuple=True)
        if len(place) == 0:
            return place, self.task.x[:0]
        starts = replace(at.take(place), other=target[place, rank])
        steps, product = STEPS_AND_PRODUCT[0]
        return place, self.solved(starts, self.radii()[place], steps, product, silent=True)

    def _dual(self, slope: Tensor) -> Tensor:
        """The dual norm (m,) of slopes (m, n)."""
        order = DUAL_ORDERS[self.task.ball.norm]
        size: Tensor = torch.linalg.vector_norm(slope, order, dim=1)
        return size

    def _bounds(self, place: Tensor) -> Bounds | None:
        """What the box leaves to perturbations of the points at `place`."""
        return None if self.bounds is None else (self.bounds[0][place], self.bounds[1][place])

    def _cut(self, place: Tensor, delta: Tensor) -> Tensor:
        """Perturbations cut by the box; those that are not finite become zero."""
        delta = torch.where(delta.isfinite().all(1, keepdim=True), delta, 0.0)
        bounds = self._bounds(place)
        return delta if bounds is None else torch.clamp(delta, *bounds)


def _first_of_equals(keys: Tensor) -> Tensor:
    """The places of the first of each of the keys (m,), in order."""
    kinds, kind = keys.unique(return_inverse=True)
    places = torch.arange(len(keys), device=keys.device)
    first = places.new_full((len(kinds),), len(keys)).scatter_reduce(0, kind, places, "amin")
    return first.sort().values


def _speaking(s: Tensor, p: float, some: Tensor) -> Tensor:
    """The gradient (m, h) of ||relu(s_j)||_p over `some` of the neurons, in s."""
    r = torch.where(some, torch.relu(s), 0.0)
    share = r / r.amax(1, keepdim=True).clamp(min=TINY)
    norm = (share**p).sum(1, keepdim=True).clamp(min=TINY) ** (1.0 / p)
    return torch.where(r > 0, (share / norm) ** (p - 1.0), 0.0)
