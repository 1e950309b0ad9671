"""The joint search for the scale and the point of a distance.

f and F depend on x only through the span of their neurons, where many starts cost little. Where a
network has many neurons, they are gathered around the other's, and only where that leaves out too
much are the best points carried on with all neurons, in the whole space.

Many ascents of the difference on the sphere or in the ball run at once, and the scale that fits
their points best is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.measure.classifier_distance.network_difference import (
    NetworkPair,
    NeuronSum,
    SignedDifference,
    as_sum,
    gather_neurons,
    in_span,
    to_sphere_or_ball,
)
from extremal.models import PReLUNet

# Steps between two looks at which ascents still rise.
_STEPS_BETWEEN_LOOKS = 12
# How many ascents go on after the first look.
_ASCENTS_KEPT = 24
# Cycles of coordinate descent in a step, which is taken only where it is good.
_DESCENT_CYCLES = 3
# Ascents begin at this many of the largest neurons of each network, too.
_STARTS_AT_NEURONS = 30
# The least scale that is tried: one above 0.
_LEAST_SCALE = 1e-300
# From this many neurons on it pays to explore with fewer.
_MANY_NEURONS = 200
# What the fewer neurons may leave out where gathering fails, as a share of all contributions.
_REDUCTION_SHARE = 1e-3
# What gathering may leave out without a search with all neurons, as a share of the distance.
_GATHERING_SHARE = 1e-3
# The relative difference of what ascents find and what the scale was chosen for, to agree.
_AGREEMENT_SHARE = 1e-5
# How often scale and ascents alternate, at most.
_MOST_ROUNDS = 30
# Maxima of each sign that are followed as the scale changes.
_FOLLOWED_MAXIMA = 3
# Points that have the largest differences at these multiples of the scale are kept.
_NEARBY_SCALES = (
    *(0.0, 0.5, 0.9, 0.97, 0.99, 0.999, 0.9999, 1.0),
    *(1.0001, 1.001, 1.01, 1.03, 1.1, 2.0),
)


def ascend(
    gap: SignedDifference, start: Tensor, steps: int, *, ball: bool, still: float = 1e-6
) -> Tensor:
    """Points (n', r) that ascents from `start` (n, r) reach; the lowest are given up on the way.

    A step goes to x + t (slope - sum_i l_i ridge_i) and back to the sphere or ball, where l in
    [0, 1]^k makes the bracket with x / t shortest: the exact maximiser of the linearised gap less
    its ridges and ||y - x||^2 / (2 t). It is taken where the gap rises; t doubles or shrinks.
    The end is a relative rise of at most `still` in a stretch of steps.
    """
    x = start
    value, slope = gap.value_and_slope(x)
    tau = 0.3 / torch.linalg.vector_norm(slope, dim=1, keepdim=True).clamp(min=1e-300)
    last = value
    for step in range(1, steps + 1):
        trial = to_sphere_or_ball(
            tau * shortest_residual(x / tau + slope, gap.ridges, _DESCENT_CYCLES), ball=ball
        )
        new, new_slope = gap.value_and_slope(trial)
        better = new > value
        rows = better[:, None]
        x, slope = torch.where(rows, trial, x), torch.where(rows, new_slope, slope)
        value = torch.where(better, new, value)
        tau = torch.where(rows, tau * 2.0, tau * 0.3)
        if step % _STEPS_BETWEEN_LOOKS == 0:
            rise = value - last
            top = value.topk(min(_ASCENTS_KEPT, len(value))).indices
            if bool((rise[top] <= still * value[top].abs()).all()):
                return x[top]
            x, value, slope, tau = x[top], value[top], slope[top], tau[top]
            last = value
    return x


def shortest_residual(z: Tensor, vectors: Tensor, cycles: int) -> Tensor:
    """z - sum_i l_i vectors_i with l in [0, 1]^k that makes it short, by coordinate descent."""
    if len(vectors) == 0:
        return z
    gram = vectors @ vectors.T
    squares = gram.diagonal().tolist()
    rest = z @ vectors.T  # (n, k): <z - sum_i l_i vectors_i, vectors_k>
    pulls = torch.zeros_like(rest)
    for _ in range(1 if len(vectors) == 1 else cycles):
        before = pulls.clone()
        for i, square in enumerate(squares):
            new = (pulls[:, i] + rest[:, i] / square).clamp_(0.0, 1.0)
            rest.addr_(new - pulls[:, i], gram[i], alpha=-1.0)
            pulls[:, i] = new
        if torch.allclose(pulls, before, rtol=0.0, atol=1e-9):
            break
    return z - pulls @ vectors


def best_scale(a: Tensor, b: Tensor) -> float:
    """The c > 0 with the least max_i |c a_i - b_i|, exactly: where two of the 2 n lines cross.

    The maximum is convex in c. The lowest line of a falling and the one of a rising end cross below
    it; the line on top of their crossing takes the place of one of them, until none is above.
    """
    slopes, offsets = torch.cat([a, -a]), torch.cat([-b, b])

    def top(c: float) -> tuple[float, float]:
        best = int((c * slopes + offsets).argmax())
        return float(slopes[best]), float(offsets[best])

    end = 2.0 * float(b.abs().max()) / max(float(a.abs().max()), _LEAST_SCALE)
    falling, rising = top(_LEAST_SCALE), top(end)
    if falling[0] >= 0.0 or rising[0] <= 0.0:
        return _LEAST_SCALE if falling[0] >= 0.0 else end
    for _ in range(len(slopes)):
        c = (falling[1] - rising[1]) / (rising[0] - falling[0])
        line = top(c)
        if line in (falling, rising) or line[0] == 0.0:
            break
        if line[0] < 0.0:
            falling = line
        else:
            rising = line
    return max(c, _LEAST_SCALE)


@dataclass(frozen=True, eq=False)
class FoundPoints:
    """Points that ascents found, the scale that fits them best, and the largest gap at it."""

    points: Tensor  # (n, r), or (n, dim) in the end
    scale: float
    size: float
    converged: bool


def search(
    nets: tuple[PReLUNet, PReLUNet],
    sums: tuple[NeuronSum, NeuronSum],
    starts: int,
    steps: int,
    generator: torch.Generator,
    fixed: float | None = None,
) -> FoundPoints:
    """The points (n, dim) of largest gap at the best scale, or at a given one.

    `sums` are the networks without negligible neurons.
    """
    few, left_out = _with_few_neurons(nets, sums)
    pair = in_span(*few)
    x = torch.randn(starts, pair.f.directions.shape[1], generator=generator, dtype=torch.float64)
    heavy = [part.largest_neurons(_STARTS_AT_NEURONS) for part in (pair.f, pair.other)]
    first = torch.cat([unit_rows(x), *heavy])
    found = _kept_points(pair, alternate(pair, first, steps, fixed), steps)
    if left_out[0] * found.scale + left_out[1] <= _GATHERING_SHARE * found.size:
        return found
    some = torch.randn(4, nets[0].dim, generator=generator, dtype=torch.float64)
    pair = NetworkPair(*sums, None, ball=False)
    first = torch.cat([found.points, unit_rows(some)])
    return _kept_points(pair, alternate(pair, first, steps, fixed, found.scale), steps)


def _with_few_neurons(
    nets: tuple[PReLUNet, PReLUNet], sums: tuple[NeuronSum, NeuronSum]
) -> tuple[tuple[NeuronSum, NeuronSum], tuple[float, float]]:
    """Both with few neurons, and a bound on what that leaves out of each."""
    if max(len(part.weights) for part in sums) <= _MANY_NEURONS:
        return sums, (0.0, 0.0)
    wide = 0 if len(sums[0].weights) >= len(sums[1].weights) else 1
    found = gather_neurons(sums[wide], sums[1 - wide])
    parts, left_out = list(sums), [0.0, 0.0]
    parts[wide], left_out[wide] = found.neurons, float(found.heights.abs().sum())
    if max(len(part.weights) for part in parts) > _MANY_NEURONS:
        infinite = float("inf")
        small = [as_sum(net.effective(_REDUCTION_SHARE)) for net in nets]
        return (small[0], small[1]), (infinite, infinite)
    return (parts[0], parts[1]), (left_out[0], left_out[1])


def alternate(
    pair: NetworkPair, first: Tensor, steps: int, fixed: float | None, guess: float | None = None
) -> FoundPoints:
    """Ascents for the scale, and the best scale for the points found, until they agree.

    Between two looks from `first` only the maxima that were found are followed. With a `guess` for
    the scale `first` are such maxima already, and one look is enough.
    """
    starts, points, everywhere = (first, first), first[:0], True
    scale = fixed or guess or best_scale(*pair.values(first))
    for _ in range(_MOST_ROUNDS):
        gaps = [pair.difference(scale, sign) for sign in (1.0, -1.0)]
        ends = [ascend(g, x, steps, ball=pair.ball) for g, x in zip(gaps, starts, strict=True)]
        points = torch.cat([points, *ends])
        a, b = pair.values(points)
        size = float((scale * a - b).abs().max())
        if fixed is not None:
            return FoundPoints(points, scale, size, True)
        refined = best_scale(a, b)
        lower = float((refined * a - b).abs().max())
        settled = size <= lower * (1.0 + _AGREEMENT_SHARE) + 1e-12
        if settled and (everywhere or guess is not None):
            return FoundPoints(points, scale, size, True)
        scale, everywhere = refined, settled
        near = extremes(scale * a - b, points, _FOLLOWED_MAXIMA)
        starts = (torch.cat([first, near[0]]), torch.cat([first, near[1]])) if settled else near
    return FoundPoints(points, scale, size, False)


def _kept_points(pair: NetworkPair, found: FoundPoints, steps: int) -> FoundPoints:
    """The points of the largest and least gap at scales near the one found, as unit vectors.

    They alone prove nearly as much about the distance as all points. The very top of each sign
    is climbed to the end.
    """
    a, b = pair.values(found.points)
    nearby = found.scale * torch.tensor(_NEARBY_SCALES, dtype=a.dtype)
    gaps = nearby[:, None] * a - b
    chosen = torch.unique(torch.cat([gaps.argmax(1), gaps.argmin(1)]))
    tops = zip((1.0, -1.0), extremes(found.scale * a - b, found.points, 1), strict=True)
    ends = [
        ascend(pair.difference(found.scale, sign), top, steps, ball=pair.ball, still=0.0)
        for sign, top in tops
    ]
    points = torch.cat([found.points[chosen], *ends])
    return FoundPoints(pair.in_all_coordinates(points), found.scale, found.size, found.converged)


def extremes(gap: Tensor, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The points of the largest and of the least gap, `count` of each."""
    count = min(count, len(gap))
    return x[gap.topk(count).indices], x[gap.topk(count, largest=False).indices]
