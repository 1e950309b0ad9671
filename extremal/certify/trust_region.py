"""Lower bounds on M by the dual of the trust-region problem, and the ascent that raises them.

**The dual.** For every mu with H + mu I > 0, min over ||d|| <= rho of c + g.d + d'Hd/2 is at least
c - g'(H + mu I)^-1 g / 2 - mu rho^2 / 2.

**The best parabola for each pair.** The bound is a concave function of parabolas and multipliers
together, and the parabola of one neuron is best when it touches where the minimum is. So anchors
move a share of the way to the minimiser that the dual gives, and each multiplier down where its
constraint holds there and up where it does not; a step that does not raise the bound is undone, and
the next one is shorter.

**A ball in slices** across the attack's direction, where one parabola for all of it is too low. M
may curve downward along the very direction in which it falls, and then no multiplier of the ball
alone makes up for it, though the minimum is where the attack is. In a slice low <= <v, d> <= high
the product (<v, d> - low) (high - <v, d>) is >= 0, and a multiple of it, taken off, curves the
parabola upward along v at no cost at the slice's ends. Slices that fail are halved.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import RowRecord
from extremal.certify.l2_problem import (
    COSINE_ROUNDING,
    BallSlice,
    Perturbation,
    TargetPairs,
    rounding_loss,
)
from extremal.certify.parabolas import Anchor, Parabola, curvature_bound, multiplier_at, parabola

# Curvatures that together are at most this share of t are left out of the matrices.
NEGLIGIBLE_CURVATURE_SHARE = 0.001
# A t below this share of the largest curvature would leave mostly rounding.
LEAST_DIAGONAL_SHARE = 1e-6
# What cancelling may cost of the terms of g'(H + mu I)^-1 g, as a share of them.
CANCELLED_SHARE = 1e-11

# Steps of one ascent, at most.
ASCENT_STEPS = 12
# How often the ball's multiplier grows, at most, where it is too small for a finite bound.
MULTIPLIER_ATTEMPTS = 5
# The ball's multiplier grows by this factor where it is too small for a finite bound.
MULTIPLIER_GROWTH = 1.7
# The share of the way to the minimiser that anchors move in the first step.
FIRST_SHARE = 0.5
# The share of the way that anchors move is multiplied by this after a step that raised the bound.
SHARE_AFTER_SUCCESS = 1.3
# The share of the way that anchors move is multiplied by this after a step that did not raise the
# bound.
SHARE_AFTER_FAILURE = 0.5
# The share of the way that anchors move never exceeds this.
MOST_SHARE = 0.9
# An ascent ends once anchors move by at most this share of the way: nothing is gained any more.
LEAST_SHARE = 0.05
# Multipliers change by this share of the share that anchors move.
MULTIPLIER_RATE = 0.5
# The first multiplier of a slice, times that of the ball.
SLICE_MULTIPLIER_FACTOR = 4.0

# The ends of the first slices in radii; the outer ones lie beyond what rounding may hide.
SLICE_ENDS = (-1.0 - COSINE_ROUNDING, 0.0, 0.6, 0.9, 1.0 + COSINE_ROUNDING)
# How often a slice that fails is halved.
SLICE_HALVINGS = 2


@dataclass(frozen=True, eq=False)
class Dual(RowRecord):
    """The bound at one multiplier, and where c + g.d + d'(H + mu I)d/2 is least."""

    bound: Tensor  # (m,): -inf where H + mu I is not positive definite
    multiplier: Tensor  # (m,): mu
    minimiser: Perturbation


def dual(pairs: TargetPairs, q: Parabola, mu: Tensor) -> Dual:
    """The dual value at mu (m,), by two Cholesky factors in the space of the curved neurons.

    With t = mu + isotropic_curvature, B = |neuron_curvature|^(1/2) and the neurons split by the
    sign of their curvature, H + mu I is positive definite if and only if t > 0 and

        S = I - B_- G_-- B_- / t + X'X,   X = L^-1 (B_+ G_+- B_-) / t,   LL' = I + B_+ G_++ B_+ / t

    is (the Schur complement of the part that curves upward). Nothing of size dim is formed, and
    neurons that are not curved cost nothing.
    """
    slope, curvature = q.neuron_slope.sum(1), q.neuron_curvature.sum(1)
    parts = (q.constant, q.point_slope, q.isotropic_curvature, mu, slope, curvature)
    sane = torch.stack(parts).isfinite().all(0)
    if not bool(sane.all()):
        nothing = Parabola(*map(torch.zeros_like, vars(q).values()))
        q, mu = q.where(sane, nothing), torch.where(sane, mu, 1.0)
    t = mu + q.isotropic_curvature
    plus, _ = _curved_neurons(q.neuron_curvature, t)
    minus, left_out = _curved_neurons(-q.neuron_curvature, t)
    t = t - left_out
    positive = (t > LEAST_DIAGONAL_SHARE * q.neuron_curvature.abs().amax(1)) & (t > 0) & sane
    t = torch.where(positive, t, 1.0)
    gradient = Perturbation.from_weights(pairs, q.neuron_slope, q.point_slope)
    e = gradient.neuron_products  # U g
    lower, unsound = torch.linalg.cholesky_ex(_eye_plus(_scaled_gram(pairs, plus, plus, t)))
    positive = positive & (unsound == 0)
    lower = _or_eye(positive, lower)
    sides = torch.cat([_scaled_gram(pairs, plus, minus, t), plus.gather(e)], 2)
    solved = torch.linalg.solve_triangular(lower, sides, upper=False)
    x, b = solved[:, :, :-1], solved[:, :, -1:]
    schur = _eye_plus(x.mT @ x - _scaled_gram(pairs, minus, minus, t))
    factor, failed = torch.linalg.cholesky_ex(schur)
    good = positive & (failed == 0)
    factor = _or_eye(good, factor)
    c = torch.linalg.solve_triangular(factor, minus.gather(e) - x.mT @ b, upper=False)
    over, under = (b * b).sum((1, 2)) / t, (c * c).sum((1, 2)) / t
    # g'(H + mu I)^-1 g, which is >= 0 whatever rounding says
    inverse = ((gradient.squared_length - over + under) / t).clamp(min=0.0)
    lost = CANCELLED_SHARE * (gradient.squared_length.abs() + over + under) / t
    hidden = pairs.radius * rounding_loss(pairs, q.neuron_slope, q.point_slope)
    bound = q.constant - 0.5 * (inverse + lost) - 0.5 * mu * pairs.radius**2 - hidden
    # (y_+, y_-) solves the whole system, and d = -(g - U' B y / t) / t.
    y_minus = -torch.linalg.solve_triangular(factor.mT, c, upper=True)
    y_plus = torch.linalg.solve_triangular(lower.mT, b - x @ y_minus, upper=True)
    weight = plus.scatter(y_plus, minus.scatter(y_minus, torch.zeros_like(q.neuron_slope)))
    alpha = -(q.neuron_slope - weight / t.unsqueeze(1)) / t.unsqueeze(1)
    bound = torch.where(good, bound, -torch.inf)
    return Dual(bound, mu, Perturbation.from_weights(pairs, alpha, -q.point_slope / t))


@dataclass(frozen=True, eq=False)
class _CurvedNeurons:
    """The neurons that curve one way: indices (m, k), and the roots of their curvatures (m, k).

    Roots are 0 where a pair has fewer neurons than others.
    """

    index: Tensor
    root: Tensor

    def gather(self, part: Tensor) -> Tensor:
        """root * part at the neurons, (m, k, 1)."""
        return (self.root * part.gather(1, self.index)).unsqueeze(2)

    def scatter(self, part: Tensor, into: Tensor) -> Tensor:
        """`into` (m, h) with root * part (m, k, 1) added at the neurons."""
        return into.scatter_add(1, self.index, self.root * part.squeeze(2))


def _curved_neurons(curvature: Tensor, t: Tensor) -> tuple[_CurvedNeurons, Tensor]:
    """The neurons that curve one way, but for the least of them, and the sum of what is left out.

    Upward curvatures may be left out: the parabola only gets lower. Downward ones that are left out
    sum to at most a small share of t, and are paid for in t, since u_j u_j' <= I.
    """
    size, index = curvature.clamp(min=0.0).sort(dim=1, descending=True)
    tail = size.flip(1).cumsum(1).flip(1)  # of each and all smaller ones
    small = tail <= NEGLIGIBLE_CURVATURE_SHARE * t.clamp(min=0.0).unsqueeze(1)
    left_out = torch.where(small, size, 0.0).sum(1)
    size = torch.where(small, 0.0, size)
    count = max(1, int((size > 0).sum(1).max()))
    return _CurvedNeurons(index[:, :count], size[:, :count].sqrt()), left_out


def _scaled_gram(
    pairs: TargetPairs, first: _CurvedNeurons, second: _CurvedNeurons, t: Tensor
) -> Tensor:
    """B_first G B_second / t, (m, k, l)."""
    part = pairs.products(first.index, second.index)
    return part * (first.root / t.unsqueeze(1)).unsqueeze(2) * second.root.unsqueeze(1)


def _or_eye(good: Tensor, factor: Tensor) -> Tensor:
    """The factor (m, k, k) where it is good (m,), else the identity."""
    return torch.where(good[:, None, None], factor, _eye_plus(torch.zeros_like(factor)))


def _eye_plus(square: Tensor) -> Tensor:
    """I + square, in place."""
    square.diagonal(dim1=1, dim2=2).add_(1.0)
    return square


@dataclass(frozen=True, eq=False)
class FirstBound:
    """The bound at a perturbation with its own multiplier, and where ascent may begin."""

    bound: Tensor  # (m,)
    multiplier: Tensor  # (m,)
    anchor: Anchor


def first_bound(pairs: TargetPairs, move: Perturbation) -> FirstBound:
    """The bound of the parabola that touches M at a perturbation."""
    anchor = Anchor.at(pairs, move)
    q = parabola(pairs, anchor)
    mu = multiplier_at(pairs, q, move)
    return FirstBound(dual(pairs, q, mu).bound, mu, anchor)


def ascend_dual(pairs: TargetPairs, anchor: Anchor, mu: Tensor, need: Tensor) -> Tensor:
    """The bound (m,) after some steps of ascent, or fewer where it exceeds `need` (m,) before."""
    best = torch.full_like(need, -torch.inf)
    index = torch.arange(len(need), device=need.device)  # of the pairs still on their way
    share = torch.full_like(mu, FIRST_SHARE)
    state = _DualAscentState(anchor, mu, SLICE_MULTIPLIER_FACTOR * mu, share)
    state, now = _with_finite_bound(pairs, state)
    for step in range(ASCENT_STEPS + 1):
        best[index] = torch.maximum(best[index], now.bound)
        on = (best[index] <= need[index]) & (state.share > LEAST_SHARE)
        on = torch.nonzero(on).squeeze(1)
        if len(on) == 0 or step == ASCENT_STEPS:
            break
        if len(on) < len(index):
            index, pairs, state, now = index[on], pairs.take(on), state.take(on), now.take(on)
        trial = state.moved(pairs, now)
        new = trial.dual(pairs)
        better = new.bound > now.bound
        longer = (SHARE_AFTER_SUCCESS * state.share).clamp(max=MOST_SHARE)
        share = torch.where(better, longer, SHARE_AFTER_FAILURE * state.share)
        state, now = replace(trial.where(better, state), share=share), new.where(better, now)
    return best


@dataclass(frozen=True, eq=False)
class _DualAscentState(RowRecord):
    """Where the ascent is, and what share of the way the next step goes."""

    anchor: Anchor
    multiplier: Tensor  # (m,): of the ball
    slice_multiplier: Tensor  # (m,)
    share: Tensor  # (m,)

    def dual(self, pairs: TargetPairs) -> Dual:
        """The bound there, and its minimiser."""
        q = parabola(pairs, self.anchor)
        if pairs.ball_slice is not None:
            q = q.within(pairs.ball_slice, self.slice_multiplier)
        return dual(pairs, q, self.multiplier)

    def moved(self, pairs: TargetPairs, now: Dual) -> _DualAscentState:
        """One step on."""
        rate = MULTIPLIER_RATE * self.share
        inside = now.minimiser.squared_length < pairs.radius**2
        mu = self.multiplier * torch.where(inside, 1.0 - rate, 1.0 + rate)
        weight = self.slice_multiplier
        if pairs.ball_slice is not None:
            along = now.minimiser.neuron_products[:, -1]
            within = (along > pairs.ball_slice.low) & (along < pairs.ball_slice.high)
            weight = weight * torch.where(within, 1.0 - rate, 1.0 + rate)
        anchor = self.anchor.toward(Anchor.at(pairs, now.minimiser), self.share)
        return _DualAscentState(anchor, mu, weight, self.share)


def _with_finite_bound(
    pairs: TargetPairs, state: _DualAscentState
) -> tuple[_DualAscentState, Dual]:
    """A state whose multiplier is large enough for the bound to be finite.

    A little larger each time, and at last one that exceeds all downward curvatures together.
    """
    now = state.dual(pairs)
    for attempt in range(MULTIPLIER_ATTEMPTS + 1):
        missing = torch.nonzero(now.bound.isinf()).squeeze(1)
        if len(missing) == 0:
            break
        some, part = state.take(missing), pairs.take(missing)
        last = attempt == MULTIPLIER_ATTEMPTS
        larger = _definite(part, some.anchor) if last else MULTIPLIER_GROWTH * some.multiplier
        mu = state.multiplier.index_copy(0, missing, larger)
        weight = torch.maximum(state.slice_multiplier, mu)
        state = replace(state, multiplier=mu, slice_multiplier=weight)
        now = now.put(missing, state.take(missing).dual(part))
    return state, now


def _definite(pairs: TargetPairs, anchor: Anchor) -> Tensor:
    """A multiplier (m,) with which H + mu I is positive definite."""
    q = parabola(pairs, anchor)
    largest = curvature_bound(pairs.gram, -q.neuron_curvature)
    room = 1e-3 * q.neuron_curvature.abs().amax(1)
    return 1.1 * largest - q.isotropic_curvature.clamp(max=0.0) + room + 1e-300


def holds_on_slices(pairs: TargetPairs, move: Perturbation, mu: Tensor, need: Tensor) -> Tensor:
    """Whether M exceeds `need` (m,) on the whole ball, by slices across a perturbation, bool (m,).

    The farthest slices are tried first, since what fails there need not be looked at elsewhere.
    """
    good = torch.ones(len(pairs), dtype=torch.bool, device=need.device)
    for low, high in reversed(list(itertools.pairwise(SLICE_ENDS))):
        index = torch.nonzero(good).squeeze(1)
        if len(index) == 0:
            break
        first = torch.full_like(need[index], low)
        last = torch.full_like(first, high)
        part = pairs.take(index), move.take(index), mu[index], need[index]
        good[index] = _holds_on_slice(*part, first, last)
    return good


def _holds_on_slice(
    pairs: TargetPairs, move: Perturbation, mu: Tensor, need: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Whether M exceeds `need` in a slice of each pair, halved where that helps, bool (m,)."""
    rows = torch.arange(len(pairs), device=need.device)
    good = torch.ones_like(rows, dtype=torch.bool)
    for halving in range(SLICE_HALVINGS + 1):
        part, start = _slice(pairs.take(rows), move.take(rows), low, high)
        failed = ~(ascend_dual(part, start, mu[rows], need[rows]) > need[rows])
        rows, low, high = rows[failed], low[failed], high[failed]
        if len(rows) == 0 or halving == SLICE_HALVINGS:
            break
        middle = 0.5 * (low + high)
        rows = torch.cat([rows, rows])
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
    good[rows] = False
    return good


def _slice(
    pairs: TargetPairs, move: Perturbation, low: Tensor, high: Tensor
) -> tuple[TargetPairs, Anchor]:
    """The pairs cut to slices with ends in radii, and anchors at their far ends."""
    length, rho = move.squared_length.clamp(min=1e-300).sqrt(), pairs.radius
    cosines = move.neuron_products / length.unsqueeze(1)
    ball_slice = BallSlice(cosines, move.point_product / length, low * rho, high * rho)
    part = replace(pairs, ball_slice=ball_slice)
    return part, Anchor.at(part, move.scaled(high))
