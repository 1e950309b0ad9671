"""Perturbations as certificates see them, and the descent that finds where M is least."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.certify.l2_problem import Pairs
from extremal.models.activations import relu_power, relu_power_with_slope

KNOWN = 1e-6  # of its terms: a smaller square norm is mostly rounding


@dataclass(frozen=True, eq=False)
class Move:
    """A perturbation d of each pair by what M can see: e = U d (m, h), <z, d> and ||d||^2 (m,).

    With a cut, e has one more column for <v, d>.
    """

    e: Tensor
    inner: Tensor
    square: Tensor

    @classmethod
    def of(cls, pairs: Pairs, alpha: Tensor, kappa: Tensor) -> Move:
        """d = U' alpha + kappa z, and with a cut alpha's last column times v."""
        seen = pairs.inner
        if pairs.cut is None:
            e = alpha @ pairs.gram
        else:
            seen = torch.cat([seen, pairs.cut.inner.unsqueeze(1)], 1)
            hidden, last = alpha[:, :-1], alpha[:, -1:]
            along = (hidden * pairs.cut.c).sum(1, keepdim=True) + last
            e = torch.cat([hidden @ pairs.gram + last * pairs.cut.c, along], 1)
        e = e + kappa.unsqueeze(1) * seen
        inner = (alpha * seen).sum(1) + kappa * pairs.square
        return cls(e, inner, (alpha * e).sum(1) + kappa * inner)

    def w(self, pairs: Pairs) -> Tensor:
        """||z + d||^2, (m,)."""
        return (pairs.square + 2.0 * self.inner + self.square).clamp(min=0.0)

    def where(self, mask: Tensor, other: Move) -> Move:
        """This move where the mask (m,) holds, else the other."""
        return Move(
            torch.where(mask.unsqueeze(1), self.e, other.e),
            torch.where(mask, self.inner, other.inner),
            torch.where(mask, self.square, other.square),
        )

    def take(self, index: Tensor) -> Move:
        """The moves of the chosen pairs."""
        return Move(self.e[index], self.inner[index], self.square[index])


def blur(pairs: Pairs, alpha: Tensor, kappa: Tensor) -> Tensor:
    """How much of g = U' alpha + kappa z rounding may hide, (m,): part of its norm.

    ||g||^2 = alpha' G alpha + ... is known to `unit` of its terms, which may cancel. So a g that
    seems to vanish may be as long as unit^(1/2) (sum |alpha_j| + |kappa| ||z||), and a bound on
    c + g.d over ||d|| <= rho is lower by rho times that.
    """
    terms = alpha.abs().sum(1) + kappa.abs() * pairs.square.sqrt()
    return pairs.unit**0.5 * terms


def rest(pairs: Pairs) -> Move:
    """No perturbation at all."""
    zero = torch.zeros_like(pairs.beta)
    return Move(torch.zeros_like(pairs.s), zero, zero)


def value(pairs: Pairs, move: Move) -> Tensor:
    """M at a move, (m,)."""
    hidden = (pairs.a * relu_power(pairs.s + move.e, pairs.p)).sum(1)
    if pairs.power == 0.0:
        return hidden + pairs.beta
    return hidden + pairs.beta * move.w(pairs) ** pairs.power


def descend(pairs: Pairs, start: Move, steps: int) -> Move:
    """The move of least M along full linear steps d <- -rho grad M / ||grad M||."""
    best, move = start, start
    alpha, kappa = torch.zeros_like(pairs.s), torch.zeros_like(pairs.beta)
    lowest = value(pairs, start)
    for _ in range(steps):
        _, slope = relu_power_with_slope(pairs.s + move.e, pairs.p)
        w = move.w(pairs).clamp(min=1e-300)
        pull = torch.zeros_like(kappa)
        if pairs.power > 0.0:
            pull = 2.0 * pairs.power * pairs.beta * w ** (pairs.power - 1.0)
        # grad M = U' weight + pull (z + d)
        weight = pairs.a * slope + pull.unsqueeze(1) * alpha
        along = pull * (1.0 + kappa)
        up = Move.of(pairs, weight, along)
        # Where ||grad M||^2 is what is left of large terms that cancel, its direction is unknown.
        known = up.square > KNOWN * ((weight * up.e).abs().sum(1) + (along * up.inner).abs())
        scale = torch.where(known, -pairs.radius / up.square.clamp(min=1e-300).sqrt(), 0.0)
        alpha, kappa = scale.unsqueeze(1) * weight, scale * along
        move = Move(scale.unsqueeze(1) * up.e, scale * up.inner, scale**2 * up.square)
        new = value(pairs, move)
        better = new < lowest
        best, lowest = move.where(better, best), torch.minimum(new, lowest)
    return best
