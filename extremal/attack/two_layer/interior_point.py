"""Smallest moves to convex boundaries: a primal-dual interior-point method, a batch at a time.

min ||d|| over moves d with (sum over own neurons of relu(s_j(d))^p)^(1/p) <= level + <slope, d>.

Kinks are inequalities between unknowns: t >= |d_i| for the norms l1, with one t for each
coordinate, and linf, with one for all; and for p < 2 r_j >= s_j and r_j >= 0 with r_j in the place
of relu(s_j). From p = 2 on the p-norm has no kinks. Newton's equations are solved by elimination,
of r and t first, which is cheap, so that one matrix of the size of d is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from extremal.attack.projection import Bounds

# Powers from this on make norms that are smooth but where all neurons are silent.
LEAST_SMOOTH_POWER = 2.0
# Steps stop at this share of the way to where the first slack or multiplier is zero.
SHARE_TO_FIRST_ZERO = 0.95
# After a whole step of Newton slack times multiplier is to fall to this share of its mean.
LEAST_FALL = 0.1
# Slack times multiplier is not made smaller than this, in units of the radius.
LEAST_PRODUCT = 1e-9
# Where a bound leaves less room than this, in units of the radius, it is taken to leave so much.
LEAST_ROOM = 1e-9
# The first move keeps this share of the room, or of a radius, away from the bounds.
FIRST_SHARE_FROM_BOUNDS = 0.01
# The line's first slack is at least this, and so are those of the norms together.
LEAST_FIRST_SLACK = 1e-3
# The multipliers of a kink are at first at least this.
LEAST_FIRST_PULL = 1e-6
# The smooth norms' apex, where all neurons are silent, is rounded over this share of the product.
ROUNDED_APEX_SHARE = 0.1
# Where there are no kinks r_j follows s_j as if their inequality were so many times as stiff.
TIED = 1e12
# The matrix of Newton's step is given this share of its largest entry, against rounding.
JITTER_SHARE = 1e-13
# Numbers that are divided by are at least this.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class ConvexBoundary:
    """Where the p-norm of relu(s(d)) is at most level + <slope, d>, m problems at once.

    s_j(d) = values_j + sizes_j <(d, <last, d>), neurons_j>; those with sizes_j = 0 do not count.
    """

    p: float
    neurons: Tensor  # (h, n + 1), shared by all problems
    last: Tensor  # (m, n)
    sizes: Tensor  # (m, h), at least 0
    values: Tensor  # (m, h)
    level: Tensor  # (m,)
    slope: Tensor  # (m, n)

    def changes(self, step: Tensor) -> Tensor:
        """What a step (m, n) changes in s, (m, h)."""
        return self.sizes * (torch.cat([step, _dot(self.last, step)], 1) @ self.neurons.T)

    def gradient(self, weight: Tensor) -> Tensor:
        """The gradient (m, n) of sum_j weight_j s_j, for weights (m, h)."""
        whole = (weight * self.sizes) @ self.neurons
        return whole[:, :-1] + whole[:, -1:] * self.last

    def squares(self, weight: Tensor) -> Tensor:
        """sum_j weight_j grad s_j grad s_j^T, (m, n, n), for weights (m, h)."""
        k, last = self.neurons.shape[1], self.last.unsqueeze(1)
        whole = ((weight * self.sizes**2) @ self._pairs).view(-1, k, k)
        cross = whole[:, :-1, -1:] * last
        return whole[:, :-1, :-1] + cross + cross.mT + whole[:, -1:, -1:] * last * last.mT

    @cached_property
    def _pairs(self) -> Tensor:
        """The products of all pairs of a neuron's entries, (h, (n + 1)^2)."""
        return (self.neurons.unsqueeze(2) * self.neurons.unsqueeze(1)).flatten(1)


def smallest_to_convex(
    boundary: ConvexBoundary,
    norm: str,
    bounds: Bounds | None,
    start: Tensor,
    steps: int,
    product: float,
) -> Tensor:
    """argmin of ||d|| over the d in the bounds that the boundary lets, (m, n), in `steps` steps.

    Newton's steps on the optimality conditions, with slack times multiplier of all inequalities
    going from `product` toward zero. Bounds and start are in units of a radius, and the slope of
    the boundary is about one. Where there is no such d, what comes out is of no use.
    """
    iterate = _Iterate(boundary, norm, bounds, start, product)
    for _ in range(steps):
        iterate.step()
    return iterate.d


class _Iterate:
    """A move d, and slacks and multipliers of all inequalities, (m, k): of d, of r, of the line.

    Those of d are (m, b, n): sign_b d + lift_b t + constant >= 0, of bounds and of the norm. Those
    of r are (m, 2, h), or (m, 2, 0) where there are no kinks. The line's slack is what it leaves to
    the p-norm; its multiplier is called the force.
    """

    def __init__(
        self,
        boundary: ConvexBoundary,
        norm: str,
        bounds: Bounds | None,
        start: Tensor,
        product: float,
    ) -> None:
        self.boundary = boundary
        self.d, bounds = _inside(start, bounds)
        of_d, pull, self.rows = _first_of_d(self.d, norm, bounds, product)
        of_r, kink = _first_of_r(boundary, self.d, product)
        self.shapes = (of_d.shape[1:], of_r.shape[1:])
        one = torch.ones_like(self.d[:, :1])
        self.mu = product * one
        self.slack = self._joined(of_d, of_r, max(product, LEAST_FIRST_SLACK) * one)
        self.multiplier = self._joined(pull, kink, one)
        self.counted = (self.multiplier > 0).to(self.d)

    def step(self) -> None:
        """One step of Newton, as far as slacks and multipliers stay positive, and a lower mu."""
        step, change = self._direction()
        turn = (self.mu * self.counted - self.multiplier * change) / self.slack - self.multiplier
        solved = change.isfinite().all(1, keepdim=True)
        primal, dual = (
            torch.where(solved, _longest(*pair), 0.0)
            for pair in ((self.slack, change), (self.multiplier, turn))
        )
        self.d = torch.where(solved, self.d + primal * step, self.d)
        self.slack = torch.where(solved, self.slack + primal * change, self.slack)
        self.multiplier = torch.where(solved, self.multiplier + dual * turn, self.multiplier)
        mean = _dot(self.slack, self.multiplier) / self.counted.sum(1, keepdim=True)
        fall = 1.0 - (1.0 - LEAST_FALL) * torch.minimum(primal, dual)
        self.mu = torch.minimum(self.mu, fall * mean).clamp(min=LEAST_PRODUCT)

    def _direction(self) -> tuple[Tensor, Tensor]:
        """Newton's steps of d (m, n) and of all slacks (m, k).

        All other unknowns are eliminated; the force is what makes the line's own equation hold.
        """
        boundary, force, mu = self.boundary, self.multiplier[:, -1:], self.mu
        stiff, push = self.multiplier / self.slack, mu * self.counted / self.slack
        (stiff_d, stiff_r), (push_d, push_r) = self._parts(stiff), self._parts(push)
        of_d = _EliminatedNorm(self.rows, self.d, stiff_d, push_d)
        r = self._parts(self.slack)[1][:, 1]
        of_r = _EliminatedNeurons(boundary, self.d, r, force, stiff_r, push_r, mu)
        line = boundary.slope - of_r.slope
        rhs = of_d.rhs + force * boundary.slope - of_r.push
        free, bound = _solved(of_d.matrix + of_r.matrix, rhs, line)
        height = boundary.level.unsqueeze(1) + _dot(boundary.slope, self.d)
        missing = of_r.size + of_r.lack_in_size - height - _dot(line, free) + mu / force
        soft = _dot(line, bound) + of_r.soft + self.slack[:, -1:] / force
        more = missing / soft.clamp(min=TINY)
        step = free + more * bound
        of_line = mu / force - self.slack[:, -1:] * (1.0 + more / force)
        return step, self._joined(of_d.changes(step), of_r.changes(step, more), of_line)

    def _parts(self, every: Tensor) -> tuple[Tensor, Tensor]:
        """The entries of d's inequalities and of r's."""
        count = self.shapes[0].numel()
        of_d, of_r = every[:, :count], every[:, count:-1]
        return of_d.reshape(len(every), *self.shapes[0]), of_r.reshape(len(every), *self.shapes[1])

    def _joined(self, of_d: Tensor, of_r: Tensor, of_line: Tensor) -> Tensor:
        """All of them, (m, k)."""
        return torch.cat([of_d.flatten(1), of_r.flatten(1), of_line], 1)


class _EliminatedNorm:
    """What bounds and norm put into Newton's equations, with the t eliminated.

    rows = (sign (b, 1), lift (b, 1), holder (n, number of t)): how d and t enter each inequality,
    and which t bounds each coordinate. For l2 there is no t, and |d|^2 / 2 is minimised.
    """

    def __init__(
        self, rows: tuple[Tensor, Tensor, Tensor], d: Tensor, stiff: Tensor, push: Tensor
    ) -> None:
        self.sign, self.lift, self.holder = rows
        curve = float(self.holder.shape[1] == 0)
        self.cross = (self.sign * self.lift * stiff).sum(1).unsqueeze(2) * self.holder
        self.both = (self.lift * stiff).sum(1) @ self.holder
        self.need = (self.lift * push).sum(1) @ self.holder - 1.0
        self.matrix = torch.diag_embed(curve + stiff.sum(1))
        self.matrix = self.matrix - (self.cross / self.both.unsqueeze(1)) @ self.cross.mT
        moved = (self.cross @ (self.need / self.both).unsqueeze(2)).squeeze(2)
        self.rhs = (self.sign * push).sum(1) - curve * d - moved

    def changes(self, step: Tensor) -> Tensor:
        """What a step (m, n) of d does to the slacks (m, b, n)."""
        t_step = (self.need - (step.unsqueeze(1) @ self.cross).squeeze(1)) / self.both
        return self.sign * step.unsqueeze(1) + self.lift * (t_step @ self.holder.T).unsqueeze(1)


class _EliminatedNeurons:
    """What the own neurons' p-norm puts into Newton's equations, with the r eliminated.

    The matrix of the r alone is diag(diagonal) - bend weight weight^T, whose inverse is known.
    """

    def __init__(
        self,
        boundary: ConvexBoundary,
        d: Tensor,
        r: Tensor,
        force: Tensor,
        stiff: Tensor,
        push: Tensor,
        mu: Tensor,
    ) -> None:
        self.boundary, self.kinked, apex = boundary, r.shape[1] > 0, torch.zeros_like(mu)
        if not self.kinked:
            r = (boundary.values + boundary.changes(d)).clamp(min=0.0)
            stiff = torch.stack([torch.full_like(r, TIED), torch.zeros_like(r)], 1)
            push, apex = torch.zeros_like(stiff), ROUNDED_APEX_SHARE * mu / force
        (self.above, zero), own = stiff.unbind(1), boundary.sizes > 0
        self.size, self.weight, diagonal, bend = _power_norm(r, boundary.p, own, apex)
        self.diagonal = (force * diagonal + self.above + zero).clamp(min=TINY)
        self.low, bend = self.weight / self.diagonal, force * bend
        self.share = bend / (1.0 - bend * _dot(self.weight, self.low)).clamp(min=1e-12)
        self.rest = self._inverse(push.sum(1) - force * self.weight)
        self.follow = self._inverse(self.weight)
        self.lack_in_size, self.soft = _dot(self.weight, self.rest), _dot(self.weight, self.follow)
        self.slope = boundary.gradient(self.above * self.follow)
        self.push = boundary.gradient(push[:, 0] - self.above * self.rest)
        turned = boundary.gradient(self.above * self.low)
        square = self.share.unsqueeze(2) * turned.unsqueeze(2) * turned.unsqueeze(1)
        kept = self.above * (force * diagonal + zero) / self.diagonal
        self.matrix = boundary.squares(kept) - square

    def changes(self, step: Tensor, more: Tensor) -> Tensor:
        """What a step (m, n) of d and one (m, 1) of the force do to the slacks."""
        if not self.kinked:
            return step.new_zeros(len(step), 2, 0)
        s_step = self.boundary.changes(step)
        r_step = self._inverse(self.above * s_step) + self.rest - more * self.follow
        own = (self.boundary.sizes > 0).unsqueeze(1)
        return torch.where(own, torch.stack([r_step - s_step, r_step], 1), 0.0)

    def _inverse(self, value: Tensor) -> Tensor:
        """The inverse of the matrix of r times values (m, h)."""
        plain = value / self.diagonal
        return plain + self.share * self.low * _dot(self.weight, plain)


def _first_of_d(
    d: Tensor, norm: str, bounds: Bounds | None, product: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Slacks and multipliers (m, b, n) of bounds and norm, and how d and t enter them.

    Each product is about `product`, but that the multipliers of each t sum to 1, as they must.
    """
    n, eye = d.shape[1], torch.eye(d.shape[1], dtype=d.dtype, device=d.device)
    holder = {"l1": eye, "l2": eye[:, :0], "linf": eye.new_ones(n, 1)}[norm]
    slacks: list[Tensor] = []
    kinds: list[tuple[float, float]] = []
    if bounds is not None:
        slacks, kinds = [d - bounds[0], bounds[1] - d], [(1.0, 0.0), (-1.0, 0.0)]
    if norm != "l2":
        size = d.abs() if norm == "l1" else d.abs().amax(1, keepdim=True)
        t = 1.1 * size + (0.1 * product + LEAST_FIRST_SLACK) / size.shape[1]
        slacks, kinds = [*slacks, t - d, t + d], [*kinds, (-1.0, 1.0), (1.0, 1.0)]
    sign, lift = d.new_tensor(kinds).reshape(len(kinds), 2, 1).unbind(1)
    slack = torch.stack(slacks, 1) if slacks else d.new_zeros(len(d), 0, n)
    pull = product / slack
    total = ((lift * pull).sum(1) @ holder) @ holder.T
    pull = torch.where(lift > 0, pull / total.clamp(min=TINY).unsqueeze(1), pull)
    return slack, pull, (sign, lift, holder)


def _first_of_r(boundary: ConvexBoundary, d: Tensor, product: float) -> tuple[Tensor, Tensor]:
    """Slacks and multipliers (m, 2, h) of r >= s and r >= 0, with r a little above relu(s)."""
    own, s = boundary.sizes > 0, boundary.values + boundary.changes(d)
    if boundary.p >= LEAST_SMOOTH_POWER:
        none = s.new_zeros(len(s), 2, 0)
        return none, none
    r = s.clamp(min=0.0) + product * s.shape[1] ** (-1.0 / boundary.p)
    slack = torch.where(own.unsqueeze(1), torch.stack([r - s, r], 1), 1.0)
    weight = _power_norm(r, boundary.p, own, torch.zeros_like(s[:, :1]))[1].unsqueeze(1)
    pull = (weight * slack.flip(1) / slack.sum(1, keepdim=True)).clamp(min=LEAST_FIRST_PULL)
    return slack, torch.where(own.unsqueeze(1), pull, 0.0)


def _inside(d: Tensor, bounds: Bounds | None) -> tuple[Tensor, Bounds | None]:
    """Moves strictly inside of bounds, and bounds that leave some room."""
    if bounds is None:
        return d, None
    room = (bounds[1] - bounds[0]).clamp(min=LEAST_ROOM)
    low, high = bounds[1] - room, bounds[1]
    away = FIRST_SHARE_FROM_BOUNDS * room.clamp(max=1.0)
    return torch.minimum(torch.maximum(d, low + away), high - away), (low, high)


def _solved(matrix: Tensor, rhs: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
    """matrix^-1 rhs and matrix^-1 line, (m, n) both; NaN where there is no factor."""
    diagonal = torch.diagonal(matrix, dim1=1, dim2=2)
    diagonal += JITTER_SHARE * diagonal.amax(1, keepdim=True)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    both = torch.cholesky_solve(torch.stack([rhs, line], 2), factor)
    free, bound = torch.where((failed == 0)[:, None, None], both, torch.nan).unbind(2)
    return free, bound


def _longest(value: Tensor, step: Tensor) -> Tensor:
    """The share (m, 1) of a step at which the first value is almost zero, at most 1."""
    ratio = torch.where(step < 0, -value / step.clamp(max=-TINY), torch.inf)
    return (SHARE_TO_FIRST_ZERO * ratio.amin(1, keepdim=True)).clamp(max=1.0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner products (m, 1) of rows."""
    return (a * b).sum(1, keepdim=True)


def _power_norm(
    r: Tensor, p: float, own: Tensor, apex: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """||(r, apex)||_p - apex over own entries, (m, 1), and its derivatives.

    Its gradient (m, h), and diagonal (m, h) and bend (m, 1) of its second derivative, which is
    diag(diagonal) - bend gradient gradient^T.
    """
    r = torch.where(own, r, 0.0)
    largest = torch.maximum(r.amax(1, keepdim=True), apex).clamp(min=TINY)
    total = ((r / largest) ** p).sum(1, keepdim=True) + (apex / largest) ** p
    norm = total.clamp(min=TINY) ** (1.0 / p) * largest
    share, bend = (r / norm).clamp(min=1e-30), (p - 1.0) / norm
    weight = torch.where(r > 0, share ** (p - 1.0), 0.0)
    return norm - apex, weight, bend * weight / share, bend
