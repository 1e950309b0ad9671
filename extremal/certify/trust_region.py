"""The least value of a parabola on a ball, from below: the dual of the trust-region problem.

For every mu with H + mu I > 0,  min over ||d|| <= rho of c + g.d + d'Hd/2  is at least
c - g'(H + mu I)^-1 g / 2 - mu rho^2 / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import Perturbation, TargetPairs, rounding_loss
from extremal.certify.parabolas import Parabola

NEGLIGIBLE = 0.001  # of t: bends that are left out
LEAST = 1e-6  # of the largest bend: t below it leaves mostly rounding
CANCELLED = 1e-11  # of the terms of g'(H + mu I)^-1 g: what their cancelling may cost


@dataclass(frozen=True, eq=False)
class Dual:
    """The bound at one multiplier (-inf where H + mu I is not positive definite), and the move at
    which c + g.d + d'(H + mu I)d/2 is least."""

    bound: Tensor  # (m,)
    mu: Tensor  # (m,)
    move: Perturbation

    def take(self, index: Tensor) -> Dual:
        """The chosen pairs."""
        return Dual(self.bound[index], self.mu[index], self.move.take(index))

    def where(self, mask: Tensor, other: Dual) -> Dual:
        """This where the mask (m,) holds, else the other."""
        bound, mu = torch.where(mask, self.bound, other.bound), torch.where(mask, self.mu, other.mu)
        return Dual(bound, mu, self.move.where(mask, other.move))

    def put(self, index: Tensor, other: Dual) -> Dual:
        """This with the pairs at `index` replaced."""
        move = Perturbation(
            self.move.e.index_copy(0, index, other.move.e),
            self.move.inner.index_copy(0, index, other.move.inner),
            self.move.square.index_copy(0, index, other.move.square),
        )
        bound = self.bound.index_copy(0, index, other.bound)
        return Dual(bound, self.mu.index_copy(0, index, other.mu), move)


def dual(pairs: TargetPairs, q: Parabola, mu: Tensor) -> Dual:
    """The dual value at mu (m,), by two Cholesky factors in the space of the neurons that bend.

    With t = mu + even, B = |bend|^(1/2) and the neurons split by the sign of their bend, H + mu I
    is positive definite if and only if t > 0 and

        S = I - B_- G_-- B_- / t + X'X,   X = L^-1 (B_+ G_+- B_-) / t,   LL' = I + B_+ G_++ B_+ / t

    is (the Schur complement of the part that bends upward). Nothing of size dim is formed, and
    neurons that do not bend cost nothing.
    """
    parts = (q.constant, q.along, q.even, mu, q.slope.sum(1), q.bend.sum(1))
    sane = torch.stack(parts).isfinite().all(0)
    q, mu = q.where(sane), torch.where(sane, mu, 1.0)
    t = mu + q.even
    plus, _ = _bent(q.bend, t)
    minus, left_out = _bent(-q.bend, t)
    t = t - left_out
    positive = (t > LEAST * q.bend.abs().amax(1)) & (t > 0) & sane
    t = torch.where(positive, t, 1.0)
    up = Perturbation.of(pairs, q.slope, q.along)  # e = U g
    lower, unsound = torch.linalg.cholesky_ex(_eye_plus(_scaled(pairs, plus, plus, t)))
    positive = positive & (unsound == 0)
    lower = _or_eye(positive, lower)
    sides = torch.cat([_scaled(pairs, plus, minus, t), plus.gather(up.e)], 2)
    solved = torch.linalg.solve_triangular(lower, sides, upper=False)
    x, b = solved[:, :, :-1], solved[:, :, -1:]
    schur = _eye_plus(x.mT @ x - _scaled(pairs, minus, minus, t))
    factor, failed = torch.linalg.cholesky_ex(schur)
    good = positive & (failed == 0)
    factor = _or_eye(good, factor)
    c = torch.linalg.solve_triangular(factor, minus.gather(up.e) - x.mT @ b, upper=False)
    over, under = (b * b).sum((1, 2)) / t, (c * c).sum((1, 2)) / t
    # g'(H + mu I)^-1 g, which is >= 0 whatever rounding says
    inverse = ((up.square - over + under) / t).clamp(min=0.0)
    lost = CANCELLED * (up.square.abs() + over + under) / t
    hidden = pairs.radius * rounding_loss(pairs, q.slope, q.along)
    bound = q.constant - 0.5 * (inverse + lost) - 0.5 * mu * pairs.radius**2 - hidden
    # (y_+, y_-) solves the whole system, and d = -(g - U' B y / t) / t.
    y_minus = -torch.linalg.solve_triangular(factor.mT, c, upper=True)
    y_plus = torch.linalg.solve_triangular(lower.mT, b - x @ y_minus, upper=True)
    weight = plus.scatter(y_plus, minus.scatter(y_minus, torch.zeros_like(q.slope)))
    alpha = -(q.slope - weight / t.unsqueeze(1)) / t.unsqueeze(1)
    bound = torch.where(good, bound, -torch.inf)
    return Dual(bound, mu, Perturbation.of(pairs, alpha, -q.along / t))


@dataclass(frozen=True, eq=False)
class _Bent:
    """The neurons that bend one way: indices (m, k) and sqrt(bend) there, 0 for what pads."""

    index: Tensor
    root: Tensor

    def gather(self, part: Tensor) -> Tensor:
        """root * part at the neurons, (m, k, 1)."""
        return (self.root * part.gather(1, self.index)).unsqueeze(2)

    def scatter(self, part: Tensor, into: Tensor) -> Tensor:
        """`into` (m, h) with root * part (m, k, 1) added at the neurons."""
        return into.scatter_add(1, self.index, self.root * part.squeeze(2))


def _bent(bend: Tensor, t: Tensor) -> tuple[_Bent, Tensor]:
    """The neurons that bend one way, but for the least of them, and the sum of what is left out.

    Upward bends may be left out: the parabola only gets lower. Downward ones that are left out sum
    to at most a `NEGLIGIBLE` share of t, and are paid for in t, since u_j u_j' <= I.
    """
    size, index = bend.clamp(min=0.0).sort(dim=1, descending=True)
    tail = size.flip(1).cumsum(1).flip(1)  # of each and all smaller ones
    small = tail <= NEGLIGIBLE * t.clamp(min=0.0).unsqueeze(1)
    left_out = torch.where(small, size, 0.0).sum(1)
    size = torch.where(small, 0.0, size)
    count = max(1, int((size > 0).sum(1).max()))
    return _Bent(index[:, :count], size[:, :count].sqrt()), left_out


def _scaled(pairs: TargetPairs, first: _Bent, second: _Bent, t: Tensor) -> Tensor:
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
