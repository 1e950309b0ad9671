"""The convex-concave procedure: smallest perturbations from many starts, on small networks.

A point is broken where foreign neurons speak as loudly as own ones. With a = W_own - W_target that
is (sum over a_j < 0 of |a_j| relu(s_j)^p)^(1/p) >= (sum over a_j > 0 of a_j relu(s_j)^p)^(1/p).
Both sides are convex in the perturbation. The foreign one is nowhere below its tangents, the
weighted sums of |a_j|^(1/p) s_j; with one of them in its place the problem is convex, and whatever
solves it breaks the point. The tangent there leads on, until nothing gets shorter. For p = 1 a
tangent stands for a set of foreign neurons that speak, and the solution is exact for that set.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from extremal._tensors import RowRecord, batches
from extremal.attack.attack_result import BestPerturbations
from extremal.attack.projection import Bounds
from extremal.attack.surrogate import ReducedProblem
from extremal.attack.two_layer.interior_point import ConvexBoundary, smallest_to_convex
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
# So many points are searched at a time, from some twenty starts each.
POINTS_AT_ONCE = 128
# Each convex problem is solved by so many Newton steps, the first with slack times multiplier as
# large as the second number says, in units of the radius; its solution makes the next problem.
STEPS_AND_PRODUCT = ((12, 0.3), (8, 0.03), (8, 0.003))
# A start is given up if its perturbation is then longer than the smallest known by these factors.
MOST_RADII = (3.0, 1.5, 1.0)
# Starts are from so many random directions around a point ...
DIRECTIONS = 8
# ... at up to so many radii, and around the smallest perturbation known so much nearer.
FARTHEST_START_RADII, NEAR_SHARE = 1.5, 0.3
# The first round also starts from so many foreign neurons, each of which is to speak alone.
DIRECTED_NEURONS = 12
# Later rounds are made for points that got shorter by this share in the one before.
WORTHWHILE_SHARE = 1e-3
# So many later rounds are made at most.
MOST_LATER_ROUNDS = 4
# Tangents whose weights are the same to this part of the largest are taken for the same.
EQUAL_WEIGHT_STEPS = 16
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


def convex_concave_search(task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> None:
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
        found = _ConvexConcave.of(task, best, some).found_after_all_rounds()
        shorter = found.size < best.size[some]
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

    def joined(self, others: _Tangents) -> _Tangents:
        """These and others."""
        names = [field.name for field in fields(self)]
        return _Tangents(*(torch.cat([getattr(self, of), getattr(others, of)]) for of in names))

    def distinct(self) -> Tensor:
        """The places of the first of those that are equal in all but where they begin."""
        largest = self.weight.amax(1, keepdim=True).clamp(min=TINY)
        coarse = (EQUAL_WEIGHT_STEPS * self.weight / largest).round().long()
        every = torch.cat([torch.stack([self.place, self.mine, self.other], 1), coarse], 1)
        kinds, kind = every.unique(dim=0, return_inverse=True)
        places = torch.arange(len(every), device=every.device)
        first = places.new_full((len(kinds),), len(every)).scatter_reduce(0, kind, places, "amin")
        return first.sort().values


@dataclass(frozen=True, eq=False)
class _ConvexConcave:
    """Points of a task in float64, with a network whose biases are neurons, and what was found.

    s = (z, size) @ neurons.T, where size is 1, or ||z||^normalize where inputs are normalised:
    there all neurons are multiplied by it, which changes no class.
    """

    task: ReducedProblem
    found: BestPerturbations
    bounds: Bounds | None  # that the box leaves to perturbations
    neurons: Tensor  # (h, n + 1)
    weights: Tensor  # (C, h)

    @classmethod
    def of(cls, task: ReducedProblem, best: BestPerturbations, rows: Tensor) -> _ConvexConcave:
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
            torch.cat([neurons, bias]),
            torch.cat([form.weights, form.constant.unsqueeze(1)], 1),
        )

    def found_after_all_rounds(self) -> BestPerturbations:
        """The smallest perturbations that all rounds of starts lead to."""
        generator = torch.Generator().manual_seed(0)
        places = torch.arange(len(self.task), device=self.task.x.device)
        self._note_silent(self._tangents(places, torch.zeros_like(self.task.x)))
        self._descend(self._first_starts(places, generator))
        for _ in range(MOST_LATER_ROUNDS):
            before = self.found.size[places]
            self._descend(self._later_starts(places, generator))
            shorter = self.found.size[places] < (1.0 - WORTHWHILE_SHARE) * before
            places = places[shorter]
            if len(places) == 0:
                break
        return self.found

    def _descend(self, starts: _Tangents) -> None:
        """Solve one convex problem after the other from each start, and note what breaks points."""
        radius = self._radii()[starts.place]
        for (steps, product), most in zip(STEPS_AND_PRODUCT, MOST_RADII, strict=True):
            distinct = starts.distinct()
            starts, radius = starts.take(distinct), radius[distinct]
            delta = self._solved(starts, radius, steps, product)
            size = self.task.ball.norms(delta)
            keep = (size > 0) & (size <= most * self._radii()[starts.place])
            if not bool(keep.any()):
                return
            radius = torch.minimum(size, 2.0 * radius)[keep]
            starts = self._tangents(starts.place[keep], delta[keep])

    def _radii(self) -> Tensor:
        """The smallest radius known of each point, or the distance of the centre."""
        center = self.task.form.preparation.center
        far = self.task.ball.norms(self.task.x if center is None else self.task.x - center)
        size = self.found.size
        return torch.where(size.isfinite() & (size > 0), size, torch.where(far > 0, far, 1.0))

    def _tangents(self, place: Tensor, delta: Tensor) -> _Tangents:
        """The tangents at perturbations (m, n), with the best own and foreign output there."""
        s, _ = self._preactivations(place, delta)
        out, own = torch.relu(s) ** self.task.form.p @ self.weights.T, self.task.own[place]
        mine = out.masked_fill(~own, -torch.inf).argmax(1)
        other = out.masked_fill(own, -torch.inf).argmax(1)
        a, p = self.weights[mine] - self.weights[other], self.task.form.p
        weight = _norm_gradient(a.abs() ** (1.0 / p) * s, p, a < 0)
        return _Tangents(place, delta, mine, other, weight)

    def _solved(self, starts: _Tangents, radius: Tensor, steps: int, product: float) -> Tensor:
        """The solutions (m, n) of the convex problems, noted where they break their point."""
        unit = radius.unsqueeze(1)
        bounds = self._bounds(starts.place)
        bounds = None if bounds is None else (bounds[0] / unit, bounds[1] / unit)
        boundary, norm = self._boundary(starts, unit), self.task.ball.norm
        moved = smallest_to_convex(boundary, norm, bounds, starts.delta / unit, steps, product)
        delta = self._cut(starts.place, unit * moved)
        left = torch.arange(len(delta), device=delta.device)
        for factor in LENGTHENING_FACTORS:
            place = starts.place[left]
            longer = self._cut(place, factor * delta[left])
            margin = note_smallest(self.task, self.found, place, longer)
            left = left[~(margin <= self.found.broken_below[place])]
            if len(left) == 0:
                break
        return delta

    def _boundary(self, starts: _Tangents, unit: Tensor) -> ConvexBoundary:
        """The convex problems of starts, in units of radii (m, 1) and of the boundary's slope.

        Where no foreign neuron is to speak, each own one has to fall silent, whatever its power.
        """
        p, a = self.task.form.p, self.weights[starts.mine] - self.weights[starts.other]
        s, last = self._preactivations(starts.place, starts.delta)
        size, own, nothing = a.abs() ** (1.0 / p), a > 0, torch.zeros_like(a[:, 0])
        if not bool(starts.weight.any()):
            p, size = 1.0, own.to(a)
        sizes = self.task.form.preparation.scale * unit * size
        whole = ConvexBoundary(p, self.neurons, last, sizes, size * s, nothing, last)
        at, s = starts.delta / unit, size * s
        values, slope = s - whole.changes(at), whole.gradient(starts.weight)
        level = (starts.weight * values).sum(1)
        steepness = torch.maximum(
            self._dual(whole.gradient(_norm_gradient(s, p, own)) - slope),
            LEAST_SLOPE_SHARE * self._dual(whole.gradient(own.to(s))),
        )
        steepness = torch.where(steepness > 0, steepness, 1.0).unsqueeze(1)
        louder = LOUDER * a.shape[1] ** (-1.0 / p)
        return replace(
            whole,
            sizes=torch.where(own, sizes / steepness, 0.0),
            values=values / steepness + louder,
            level=level / steepness.squeeze(1) + 0.5 * louder,
            slope=slope / steepness,
        )

    def _preactivations(self, place: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """s (m, h) of perturbed points, and the gradient (m, n) of `size` in z."""
        preparation = self.task.form.preparation
        z = preparation.scaled_offset(self.task.x[place] + delta)
        size, gradient = torch.ones_like(z[:, :1]), torch.zeros_like(z)
        if preparation.normalize > 0.0:
            length = torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=TINY)
            size = length**preparation.normalize
            gradient = preparation.normalize * size / length * (z / length)
        return torch.cat([z, size], 1) @ self.neurons.T, gradient

    def _first_starts(self, places: Tensor, generator: torch.Generator) -> _Tangents:
        """The points themselves, what is known, directions all around, and foreign neurons."""
        around = self._around(places, DIRECTIONS, generator)
        delta = torch.cat([torch.zeros_like(self.task.x), self.found.delta, around])
        starts = self._tangents(places.repeat(2 + DIRECTIONS), delta)
        return starts.joined(self._toward_neurons(starts.take(slice(len(places)))))

    def _later_starts(self, places: Tensor, generator: torch.Generator) -> _Tangents:
        """What is known, directions all around the points, and around what is known."""
        known = self.found.delta[places]
        far = self._around(places, DIRECTIONS, generator)
        near = NEAR_SHARE * self._around(places, DIRECTIONS, generator)
        near = self._cut(places.repeat(DIRECTIONS), known.repeat(DIRECTIONS, 1) + near)
        every = places.repeat(1 + 2 * DIRECTIONS)
        return self._tangents(every, torch.cat([known, far, near]))

    def _around(self, places: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Perturbations in `count` directions, the same for all places, (count * m, n)."""
        n = self.task.x.shape[1]
        ways = torch.randn(count, n, generator=generator, dtype=torch.float64).to(self.task.x)
        share = torch.rand(count, generator=generator, dtype=torch.float64).to(self.task.x)
        ways *= (FARTHEST_START_RADII * share / self.task.ball.norms(ways)).unsqueeze(1)
        delta = (ways.unsqueeze(1) * self._radii()[places].unsqueeze(1)).flatten(0, 1)
        return self._cut(places.repeat(count), delta)

    def _toward_neurons(self, points: _Tangents) -> _Tangents:
        """For each of the foreign neurons that can speak loudest, that it alone speaks.

        `points` are the points themselves.
        """
        s, _ = self._preactivations(points.place, points.delta)
        foreign = self.weights.masked_fill(self.task.own.unsqueeze(2), -torch.inf)
        most, target = foreign.max(1)
        gain = (most - self.weights[points.mine]).clamp(min=0.0) ** (1.0 / self.task.form.p)
        steepness = self.task.form.preparation.scale * self._dual(self.neurons[:, :-1])
        loudest = gain * (s + self._radii().unsqueeze(1) * steepness)
        loudest = torch.where(gain > 0, loudest, -torch.inf)
        loudest[:, -1] = -torch.inf  # a bias does not move
        value, neuron = loudest.topk(min(DIRECTED_NEURONS, loudest.shape[1]), dim=1)
        row, column = torch.nonzero(value.isfinite(), as_tuple=True)
        neuron = neuron[row, column]
        weight = torch.nn.functional.one_hot(neuron, s.shape[1]).to(s)
        return replace(points.take(row), other=target[row, neuron], weight=weight)

    def _note_silent(self, points: _Tangents) -> None:
        """Note where all own neurons are silent, which breaks a point if biases are equal.

        `points` are the points themselves. Without biases that is so at the centre at least.
        """
        center = self.task.form.preparation.center
        delta = -self.task.x if center is None else center - self.task.x
        note_smallest(self.task, self.found, points.place, self._cut(points.place, delta))
        nothing = replace(points, weight=torch.zeros_like(points.weight))
        self._solved(nothing, self._radii(), *STEPS_AND_PRODUCT[0])

    def _dual(self, slope: Tensor) -> Tensor:
        """The dual norm (m,) of slopes (m, n)."""
        size: Tensor = torch.linalg.vector_norm(slope, DUAL_ORDERS[self.task.ball.norm], dim=1)
        return size

    def _bounds(self, place: Tensor) -> Bounds | None:
        """What the box leaves to perturbations of the points at `place`."""
        return None if self.bounds is None else (self.bounds[0][place], self.bounds[1][place])

    def _cut(self, place: Tensor, delta: Tensor) -> Tensor:
        """Perturbations cut by the box; those that are not finite become zero."""
        delta = torch.where(delta.isfinite().all(1, keepdim=True), delta, 0.0)
        bounds = self._bounds(place)
        return delta if bounds is None else torch.clamp(delta, *bounds)


def _norm_gradient(s: Tensor, p: float, some: Tensor) -> Tensor:
    """The gradient (m, h) of ||relu(s_j)||_p over `some` of the neurons, in s."""
    r = torch.where(some, torch.relu(s), 0.0)
    share = r / r.amax(1, keepdim=True).clamp(min=TINY)
    norm = (share**p).sum(1, keepdim=True).clamp(min=TINY) ** (1.0 / p)
    return torch.where(r > 0, (share / norm) ** (p - 1.0), 0.0)
