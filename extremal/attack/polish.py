"""Perturbations that break points, made smaller: the end of a minimal-radius attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.attack.ball import Ball
from extremal.attack.nearest import nearest
from extremal.attack.objectives import objective_gradient
from extremal.models import double, margin

_HALVINGS = 25
_SHARES = (1.0, 1.0, 0.5, 0.5, 0.2, 0.2, 0.1, 0.1)  # of the way, in the steps of the polish
_TRIALS = 10  # on each
_LONGER = (1.0, 1.0 + 1e-6, 1.0 + 1e-4, 1.01)


@dataclass(frozen=True, eq=False)
class Best:
    """The smallest perturbations that broke a point; of least margin where none did."""

    delta: Tensor  # (n, dim)
    size: Tensor  # (n,) float64: inf where none broke the point
    margin: Tensor  # (n,)

    @classmethod
    def begin(cls, judge: nn.Module, x: Tensor, y: Tensor, delta: Tensor, ball: Ball) -> Best:
        with torch.no_grad():
            value = margin(judge, (x + delta).double(), y).to(x.dtype)
        size = torch.where(value <= 0, ball.norms(delta), torch.inf)
        return cls(delta, size, value)

    def within(self, ball: Ball, share: float = 1.0) -> Ball:
        """The balls of the radii known, or a share of them: `ball` where none is smaller."""
        return Ball(ball.norm, share * self.size.clamp(max=float(ball.radius)), ball.box)

    def with_points(self, rows: Tensor, delta: Tensor, value: Tensor, ball: Ball) -> Best:
        """These, or what was met at `rows` where that is better."""
        size = torch.where(value <= 0, ball.norms(delta), torch.inf)
        none = torch.isinf(size) & torch.isinf(self.size[rows])
        better = (size < self.size[rows]) | (none & (value < self.margin[rows]))
        at = rows[better]
        return Best(
            self.delta.index_copy(0, at, delta[better]),
            self.size.index_copy(0, at, size[better]),
            self.margin.index_copy(0, at, value[better]),
        )


def bounded(delta: Tensor, ball: Ball) -> Tensor:
    """Perturbations without what a nearly flat network asks for: NaN, or coordinates too large."""
    most = 2.0 * float(ball.radius)
    return torch.nan_to_num(delta, nan=0.0, posinf=most, neginf=-most).clamp(-most, most)


def polished(net: nn.Module, x: Tensor, y: Tensor, ball: Ball, best: Best) -> Best:
    """Smaller perturbations that break the points, from where the boundary was met.

    Each step aims at the point nearest to x of the boundary linearised there, or at a part of the
    way to it. If the radius known, in that direction, is still broken, bisection between the two
    finds a smaller one.
    """
    for share in _SHARES:
        rows = torch.nonzero(torch.isfinite(best.size) & (best.size > 0)).squeeze(1)
        if len(rows) == 0:
            break
        part, labels, delta = x[rows], y[rows], best.delta[rows]
        seen = objective_gradient(net, part + delta, labels, "margin")
        height = seen.margin + (seen.gradient * delta).sum(1)
        origin = nearest(seen.gradient, height, ball.norm, ball.bounds(part))
        aim = delta + share * (bounded(origin, ball) - delta)
        size = ball.norms(aim)
        longer = (best.size[rows] / torch.where(size > 0, size, 1.0)).clamp(min=1.0, max=2.0)
        known = Ball(ball.norm, best.size[rows], ball.box)
        outer = known.project(longer.to(x.dtype).unsqueeze(1) * aim, part)
        best = _between(net, x, y, ball, best, rows, aim, outer)
    return best


def _between(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    best: Best,
    rows: Tensor,
    inner: Tensor,
    outer: Tensor,
) -> Best:
    """The best, with the points at `rows` bisected between two perturbations, `outer` first."""
    low, high = torch.zeros_like(inner[:, 0]), torch.ones_like(inner[:, 0])
    along = high
    for _ in range(_TRIALS):
        trial = inner + along.unsqueeze(1) * (outer - inner)
        with torch.no_grad():
            value = margin(net, x[rows] + trial, y[rows])
        best = best.with_points(rows, trial, value, ball)
        low, high = torch.where(value <= 0, low, along), torch.where(value <= 0, along, high)
        along = 0.5 * (low + high)
    return best


def just_broken(net: nn.Module, x: Tensor, y: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """Perturbations (n, dim) longer than `delta` by up to 1 %, by as little as breaks the point.

    A search in float32 ends so near the boundary that float64 may put it on the other side. Where
    even 1 % does not help, `delta` is left as it is.
    """
    judge, share = double(net), torch.zeros_like(delta[:, 0])
    for longer in _LONGER:
        trial = torch.where(share > 0, share, longer)
        share = torch.where(_broken(judge, x, y, trial, delta, ball), trial, 0.0)
    return torch.where(share > 0, share, 1.0).unsqueeze(1) * delta


def pulled_back(judge: nn.Module, x: Tensor, y: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """Points between x and x + delta, broken in float64 and as near to x as bisection finds."""
    delta = just_broken(judge, x, y, delta, ball)
    high = torch.ones_like(delta[:, 0])
    low = torch.where(_broken(judge, x, y, high, delta, ball), 0.0, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        hit = _broken(judge, x, y, middle, delta, ball)
        high, low = torch.where(hit, middle, high), torch.where(hit, low, middle)
    return ball.land(high.unsqueeze(1) * delta, x)


def _broken(
    judge: nn.Module, x: Tensor, y: Tensor, share: Tensor, delta: Tensor, ball: Ball
) -> Tensor:
    point = ball.land(share.unsqueeze(1) * delta, x)
    with torch.no_grad():
        return margin(judge, point.double(), y) <= 0
