"""The best parabola for each pair: anchors and multipliers that raise the bound.

The bound is a concave function of parabolas and multipliers together, and the parabola of one
neuron is best when it touches where the minimum is. So anchors move a share of the way to the
minimiser that the dual gives, and each multiplier down where its constraint holds there and up
where it does not; a step that does not raise the bound is undone, and the next one is shorter.

A ball in slices across the attack's direction, where one parabola for all of it is too low.

M may bend downward along the very direction in which it falls, and then no multiplier of the ball
alone makes up for it, though the minimum is where the attack is. In a slice low <= <v, d> <= high
the product (<v, d> - low) (high - <v, d>) is >= 0, and a multiple of it, taken off, bends the
parabola upward along v at no cost at the slice's ends. Slices that fail are halved.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.certify.l2_problem import NEAR, BallSlice, Perturbation, TargetPairs
from extremal.certify.parabolas import Anchor, curvature_bound, multiplier, parabola
from extremal.certify.trust_region import Dual, dual

ENDS = (-1.0 - NEAR, 0.0, 0.6, 0.9, 1.0 + NEAR)  # of the first slices, in radii
HALVINGS = 2


def holds_on_slices(pairs: TargetPairs, move: Perturbation, mu: Tensor, need: Tensor) -> Tensor:
    """Whether M exceeds `need` (m,) on the whole ball, by slices across the move, bool (m,).

    The farthest slices are tried first, since what fails there need not be looked at elsewhere.
    """
    good = torch.ones(len(pairs), dtype=torch.bool, device=need.device)
    for low, high in reversed(list(itertools.pairwise(ENDS))):
        index = torch.nonzero(good).squeeze(1)
        if len(index) == 0:
            break
        first = torch.full_like(need[index], low)
        good[index] = _holds(pairs, move, mu, need, index, first, torch.full_like(first, high))
    return good


def _holds(
    pairs: TargetPairs,
    move: Perturbation,
    mu: Tensor,
    need: Tensor,
    index: Tensor,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    """Whether M exceeds `need` in a slice of each pair at `index`, halved where that helps."""
    place = torch.arange(len(index), device=index.device)
    good = torch.ones_like(place, dtype=torch.bool)
    for halving in range(HALVINGS + 1):
        rows = index[place]
        part, start = _slice(pairs.take(rows), move.take(rows), low, high)
        failed = ~(ascend_dual(part, start, mu[rows], need[rows]) > need[rows])
        place, low, high = place[failed], low[failed], high[failed]
        if len(place) == 0 or halving == HALVINGS:
            break
        middle = 0.5 * (low + high)
        place = torch.cat([place, place])
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
    good[place] = False
    return good


def _slice(
    pairs: TargetPairs, move: Perturbation, low: Tensor, high: Tensor
) -> tuple[TargetPairs, Anchor]:
    """The pairs cut to slices with ends in radii, and anchors at their far ends."""
    length = move.square.clamp(min=1e-300).sqrt()
    rho = pairs.radius
    cut = BallSlice(move.e / length.unsqueeze(1), move.inner / length, low * rho, high * rho)
    part = replace(pairs, cut=cut)
    end = Perturbation(high.unsqueeze(1) * move.e, high * move.inner, high**2 * move.square)
    return part, Anchor.at(part, end)


STEPS = 12  # of ascent
MORE = 5  # times that the ball's multiplier grows where it is too small
FACTOR = 1.7  # by how much
SHARE = 0.5  # of the way that anchors move at first
GROW, SHRINK, LARGEST = 1.3, 0.5, 0.9  # of that share, after a step that raised the bound or not
STALLED = 0.05  # a share below which nothing is gained any more
RATE = 0.5  # of the share, for multipliers
BEND = 4.0  # times the ball's multiplier: the first one of a slice


@dataclass(frozen=True, eq=False)
class FirstBound:
    """The bound at a move with the multiplier that belongs to it, and where ascent may begin."""

    bound: Tensor  # (m,)
    mu: Tensor  # (m,)
    anchor: Anchor


def first_bound(pairs: TargetPairs, move: Perturbation) -> FirstBound:
    """The bound of the parabola that touches M at a move."""
    anchor = Anchor.at(pairs, move)
    q = parabola(pairs, anchor)
    mu = multiplier(pairs, q, move)
    return FirstBound(dual(pairs, q, mu).bound, mu, anchor)


def ascend_dual(pairs: TargetPairs, anchor: Anchor, mu: Tensor, need: Tensor) -> Tensor:
    """The bound (m,) after some steps of ascent, or fewer where it exceeds `need` (m,) before."""
    best = torch.full_like(need, -torch.inf)
    index = torch.arange(len(need), device=need.device)  # of the pairs still on their way
    state = _State(anchor, mu, BEND * mu, torch.full_like(mu, SHARE))
    state, now = _begun(pairs, state)
    for step in range(STEPS + 1):
        best[index] = torch.maximum(best[index], now.bound)
        on = torch.nonzero((best[index] <= need[index]) & (state.share > STALLED)).squeeze(1)
        if len(on) == 0 or step == STEPS:
            break
        if len(on) < len(index):
            index, pairs, state, now = index[on], pairs.take(on), state.take(on), now.take(on)
        trial = state.moved(pairs, now)
        new = trial.dual(pairs)
        better = new.bound > now.bound
        state, now = trial.after(better, state), new.where(better, now)
    return best


@dataclass(frozen=True, eq=False)
class _State:
    """Where the ascent is: anchors, the ball's multiplier, the slice's one, and the next share."""

    anchor: Anchor
    mu: Tensor
    weight: Tensor
    share: Tensor

    def take(self, index: Tensor) -> _State:
        """The chosen pairs."""
        anchor = self.anchor.take(index)
        return _State(anchor, self.mu[index], self.weight[index], self.share[index])

    def dual(self, pairs: TargetPairs) -> Dual:
        """The bound there, and its minimiser."""
        q = parabola(pairs, self.anchor)
        return dual(pairs, q if pairs.cut is None else q.cut(pairs.cut, self.weight), self.mu)

    def moved(self, pairs: TargetPairs, now: Dual) -> _State:
        """One step on."""
        rate = RATE * self.share
        inside = now.move.square < pairs.radius**2
        mu = self.mu * torch.where(inside, 1.0 - rate, 1.0 + rate)
        weight = self.weight
        if pairs.cut is not None:
            along = now.move.e[:, -1]
            within = (along > pairs.cut.low) & (along < pairs.cut.high)
            weight = weight * torch.where(within, 1.0 - rate, 1.0 + rate)
        anchor = self.anchor.toward(Anchor.at(pairs, now.move), self.share)
        return _State(anchor, mu, weight, self.share)

    def after(self, better: Tensor, before: _State) -> _State:
        """This where it was better, else the state before; longer and shorter steps from there."""
        share = torch.where(better, (GROW * self.share).clamp(max=LARGEST), SHRINK * self.share)
        mu = torch.where(better, self.mu, before.mu)
        weight = torch.where(better, self.weight, before.weight)
        return _State(self.anchor.where(better, before.anchor), mu, weight, share)


def _begun(pairs: TargetPairs, state: _State) -> tuple[_State, Dual]:
    """A state whose multiplier is large enough for the bound to be finite.

    A little larger each time, and at last one that is larger than all downward bends together.
    """
    now = state.dual(pairs)
    for turn in range(MORE + 1):
        missing = torch.nonzero(now.bound.isinf()).squeeze(1)
        if len(missing) == 0:
            break
        some, part = state.take(missing), pairs.take(missing)
        larger = FACTOR * some.mu if turn < MORE else _enough(part, some.anchor)
        mu = state.mu.index_copy(0, missing, larger)
        state = _State(state.anchor, mu, torch.maximum(state.weight, mu), state.share)
        now = now.put(missing, state.take(missing).dual(part))
    return state, now


def _enough(pairs: TargetPairs, anchor: Anchor) -> Tensor:
    """A multiplier (m,) with which H + mu I is positive definite."""
    q = parabola(pairs, anchor)
    largest = curvature_bound(pairs.gram, -q.bend)
    return 1.1 * largest - q.even.clamp(max=0.0) + 1e-3 * q.bend.abs().amax(1) + 1e-300
