"""The joint search for the scale and the point of a distance.

f and F depend on x only through the span of their neurons, where many starts cost little. Where a
network has many neurons, they are gathered around the other's, and only where that leaves out too
much are the best points carried on with all neurons, in the whole space.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.measure.classifier_distance.network_difference import Pair, Sum, as_sum, in_span, onto
from extremal.measure.distances.ascent import ascend
from extremal.measure.distances.gather import gather
from extremal.measure.distances.scale import best_scale
from extremal.models import PReLUNet

_LARGE = 200  # neurons from which on it pays to explore with fewer
_COARSE = 1e-3  # what those may leave out, as a share of all contributions, if gathering fails
_SMALL = 1e-3  # what gathering may leave out, as a share of the distance
_AGREE = 1e-5  # relative difference of what ascents find and what the scale was chosen for
_ROUNDS = 30
_FOLLOWED = 3  # maxima of each sign that are followed as the scale changes
_NEARBY = (0.0, 0.5, 0.9, 0.97, 0.99, 0.999, 0.9999, 1.0, 1.0001, 1.001, 1.01, 1.03, 1.1, 2.0)


@dataclass(frozen=True, eq=False)
class Found:
    """Points that ascents found, the scale that fits them best, and the largest gap at it."""

    seen: Tensor
    scale: float
    size: float
    converged: bool


def search(
    nets: tuple[PReLUNet, PReLUNet],
    sums: tuple[Sum, Sum],
    starts: int,
    steps: int,
    generator: torch.Generator,
    fixed: float | None = None,
) -> Found:
    """The points (n, dim) of largest gap at the best scale, or at a given one.

    `sums` are the networks without negligible neurons.
    """
    few, left_out = _fewer(nets, sums)
    pair = in_span(*few)
    x = torch.randn(starts, pair.f.directions.shape[1], generator=generator, dtype=torch.float64)
    first = torch.cat([onto(x, ball=False), pair.f.heaviest(30), pair.other.heaviest(30)])
    found = _told(pair, exchange(pair, first, steps, fixed), steps)
    if left_out[0] * found.scale + left_out[1] <= _SMALL * found.size:
        return found
    some = torch.randn(4, nets[0].dim, generator=generator, dtype=torch.float64)
    pair = Pair(*sums, None, ball=False)
    first = torch.cat([found.seen, onto(some, ball=False)])
    return _told(pair, exchange(pair, first, steps, fixed, found.scale), steps)


def _fewer(
    nets: tuple[PReLUNet, PReLUNet], sums: tuple[Sum, Sum]
) -> tuple[tuple[Sum, Sum], tuple[float, float]]:
    """Both with few neurons, and a bound on what that leaves out of each."""
    if max(len(part.weights) for part in sums) <= _LARGE:
        return sums, (0.0, 0.0)
    wide = 0 if len(sums[0].weights) >= len(sums[1].weights) else 1
    found = gather(sums[wide], sums[1 - wide])
    parts, left_out = list(sums), [0.0, 0.0]
    parts[wide], left_out[wide] = found.neurons, float(found.heights.abs().sum())
    if max(len(part.weights) for part in parts) > _LARGE:
        infinite = float("inf")
        small = [as_sum(net.effective(_COARSE)) for net in nets]
        return (small[0], small[1]), (infinite, infinite)
    return (parts[0], parts[1]), (left_out[0], left_out[1])


def exchange(
    pair: Pair, first: Tensor, steps: int, fixed: float | None, guess: float | None = None
) -> Found:
    """Ascents for the scale, and the best scale for the points found, until they agree.

    Between two looks from `first` only the maxima that were found are followed. With a `guess` for
    the scale `first` are such maxima already, and one look is enough.
    """
    starts, seen, everywhere = (first, first), first[:0], True
    scale = fixed or guess or best_scale(*pair.values(first))
    for _ in range(_ROUNDS):
        gaps = [pair.gap(scale, sign) for sign in (1.0, -1.0)]
        ends = [ascend(g, x, steps, ball=pair.ball) for g, x in zip(gaps, starts, strict=True)]
        seen = torch.cat([seen, *ends])
        a, b = pair.values(seen)
        size = float((scale * a - b).abs().max())
        if fixed is not None:
            return Found(seen, scale, size, True)
        refined = best_scale(a, b)
        lower = float((refined * a - b).abs().max())
        settled = size <= lower * (1.0 + _AGREE) + 1e-12
        if settled and (everywhere or guess is not None):
            return Found(seen, scale, size, True)
        scale, everywhere = refined, settled
        near = extremes(scale * a - b, seen, _FOLLOWED)
        starts = (torch.cat([first, near[0]]), torch.cat([first, near[1]])) if settled else near
    return Found(seen, scale, size, False)


def _told(pair: Pair, found: Found, steps: int) -> Found:
    """The points of the largest and least gap at scales near the one found, as unit vectors.

    They alone prove nearly as much about the distance as all points. The very top of each sign
    is climbed to the end.
    """
    a, b = pair.values(found.seen)
    nearby = found.scale * torch.tensor(_NEARBY, dtype=a.dtype)
    gaps = nearby[:, None] * a - b
    chosen = torch.unique(torch.cat([gaps.argmax(1), gaps.argmin(1)]))
    tops = zip((1.0, -1.0), extremes(found.scale * a - b, found.seen, 1), strict=True)
    ends = [
        ascend(pair.gap(found.scale, sign), top, steps, ball=pair.ball, still=0.0)
        for sign, top in tops
    ]
    points = torch.cat([found.seen[chosen], *ends])
    return Found(pair.whole(points), found.scale, found.size, found.converged)


def extremes(gap: Tensor, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The points of the largest and of the least gap, `count` of each."""
    count = min(count, len(gap))
    return x[gap.topk(count).indices], x[gap.topk(count, largest=False).indices]
