"""The least value of a parabola on a ball, from below: the dual of the trust-region problem.

For every mu with H + mu I > 0,  min over ||d|| <= rho of c + g.d + d'Hd/2  is at least
c - g'(H + mu I)^-1 g / 2 - mu rho^2 / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.move import Move
from extremal.certify.pairs import Pairs
from extremal.certify.quadratic import Parabola


@dataclass(frozen=True, eq=False)
class Dual:
    """The bound at one multiplier (-inf where H + mu I is not positive definite), and the move at
    which c + g.d + d'(H + mu I)d/2 is least."""

    bound: Tensor  # (m,)
    move: Move


def dual(pairs: Pairs, q: Parabola, mu: Tensor) -> Dual:
    """The dual value at mu (m,), by two Cholesky factors in the space of the neurons that bend.

    With t = mu + even, B = |bend|^(1/2) and the neurons split by the sign of their bend, H + mu I
    is positive definite if and only if t > 0 and

        S = I - B_- G_-- B_- / t + X'X,   X = L^-1 (B_+ G_+- B_-) / t,   LL' = I + B_+ G_++ B_+ / t

    is (the Schur complement of the part that bends upward). Nothing of size dim is formed, and
    neurons that do not bend cost nothing.
    """
    plus, minus = _bent(q.bend), _bent(-q.bend)
    t = mu + q.even
    positive = t > 0
    t = torch.where(positive, t, 1.0)
    up = Move.of(pairs, q.slope, q.along)  # e = U g
    lower = torch.linalg.cholesky(_eye_plus(_scaled(pairs.gram, plus, plus, t)))
    sides = torch.cat([_scaled(pairs.gram, plus, minus, t), plus.gather(up.e)], 2)
    solved = torch.linalg.solve_triangular(lower, sides, upper=False)
    x, b = solved[:, :, :-1], solved[:, :, -1:]
    schur = _eye_plus(x.mT @ x - _scaled(pairs.gram, minus, minus, t))
    factor, failed = torch.linalg.cholesky_ex(schur)
    good = positive & (failed == 0)
    factor = torch.where(good[:, None, None], factor, _eye_plus(torch.zeros_like(factor)))
    c = torch.linalg.solve_triangular(factor, minus.gather(up.e) - x.mT @ b, upper=False)
    inverse = (up.square - ((b * b).sum((1, 2)) - (c * c).sum((1, 2))) / t) / t  # g'(H + mu I)^-1 g
    bound = q.constant - 0.5 * inverse - 0.5 * mu * pairs.radius**2
    # (y_+, y_-) solves the whole system, and d = -(g - U' B y / t) / t.
    y_minus = -torch.linalg.solve_triangular(factor.mT, c, upper=True)
    y_plus = torch.linalg.solve_triangular(lower.mT, b - x @ y_minus, upper=True)
    weight = plus.scatter(y_plus, minus.scatter(y_minus, torch.zeros_like(q.slope)))
    alpha = -(q.slope - weight / t.unsqueeze(1)) / t.unsqueeze(1)
    return Dual(torch.where(good, bound, -torch.inf), Move.of(pairs, alpha, -q.along / t))


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


def _bent(bend: Tensor) -> _Bent:
    size = bend.clamp(min=0.0)
    count = max(1, int((size > 0).sum(1).max()))
    index = (size > 0).to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
    return _Bent(index, size.gather(1, index).sqrt())


def _scaled(gram: Tensor, first: _Bent, second: _Bent, t: Tensor) -> Tensor:
    """B_first G B_second / t, (m, k, l)."""
    part = gram[first.index.unsqueeze(2), second.index.unsqueeze(1)]
    return part * (first.root / t.unsqueeze(1)).unsqueeze(2) * second.root.unsqueeze(1)


def _eye_plus(square: Tensor) -> Tensor:
    """I + square, in place."""
    square.diagonal(dim1=1, dim2=2).add_(1.0)
    return square
