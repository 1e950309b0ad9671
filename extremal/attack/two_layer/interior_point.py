"""Smallest moves to convex boundaries: a primal-dual interior-point method, a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.attack.projection import Bounds

# Steps stop at this share of the way to where the first slack or multiplier is zero.
SHARE_TO_FIRST_ZERO = 0.95
# After steps longer than the first of two numbers, as a share of Newton's, slack times multiplier
# is to fall to the second one times its mean.
FALL_BY_STEP = ((0.0, 0.8), (0.3, 0.3), (0.8, 0.1))
# Slack times multiplier falls at most to this share of what was aimed at before.
LEAST_FALL = 0.3
# Slack times multiplier is not made smaller than this, in units of the radius.
LEAST_PRODUCT = 1e-9
# Where a bound leaves less room than this, in units of the radius, it is taken to leave so much.
LEAST_ROOM = 1e-9
# The first move keeps this share of the room, or of a radius, away from the bounds.
FIRST_SHARE_FROM_BOUNDS = 0.01
# The boundary may be missed at this price for each unit of height, so that there is a solution.
MOST_FORCE = 100.0
# The boundary's first slack is at least this.
LEAST_FIRST_SLACK = 1e-3
# The multipliers of a kink are at first at least this.
LEAST_FIRST_PULL = 1e-6
# The apex of a norm, where all neurons are silent, is rounded over this share of the product.
ROUNDED_APEX_SHARE = 0.1
# The matrix of Newton's step is given this share of its largest entry, against rounding.
JITTER_SHARE = 1e-13
# Powers below this are of norms that have kinks where neurons fall silent.
LEAST_SMOOTH_POWER = 2.0
# Numbers that are divided by are at least this.
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LiftedNeurons:
    """Neurons as rows (u, o) that meet points as (z, size); products of their columns in pairs."""

    directions: Tensor  # (h, k)
    pairs: Tensor  # (h, k (k + 1) / 2): products of columns i <= j
    pair: Tensor  # (k k,): which of the pairs each entry of a k x k matrix is

    @classmethod
    def of(cls, directions: Tensor) -> LiftedNeurons:
        """The rows (h, k), with their pairs."""
        k = directions.shape[1]
        i, j = torch.triu_indices(k, k, device=directions.device)
        pair = torch.empty(k, k, dtype=torch.long, device=directions.device)
        pair[i, j] = pair[j, i] = torch.arange(len(i), device=directions.device)
        return cls(directions, directions[:, i] * directions[:, j], pair.flatten())

    def squares(self, weight: Tensor) -> Tensor:
        """sum_j weight_j u_j u_j^T, (m, k, k), for weights (m, h)."""
        k = self.directions.shape[1]
        return (weight @ self.pairs)[:, self.pair].view(-1, k, k)


@dataclass(frozen=True, eq=False)
class ConvexBoundary:
    """Where the p-norm of relu(s_j(d)) over the own neurons is at most a line, m problems at once.

    s(d) = values + sizes * (lifted(d - origin) @ neurons.T), and the line is level + <slope, d>.
    `lifted` appends <jacobian, move> + bow |move|^2 / 2 to a move. All is in units of a radius.
    """

    p: float
    neurons: LiftedNeurons  # (h, n + 1), shared by all problems
    jacobian: Tensor | None  # (m, n); None: what is appended is zero
    bow: Tensor | None  # (m, 1), at least 0; None: zero
    sizes: Tensor  # (m, h), at least 0
    own: Tensor  # (m, h) bool
    origin: Tensor  # (m, n)
    values: Tensor  # (m, h), at the origin
    level: Tensor  # (m,)
    slope: Tensor  # (m, n)

    def preactivations(self, d: Tensor) -> Tensor:
        """s(d), (m, h)."""
        move = d - self.origin
        lifted = move @ self.neurons.directions[:, :-1].T
        if self.jacobian is not None:
            last = (self.jacobian * move).sum(1, keepdim=True)
            if self.bow is not None:
                last = last + 0.5 * self.bow * (move * move).sum(1, keepdim=True)
            lifted = lifted + last * self.neurons.directions[:, -1]
        return self.values + self.sizes * lifted

    def changes(self, d: Tensor, step: Tensor) -> Tensor:
        """What a step (m, n) from d changes in s to first order, (m, h)."""
        moved = step @ self.neurons.directions[:, :-1].T
        last = self._last(d)
        if last is not None:
            moved = moved + (last * step).sum(1, keepdim=True) * self.neurons.directions[:, -1]
        return self.sizes * moved

    def gradient(self, d: Tensor, weight: Tensor) -> Tensor:
        """The gradient (m, n) of sum_j weight_j s_j at d."""
        whole, last = (weight * self.sizes) @ self.neurons.directions, self._last(d)
        return whole[:, :-1] if last is None else whole[:, :-1] + whole[:, -1:] * last

    def curvature(self, d: Tensor, slopes: Tensor, squares: Tensor) -> Tensor:
        """The second derivative (m, n, n) of a function of s with these derivatives (m, h) in s.

        sum_j squares_j grad s_j grad s_j^T + slopes_j grad^2 s_j, the latter if not negative.
        """
        whole = self.neurons.squares(squares * self.sizes * self.sizes)
        inner, last = whole[:, :-1, :-1], self._last(d)
        if last is None:
            return inner
        cross = whole[:, :-1, -1:] * last.unsqueeze(1)
        square = last.unsqueeze(2) * last.unsqueeze(1)
        inner = inner + cross + cross.transpose(1, 2) + whole[:, -1:, -1:] * square
        if self.bow is not None:
            bent = self.bow * ((slopes * self.sizes) @ self.neurons.directions[:, -1:]).clamp(
                min=0.0
            )
            inner = inner + torch.diag_embed(bent.expand_as(d))
        return inner

    def line(self, d: Tensor) -> Tensor:
        """What the norm may be at most, (m,)."""
        return self.level + (self.slope * d).sum(1)

    def _last(self, d: Tensor) -> Tensor | None:
        """The gradient (m, n) of what is appended to a move."""
        if self.jacobian is None or self.bow is None:
            return self.jacobian
        return self.jacobian + self.bow * (d - self.origin)


def smallest_to_convex(
    boundary: ConvexBoundary,
    norm: str,
    bounds: Bounds | None,
    start: Tensor,
    steps: int,
    product: float,
) -> Tensor:
    """argmin of ||d|| over the norm below the line and d in the bounds, (m, n), in `steps` steps.

    Newton's steps on the optimality conditions, with slack times multiplier of all inequalities
    going from `product` toward zero. Bounds and start are in units of a radius. Where nothing is
    below the line, the d that is nearest to being so.
    """
    iterate = _Iterate(boundary, norm, bounds, start, product)
    for _ in range(steps):
        iterate.step()
    return iterate.d


class _Iterate:
    """A move d, the slacks and multipliers of all inequalities, and what their products aim at."""

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
        self.aims = _NormAndBounds.around(self.d, norm, bounds, product)
        side = _KinkedSide if boundary.p < LEAST_SMOOTH_POWER else _SmoothSide
        self.side: _KinkedSide | _SmoothSide = side.at(boundary, self.d, product)
        # The slack of the line and what exceeds it; the multiplier of the first is the force.
        force = self.d.new_ones(len(self.d), 1)
        self.line = _Inequalities(
            torch.cat([force * max(product, LEAST_FIRST_SLACK), product / (MOST_FORCE - force)], 1),
            torch.cat([force, MOST_FORCE - force], 1),
        )
        self.every = (self.line, self.aims.inequalities, self.side.inequalities)
        self.mu = torch.full_like(self.d[:, 0], product)

    def step(self) -> None:
        """One step of Newton, as far as slacks and multipliers stay positive, and a lower mu."""
        step, more, solved = self._direction()
        soft = self.line.slack / self.line.multiplier
        goal = self.mu.unsqueeze(1) / self.line.multiplier
        self.line.aim(self.mu, goal - self.line.slack - soft * torch.stack([more, -more], 1))
        self.aims.aim(self.mu, step)
        self.side.aim(self.mu, step, more)
        shares = zip(*(part.longest_steps() for part in self.every), strict=True)
        primal, dual = (
            torch.where(solved, torch.stack(share).amin(0).clamp(max=1.0), 0.0) for share in shares
        )
        self.d = self.d + primal.unsqueeze(1) * step
        for part in self.every:
            part.move(primal, dual)
        self.aims.move(primal)
        self.mu = _lowered(self.mu, self.every, torch.minimum(primal, dual))

    def _direction(self) -> tuple[Tensor, Tensor, Tensor]:
        """Newton's steps of d (m, n) and of the force (m,), and where there are any, (m,) bool.

        All other unknowns are eliminated; the force is what makes the line's own equation hold.
        """
        line, boundary, d = self.line, self.boundary, self.d
        terms = self.side.terms(d, line.multiplier[:, 0], self.mu)
        slope = terms.slope - boundary.slope
        matrix, rhs = self.aims.eliminated(terms.matrix, d, self.mu)
        rhs = rhs - terms.push + line.multiplier[:, :1] * boundary.slope
        free, bound, solved = _solved(matrix, rhs, slope)
        goal = self.mu.unsqueeze(1) / line.multiplier
        height = terms.size - boundary.line(d) + goal[:, 0] - goal[:, 1] - terms.lack
        soft = (slope * bound).sum(1) + (line.slack / line.multiplier).sum(1) + terms.soft
        more = ((slope * free).sum(1) + height) / soft.clamp(min=TINY)
        step = free - bound * more.unsqueeze(1)
        solved &= step.isfinite().all(1) & more.isfinite()
        return torch.nan_to_num(step), torch.nan_to_num(more), solved


def _inside(d: Tensor, bounds: Bounds | None) -> tuple[Tensor, Bounds | None]:
    """Moves strictly inside of bounds, and bounds that leave some room."""
    if bounds is None:
        return d, None
    room = (bounds[1] - bounds[0]).clamp(min=LEAST_ROOM)
    low, high = bounds[1] - room, bounds[1]
    away = FIRST_SHARE_FROM_BOUNDS * room.clamp(max=1.0)
    return torch.minimum(torch.maximum(d, low + away), high - away), (low, high)


def _solved(matrix: Tensor, rhs: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """matrix^-1 rhs and matrix^-1 slope, (m, n) both, and where there is a factor, (m,) bool."""
    diagonal = torch.diagonal(matrix, dim1=1, dim2=2)
    diagonal += JITTER_SHARE * diagonal.amax(1, keepdim=True)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    free, bound = torch.cholesky_solve(torch.stack([rhs, slope], 2), factor).unbind(2)
    return free, bound, failed == 0


def _lowered(mu: Tensor, parts: tuple[_Inequalities, ...], shorter: Tensor) -> Tensor:
    """What slack times multiplier is to be after a step of which the `shorter` share was taken."""
    total, count = torch.zeros_like(mu), torch.zeros_like(mu)
    for part in parts:
        total, count = total + part.products(), count + part.counts()
    fall = torch.zeros_like(mu)
    for least, share in FALL_BY_STEP:
        fall = torch.where(shorter >= least, share, fall)
    return torch.minimum(mu, fall * torch.maximum(total / count, LEAST_FALL * mu)).clamp(
        min=LEAST_PRODUCT
    )


class _Inequalities:
    """Slacks and multipliers (m, ...) of inequalities, whose products are led to zero in place."""

    def __init__(self, slack: Tensor, multiplier: Tensor, alive: Tensor | None = None) -> None:
        self.slack, self.multiplier, self.alive = slack, multiplier, alive

    def aim(self, mu: Tensor, slack_step: Tensor) -> None:
        """Keep Newton's step: that of the slacks as given, and what it makes of multipliers."""
        goal = mu.view(-1, *[1] * (slack_step.ndim - 1)) - self.multiplier * slack_step
        step = goal / self.slack - self.multiplier
        if self.alive is not None:
            step, slack_step = (torch.where(self.alive, part, 0.0) for part in (step, slack_step))
        self.slack_step, self.multiplier_step = slack_step, step

    def longest_steps(self) -> tuple[Tensor, Tensor]:
        """The shares (m,) of the step that leave slacks and multipliers positive."""
        return (
            _longest(self.slack, self.slack_step),
            _longest(self.multiplier, self.multiplier_step),
        )

    def move(self, primal: Tensor, dual: Tensor) -> None:
        """Go shares (m,) of the step."""
        shape = (-1, *[1] * (self.slack.ndim - 1))
        self.slack = self.slack + primal.view(shape) * self.slack_step
        self.multiplier = self.multiplier + dual.view(shape) * self.multiplier_step

    def products(self) -> Tensor:
        """The sum of slack times multiplier, (m,)."""
        product = self.slack * self.multiplier
        if self.alive is not None:
            product = torch.where(self.alive, product, 0.0)
        return product.flatten(1).sum(1)

    def counts(self) -> Tensor | int:
        """How many inequalities there are."""
        if self.alive is None:
            return self.slack[0].numel()
        return self.alive.expand_as(self.slack).flatten(1).sum(1)


def _longest(value: Tensor, step: Tensor) -> Tensor:
    """The share (m,) of a step at which the first value is almost zero, infinite if none is."""
    ratio = torch.where(step < 0, -value / step.clamp(max=-TINY), torch.inf).flatten(1)
    if ratio.shape[1] == 0:
        return ratio.new_full((len(ratio),), torch.inf)
    return SHARE_TO_FIRST_ZERO * ratio.amin(1)


class _NormAndBounds:
    """Bounds d - low, high - d >= 0, and the norms' t - d, t + d >= 0, of which t is minimised.

    t is (m, n) for l1, (m, 1) for linf and None for l2, where |d|^2 / 2 is minimised.
    """

    def __init__(
        self, inequalities: _Inequalities, sign: Tensor, lift: Tensor, t: Tensor | None
    ) -> None:
        self.inequalities, self.sign, self.lift, self.t = inequalities, sign, lift, t

    @classmethod
    def around(cls, d: Tensor, norm: str, bounds: Bounds | None, product: float) -> _NormAndBounds:
        """The inequalities around a move d (m, n), with slack times multiplier about `product`."""
        t = None
        if norm == "linf":
            t = 1.1 * d.abs().amax(1, keepdim=True) + 0.1 * product + 1e-3
        elif norm == "l1":
            t = d.abs() + product / d.shape[1] + 1e-4
        slack = [] if bounds is None else [d - bounds[0], bounds[1] - d]
        slack += [] if t is None else [t - d, t + d]
        every = torch.stack(slack, 1) if slack else d.new_zeros(len(d), 0, d.shape[1])
        multiplier = product / every
        if t is not None:
            last = multiplier[:, -2:]
            total = last.sum(1, keepdim=True) if norm == "l1" else last.sum((1, 2), keepdim=True)
            multiplier[:, -2:] = last / total
        sign = ([] if bounds is None else [1.0, -1.0]) + ([] if t is None else [-1.0, 1.0])
        lift = ([] if bounds is None else [0.0, 0.0]) + ([] if t is None else [1.0, 1.0])
        signs, lifts = d.new_tensor(sign).unsqueeze(1), d.new_tensor(lift).unsqueeze(1)
        return cls(_Inequalities(every, multiplier), signs, lifts, t)

    def eliminated(self, matrix: Tensor, d: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
        """The matrix (m, n, n) with the inequalities in it, and its right-hand side (m, n)."""
        stiff = self.inequalities.multiplier / self.inequalities.slack
        push = mu[:, None, None] / self.inequalities.slack
        rhs = (self.sign * push).sum(1)
        if self.t is None:
            return matrix + torch.diag_embed(1.0 + stiff.sum(1)), rhs - d
        diagonal = stiff[:, :-2].sum(1)
        self.cross = (self.sign * self.lift * stiff).sum(1)
        self.both, self.short = stiff[:, -2:].sum(1), 1.0 - push[:, -2:].sum(1)
        if self.t.shape == d.shape:
            diagonal = diagonal + 4.0 * stiff[:, -2] * stiff[:, -1] / self.both
        else:
            diagonal = diagonal + self.both
            self.both = self.both.sum(1, keepdim=True)
            self.short = 1.0 - push[:, -2:].sum((1, 2)).unsqueeze(1)
            square = self.cross.unsqueeze(2) * self.cross.unsqueeze(1)
            matrix = matrix - square / self.both.unsqueeze(2)
        return matrix + torch.diag_embed(diagonal), rhs + self.cross * self.short / self.both

    def aim(self, mu: Tensor, step: Tensor) -> None:
        """What a step (m, n) of d does to slacks and multipliers."""
        change = self.sign * step.unsqueeze(1)
        if self.t is not None:
            pull = self.cross * step
            pull = pull if self.t.shape == step.shape else pull.sum(1, keepdim=True)
            self.t_step = -(self.short + pull) / self.both
            change = change + self.lift * self.t_step.unsqueeze(1)
        self.inequalities.aim(mu, change)

    def move(self, primal: Tensor) -> None:
        """Let t follow."""
        if self.t is not None:
            self.t = self.t + primal.unsqueeze(1) * self.t_step


@dataclass(frozen=True, eq=False)
class _Terms:
    """What the own neurons' norm puts into Newton's step."""

    size: Tensor  # (m,): the norm
    slope: Tensor  # (m, n): its gradient, with what eliminated unknowns make of it
    push: Tensor  # (m, n): its part of the gradient of the Lagrangian
    matrix: Tensor  # (m, n, n): its part of the second derivative
    lack: Tensor | float  # (m,): what eliminated unknowns take from the norm
    soft: Tensor | float  # (m,): and by how much they make it follow the force


class _SmoothSide:
    """The p-norm of relu(s) for p > 2, which is smooth but for its apex; that is rounded."""

    def __init__(self, boundary: ConvexBoundary, like: Tensor) -> None:
        self.boundary, self.inequalities = boundary, _Inequalities(like[:, :0], like[:, :0])

    @classmethod
    def at(cls, boundary: ConvexBoundary, d: Tensor, product: float) -> _SmoothSide:
        """The norm of a boundary."""
        return cls(boundary, d)

    def terms(self, d: Tensor, force: Tensor, mu: Tensor) -> _Terms:
        """Its part of Newton's step at d."""
        boundary = self.boundary
        apex = (ROUNDED_APEX_SHARE * mu / force).unsqueeze(1)
        r = boundary.preactivations(d).clamp(min=0.0)
        size, weight, diagonal, bend = _power_norm(r, boundary.p, boundary.own, apex)
        slope = boundary.gradient(d, weight)
        force_ = force.unsqueeze(1)
        matrix = boundary.curvature(d, force_ * weight, force_ * diagonal)
        matrix = matrix - (force * bend)[:, None, None] * slope.unsqueeze(2) * slope.unsqueeze(1)
        return _Terms(size - apex.squeeze(1), slope, force_ * slope, matrix, 0.0, 0.0)

    def aim(self, mu: Tensor, step: Tensor, more: Tensor) -> None:
        """Nothing but d is unknown."""
        self.inequalities.aim(mu, self.inequalities.slack)


class _KinkedSide:
    """The p-norm of r with r_j >= s_j(d) and r_j >= 0, for p <= 2, where relu(s)^p has kinks.

    The r_j are unknowns of their own, which are eliminated from Newton's equations.
    """

    def __init__(self, boundary: ConvexBoundary, inequalities: _Inequalities) -> None:
        self.boundary, self.inequalities = boundary, inequalities

    @classmethod
    def at(cls, boundary: ConvexBoundary, d: Tensor, product: float) -> _KinkedSide:
        """The norm of a boundary, with r above relu(s(d)) by about `product`."""
        s, own = boundary.preactivations(d), boundary.own
        r = s.clamp(min=0.0) + product * s.shape[1] ** (-1.0 / boundary.p)
        slack = torch.stack([r - s, r], 1)
        weight = _power_norm(r, boundary.p, own)[1].unsqueeze(1)
        multiplier = (weight * slack.flip(1) / slack.sum(1, keepdim=True)).clamp(
            min=LEAST_FIRST_PULL
        )
        return cls(boundary, _Inequalities(slack, multiplier, own.unsqueeze(1)))

    def terms(self, d: Tensor, force: Tensor, mu: Tensor) -> _Terms:
        """Its part of Newton's step at d."""
        boundary, own, force = self.boundary, self.boundary.own, force.unsqueeze(1)
        size, weight, diagonal, bend = _power_norm(self.inequalities.slack[:, 1], boundary.p, own)
        above, zero = (self.inequalities.multiplier / self.inequalities.slack).unbind(1)
        push = mu[:, None, None] / self.inequalities.slack
        self.above, self.weight = above, weight
        self.diagonal = force * diagonal + above + zero
        self.low = torch.where(own, weight / self.diagonal, 0.0)
        bend = force * bend.unsqueeze(1)
        turned = (1.0 - bend * (weight * self.low).sum(1, keepdim=True)).clamp(min=1e-12)
        self.rank = bend / turned
        self.rest = self._inverse(force * weight - push.sum(1))
        self.follow = self._inverse(weight)
        kept = torch.where(own, above * (force * diagonal + zero) / self.diagonal, 0.0)
        turn = boundary.gradient(d, above * self.low)
        matrix = boundary.curvature(d, torch.zeros_like(kept), kept)
        matrix = matrix - self.rank.unsqueeze(2) * turn.unsqueeze(2) * turn.unsqueeze(1)
        return _Terms(
            size,
            boundary.gradient(d, above * self.follow),
            boundary.gradient(d, torch.where(own, push[:, 0] + above * self.rest, 0.0)),
            matrix,
            (weight * self.rest).sum(1),
            (weight * self.follow).sum(1),
        )

    def aim(self, mu: Tensor, step: Tensor, more: Tensor) -> None:
        """What a step (m, n) of d and one (m,) of the force do to r."""
        change = self.boundary.changes(step, step)
        r_step = self._inverse(self.above * change) - self.rest - self.follow * more.unsqueeze(1)
        self.inequalities.aim(mu, torch.stack([r_step - change, r_step], 1))

    def _inverse(self, value: Tensor) -> Tensor:
        """(diag(diagonal) - bend weight weight^T)^-1 value over own neurons, (m, h)."""
        plain = torch.where(self.boundary.own, value / self.diagonal, 0.0)
        return plain + self.rank * self.low * (self.weight * plain).sum(1, keepdim=True)


def _power_norm(
    r: Tensor, p: float, own: Tensor, apex: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """||r||_p over own entries (and `apex`, (m, 1)), (m,), and its derivatives.

    Its gradient (m, h), and diagonal (m, h) and bend (m,) of its second derivative, which is
    diag(diagonal) - bend gradient gradient^T.
    """
    r = torch.where(own, r, 0.0)
    largest = (
        r.amax(1, keepdim=True) if apex is None else torch.maximum(r.amax(1, keepdim=True), apex)
    )
    largest = largest.clamp(min=TINY)
    share = r / largest
    total = (share**p).sum(1, keepdim=True)
    total = total if apex is None else total + (apex / largest) ** p
    norm = total.clamp(min=TINY) ** (1.0 / p)
    share, norm = share / norm, norm * largest
    if p == 1.0:
        return norm.squeeze(1), own.to(r.dtype), torch.zeros_like(r), torch.zeros_like(r[:, 0])
    lower = torch.where(share > 0, share.clamp(min=1e-30) ** (p - 2.0), 0.0)
    bend = (p - 1.0) / norm
    return norm.squeeze(1), lower * share, bend * lower, bend.squeeze(1)
