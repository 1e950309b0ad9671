"""Which pairs of a tile may be nearer than a limit, by lower bounds for billions of pairs.

Those in float32 give away what rounding may lose, so that no pair is ruled out by it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Tile = tuple[Tensor, Tensor]  # places of its rows and of its columns
Bound = Callable[[Tile, Tensor], Tensor]  # tile and rows' limits to (rows, columns) of bool
Sample = tuple[Tensor, Tensor, Tensor]  # pairs of points, and the limits of the first ones

_LOOKED_AT = 64  # coordinates that a bound in l-inf looks at
_RUN = 8  # neighbouring coordinates that a bound in l1 adds up
_EPS = torch.finfo(torch.float32).eps


def by_coordinates(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l-inf distance over a few coordinates, those that tell the most pairs of a sample apart.

    In bytes it is exact.
    """
    chosen = telling(*sample, count=_LOOKED_AT)
    kind = torch.uint8 if values.dtype == torch.uint8 else torch.float32
    one = values[:, chosen].to(kind).T.contiguous()  # (coordinates, n)
    two = one if other is values else other[:, chosen].to(kind).T.contiguous()
    lost = 0.0 if kind == torch.uint8 else 4.0 * _EPS * _largest(values, other)

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        a, b = one[:, tile[0]].unsqueeze(2), two[:, tile[1]]  # (coordinates, rows, 1)
        far = torch.zeros(a.shape[1], b.shape[1], dtype=kind)
        for k in range(len(a)):
            gap = torch.maximum(a[k], b[k]).sub_(torch.minimum(a[k], b[k]))
            torch.maximum(far, gap, out=far)
        if kind != torch.uint8:
            return far.sub_(lost) < limit.unsqueeze(1)
        whole = limit.clamp(max=255.0).ceil().to(torch.uint8).unsqueeze(1)
        return (far < whole).logical_or_((limit > 255.0).unsqueeze(1))

    return bound


def telling(one: Tensor, two: Tensor, limit: Tensor, *, count: int) -> Tensor:
    """Coordinates (count,) at most that tell pairs (m, dim) to be `limit` (m,) apart or more.

    Each next one tells the most of the pairs that none has told so far; once none tells any more,
    all pairs count again.
    """
    told = (one.float() - two.float()).abs_() >= limit.float().unsqueeze(1)
    chosen: list[int] = []
    left = torch.ones(len(told), dtype=torch.bool)
    free = torch.ones(told.shape[1], dtype=torch.bool)
    for _ in range(min(count, told.shape[1])):
        gain = told[left].sum(0).where(free, -1)
        if int(gain.max()) == 0:
            left.fill_(True)
            gain = told.sum(0).where(free, -1)
        best = int(gain.argmax())
        chosen.append(best)
        free[best] = False
        left &= ~told[:, best]
    return torch.tensor(chosen)


def by_products(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l2 distance from a matrix product: |a - b|^2 = |a|^2 + |b|^2 - 2 <a, b>."""
    middle = values.float().mean(0)
    lengths = [_lengths(x, middle) for x in (values, other)]
    dim = values.shape[1]
    lost = 4.0 * _EPS * dim**0.5 * _largest(values, other)  # in the points and in the mean

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        rows, columns = tile
        total = lengths[0][rows].unsqueeze(1) + lengths[1][columns].unsqueeze(0)
        one, two = (
            x.index_select(0, at).float() - middle for x, at in ((values, rows), (other, columns))
        )
        found = torch.addmm(total, one, two.T, alpha=-2.0)
        found = found.sub_(2.0 * _EPS * dim * total).clamp_(min=0.0).sqrt_().sub_(lost)
        return found < limit.unsqueeze(1)

    return bound


def by_sums(values: Tensor, other: Tensor, sample: Sample) -> Bound:
    """The l1 distance of sums over runs of coordinates, and |a - b| >= (a - b)^2 / the widest."""
    sums = [_runs(x.float()) for x in (values, other)]
    products = by_products(values, other, sample)
    widest = max(float(x.max()) for x in (values, other))
    widest -= min(float(x.min()) for x in (values, other))
    count = sums[0].shape[1]
    lost = 4.0 * _EPS * _RUN * _RUN * count * _largest(values, other)

    def bound(tile: Tile, limit: Tensor) -> Tensor:
        within = (limit * max(widest, 1e-30) * (1.0 + 4.0 * _EPS)).sqrt()
        far = torch.cdist(sums[0][tile[0]], sums[1][tile[1]], p=1.0)
        far = far.mul_(1.0 - 2.0 * _EPS * count).sub_(lost)
        return products(tile, within).logical_and_(far < limit.unsqueeze(1))

    return bound


def _largest(values: Tensor, other: Tensor) -> float:
    return max(max(float(x.max()), -float(x.min())) for x in (values, other))


def _lengths(x: Tensor, middle: Tensor) -> Tensor:
    """Squared lengths without the mean, in parts: no second copy of the data."""
    return torch.cat([(part.float() - middle).square_().sum(1) for part in x.split(1024)])


def _runs(x: Tensor) -> Tensor:
    """Sums of neighbouring coordinates, which are alike in images."""
    whole = x.shape[1] // _RUN * _RUN
    parts = [x[:, :whole].unflatten(1, (-1, _RUN)).sum(2), x[:, whole:].sum(1, keepdim=True)]
    return torch.cat(parts, dim=1).contiguous()
