"""Pairs of a point and a target output, as certificates see them: through inner products only.

For a ball in l2 a shallow network is known by the Gram matrix of its neurons. With z the centred
and scaled point, s_j = <z, u_j> + offset_j and d a perturbation of norm at most rho, all of

    M(d) = sum_j a_j relu(s_j + <u_j, d>)^p + beta ||z + d||^(2 k),     a = W_own - W_t

(k = p normalize / 2; the last term is beta where inputs are not normalised) is a function of
e = U d and of ||z + d||^2, and its sign is that of the margin against t.

Perturbations as certificates see them, and the descent that finds where M is least.

The term beta ||z + d||^(2k) of normalised inputs, bounded by a line in w = ||z + d||^2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.models import TwoLayerForm, relu_power, relu_power_with_slope

KNOWN = 1e-6  # of its terms: a smaller square norm is mostly rounding


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A perturbation d of each pair by what M can see: e = U d (m, h), <z, d> and ||d||^2 (m,).

    With a cut, e has one more column for <v, d>.
    """

    e: Tensor
    inner: Tensor
    square: Tensor

    @classmethod
    def of(cls, pairs: TargetPairs, alpha: Tensor, kappa: Tensor) -> Perturbation:
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

    def w(self, pairs: TargetPairs) -> Tensor:
        """||z + d||^2, (m,)."""
        return (pairs.square + 2.0 * self.inner + self.square).clamp(min=0.0)

    def where(self, mask: Tensor, other: Perturbation) -> Perturbation:
        """This move where the mask (m,) holds, else the other."""
        return Perturbation(
            torch.where(mask.unsqueeze(1), self.e, other.e),
            torch.where(mask, self.inner, other.inner),
            torch.where(mask, self.square, other.square),
        )

    def take(self, index: Tensor) -> Perturbation:
        """The moves of the chosen pairs."""
        return Perturbation(self.e[index], self.inner[index], self.square[index])


def rounding_loss(pairs: TargetPairs, alpha: Tensor, kappa: Tensor) -> Tensor:
    """How much of g = U' alpha + kappa z rounding may hide, (m,): part of its norm.

    ||g||^2 = alpha' G alpha + ... is known to `unit` of its terms, which may cancel. So a g that
    seems to vanish may be as long as unit^(1/2) (sum |alpha_j| + |kappa| ||z||), and a bound on
    c + g.d over ||d|| <= rho is lower by rho times that.
    """
    terms = alpha.abs().sum(1) + kappa.abs() * pairs.square.sqrt()
    return pairs.unit**0.5 * terms


def no_perturbation(pairs: TargetPairs) -> Perturbation:
    """No perturbation at all."""
    zero = torch.zeros_like(pairs.beta)
    return Perturbation(torch.zeros_like(pairs.s), zero, zero)


def value(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """M at a move, (m,)."""
    hidden = (pairs.a * relu_power(pairs.s + move.e, pairs.p)).sum(1)
    if pairs.power == 0.0:
        return hidden + pairs.beta
    return hidden + pairs.beta * move.w(pairs) ** pairs.power


def descend(pairs: TargetPairs, start: Perturbation, steps: int) -> Perturbation:
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
        up = Perturbation.of(pairs, weight, along)
        # Where ||grad M||^2 is what is left of large terms that cancel, its direction is unknown.
        known = up.square > KNOWN * ((weight * up.e).abs().sum(1) + (along * up.inner).abs())
        scale = torch.where(known, -pairs.radius / up.square.clamp(min=1e-300).sqrt(), 0.0)
        alpha, kappa = scale.unsqueeze(1) * weight, scale * along
        move = Perturbation(scale.unsqueeze(1) * up.e, scale * up.inner, scale**2 * up.square)
        new = value(pairs, move)
        better = new < lowest
        best, lowest = move.where(better, best), torch.minimum(new, lowest)
    return best


def span_of_squares(square: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest ||z + d||^2 on the l2 ball, for ||z||^2 = square."""
    length = square.sqrt()
    return (length - radius).clamp(min=0.0) ** 2, (length + radius) ** 2


def line_below(
    beta: Tensor, low: Tensor, high: Tensor, anchor: Tensor, power: float
) -> tuple[Tensor, Tensor]:
    """(constant, slope), each (m,): beta w^k >= constant + slope w for all low <= w <= high.

    beta w^k is convex in w where k >= 1 and beta > 0, or k <= 1 and beta < 0: then its tangent at
    the anchor is below it; else its chord.
    """
    if power == 0.0:
        return beta, torch.zeros_like(beta)
    at = torch.minimum(torch.maximum(anchor, 1e-6 * high), high)
    value, slope = at**power, power * at ** (power - 1.0)
    rise = (high**power - low**power) / (high - low).clamp(min=1e-300)
    convex = (beta > 0) == (power >= 1.0)
    slope = torch.where(convex, slope, rise)
    constant = torch.where(convex, value - slope * at, low**power - rise * low)
    return beta * constant, beta * slope


NEAR = 1e-9  # of 1: how well <u_j, v> is known where the two are nearly parallel


@dataclass(frozen=True, eq=False)
class BallSlice:
    """A slice of the ball, low <= <v, d> <= high, across a unit direction v of each pair."""

    c: Tensor  # (m, h): <u_j, v>
    inner: Tensor  # (m,): <z, v>
    low: Tensor  # (m,)
    high: Tensor  # (m,)

    def take(self, index: Tensor) -> BallSlice:
        """The chosen pairs."""
        return BallSlice(self.c[index], self.inner[index], self.low[index], self.high[index])


@dataclass(frozen=True, eq=False)
class TargetPairs:
    """m pairs; `gram` (h, h) is U U'. With a `cut` only that slice of the ball is meant."""

    gram: Tensor
    a: Tensor  # (m, h)
    beta: Tensor  # (m,)
    s: Tensor  # (m, h)
    inner: Tensor  # (m, h): <z, u_j>, which is s without the offsets
    square: Tensor  # (m,): ||z||^2
    radius: Tensor  # (m,): rho
    p: float
    power: float  # k; 0 where inputs are not normalised
    unit: float  # rounding of an inner product, as a share of its terms
    cut: BallSlice | None = None

    def __len__(self) -> int:
        return len(self.a)

    def take(self, index: Tensor) -> TargetPairs:
        """The chosen pairs."""
        parts = ("a", "beta", "s", "inner", "square", "radius")
        cut = None if self.cut is None else self.cut.take(index)
        return replace(self, cut=cut, **{name: getattr(self, name)[index] for name in parts})

    def span(self) -> tuple[Tensor, Tensor]:
        """The least and the largest pre-activation that each neuron has there, (m, h) each.

        <u_j, d> is at most c t + (1 - c^2)^(1/2) (rho^2 - t^2)^(1/2) where <v, d> = t, which is
        largest at t = c rho, or at the end of the slice that is nearest to it.
        """
        rho = self.radius.unsqueeze(1)
        if self.cut is None:
            return self.s - rho, self.s + rho
        c, low, high = self.cut.c, self.cut.low.unsqueeze(1), self.cut.high.unsqueeze(1)
        across = ((1.0 - c * c).clamp(min=0.0) + NEAR).sqrt()

        def reach(t: Tensor, sign: float) -> Tensor:
            return c * t + sign * across * (rho * rho - t * t).clamp(min=0.0).sqrt()

        least = reach((-c * rho).clamp(low, high), -1.0)
        return self.s + least, self.s + reach((c * rho).clamp(low, high), 1.0)

    def products(self, first: Tensor, second: Tensor) -> Tensor:
        """Inner products (m, k, l) of directions by indices (m, k) and (m, l); v has index h."""
        count = len(self.gram)
        # One index into the flat matrix: three times faster than a pair of them.
        row, column = first.clamp(max=count - 1), second.clamp(max=count - 1)
        place = (row * count).unsqueeze(2) + column.unsqueeze(1)
        part = self.gram.flatten().index_select(0, place.flatten()).view(place.shape)
        if self.cut is None:
            return part
        with_v = torch.nn.functional.pad(self.cut.c, (0, 1), value=1.0)
        part = torch.where(
            (first == count).unsqueeze(2), with_v.gather(1, second).unsqueeze(1), part
        )
        return torch.where(
            (second == count).unsqueeze(1), with_v.gather(1, first).unsqueeze(2), part
        )


@dataclass(frozen=True, eq=False)
class PointProducts:
    """What is computed once for all radii: the points' inner products with the neurons.

    With hidden biases and normalised inputs M has no such form: then z is the prepared point, and
    the ball the one around it that holds all prepared inputs, since x -> z/||z||^q stretches by at
    most (||z|| - rho)^-q on the way.
    """

    form: TwoLayerForm
    gram: Tensor
    inner: Tensor  # (n, h): <z, u_j>
    square: Tensor  # (n,): ||z||^2
    stretch: float  # the largest scale of the preparation
    outer: Tensor | None  # (n,): ||z|| before normalising, where the ball is stretched

    def pairs(self, rows: Tensor, own: Tensor, target: Tensor, radius: Tensor) -> TargetPairs:
        """Pairs of points with outputs `own` and `target`, each (m,), at radii (m,) of the data."""
        form, inner = self.form, self.inner[rows]
        rho = self.stretch * radius
        if self.outer is not None:
            left = self.outer[rows] - rho
            rho = torch.where(left > 0, rho * left.clamp(min=1e-300) ** -self._q, torch.inf)
        return TargetPairs(
            gram=self.gram,
            a=form.weights[own] - form.weights[target],
            beta=form.constant[own] - form.constant[target],
            s=inner if form.offsets is None else inner + form.offsets,
            inner=inner,
            square=self.square[rows],
            radius=rho,
            p=form.p,
            power=0.0 if self.outer is not None else 0.5 * form.p * self._q,
            unit=form.rounding,
        )

    def take(self, index: Tensor) -> PointProducts:
        """The chosen points."""
        outer = None if self.outer is None else self.outer[index]
        return replace(self, inner=self.inner[index], square=self.square[index], outer=outer)

    @property
    def _q(self) -> float:
        return self.form.preparation.normalize


def points(form: TwoLayerForm, gram: Tensor, x: Tensor) -> PointProducts:
    """The inner products of points (n, dim) with a network's neurons, in float64.

    `gram` (h, h) holds those of the neurons with each other.
    """
    x = x.double()
    z = form.preparation.scaled_offset(x)
    scale = form.preparation.scale
    outer = None
    if form.offsets is not None and form.preparation.normalize > 0.0:
        outer = torch.linalg.vector_norm(z, dim=1)
        z = form.preparation(x)
    return PointProducts(
        form=form,
        gram=gram,
        inner=z @ form.directions.T,
        square=(z * z).sum(1),
        stretch=float(scale.max() if isinstance(scale, Tensor) else scale),
        outer=outer,
    )
