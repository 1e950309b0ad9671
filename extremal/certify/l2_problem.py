"""Pairs of a point and a target output, as certificates see them: through inner products only.

For a ball in l2 a shallow network is known by the Gram matrix of its neurons. With z the centred
and scaled point, s_j = <z, u_j> + offset_j and d a perturbation of norm at most rho, all of

    M(d) = sum_j a_j relu(s_j + <u_j, d>)^p + beta ||z + d||^(2 k),     a = W_own - W_t

(k = p normalize / 2; the last term is beta where inputs are not normalised) is a function of
e = U d and of ||z + d||^2, and its sign is that of the margin against t.

Perturbations are represented by these products, too, and a descent finds where M is least. The term
beta ||z + d||^(2 k) of normalised inputs is bounded by a line in w = ||z + d||^2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from extremal._tensors import SHARED_BY_ROWS, RowRecord
from extremal.models import TwoLayerForm, relu_power, relu_power_with_slope

# A squared norm that is a smaller share of the terms it is the sum of is mostly rounding.
KNOWN_SQUARE_SHARE = 1e-6
# How well the cosine of a neuron and a slice's direction is known where they are nearly parallel.
COSINE_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Perturbation(RowRecord):
    """A perturbation d of each pair by what M depends on.

    In a slice of the ball `neuron_products` has one more column, <v, d>.
    """

    neuron_products: Tensor  # (m, h): e = U d
    point_product: Tensor  # (m,): <z, d>
    squared_length: Tensor  # (m,): ||d||^2

    @classmethod
    def from_weights(cls, pairs: TargetPairs, alpha: Tensor, kappa: Tensor) -> Perturbation:
        """d = U' alpha + kappa z, and in a slice plus alpha's last column times v."""
        products, ball_slice = pairs.point_products, pairs.ball_slice
        if ball_slice is None:
            e = alpha @ pairs.gram
        else:
            products = torch.cat([products, ball_slice.point_product.unsqueeze(1)], 1)
            cosines, hidden, last = ball_slice.cosines, alpha[:, :-1], alpha[:, -1:]
            along = (hidden * cosines).sum(1, keepdim=True) + last
            e = torch.cat([hidden @ pairs.gram + last * cosines, along], 1)
        e = e + kappa.unsqueeze(1) * products
        inner = (alpha * products).sum(1) + kappa * pairs.squared_norm
        return cls(e, inner, (alpha * e).sum(1) + kappa * inner)

    def scaled(self, factor: Tensor) -> Perturbation:
        """factor d, for one factor a pair (m,)."""
        return Perturbation(
            factor.unsqueeze(1) * self.neuron_products,
            factor * self.point_product,
            factor**2 * self.squared_length,
        )

    def squared_norm(self, pairs: TargetPairs) -> Tensor:
        """||z + d||^2, (m,)."""
        square = pairs.squared_norm + 2.0 * self.point_product + self.squared_length
        return square.clamp(min=0.0)


def rounding_loss(pairs: TargetPairs, alpha: Tensor, kappa: Tensor) -> Tensor:
    """How much of the norm of g = U' alpha + kappa z rounding may hide, (m,).

    ||g||^2 = alpha' G alpha + ... is known to a `rounding_share` of its terms, which may cancel. So
    a g that seems to vanish may be as long as the root of that share times
    sum |alpha_j| + |kappa| ||z||, and a bound on c + g.d over ||d|| <= rho is lower by rho times
    that.
    """
    terms = alpha.abs().sum(1) + kappa.abs() * pairs.squared_norm.sqrt()
    return pairs.rounding_share**0.5 * terms


def no_perturbation(pairs: TargetPairs) -> Perturbation:
    """d = 0 for each pair."""
    zero = torch.zeros_like(pairs.constant_gap)
    return Perturbation(torch.zeros_like(pairs.preactivations), zero, zero)


def margin_value(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """M at a perturbation, (m,)."""
    powers = relu_power(pairs.preactivations + move.neuron_products, pairs.p)
    hidden = (pairs.weight_gap * powers).sum(1)
    if pairs.power == 0.0:
        return hidden + pairs.constant_gap
    return hidden + pairs.constant_gap * move.squared_norm(pairs) ** pairs.power


def descend_margin(pairs: TargetPairs, start: Perturbation, steps: int) -> Perturbation:
    """The perturbation of least M along full linear steps d <- -rho grad M / ||grad M||."""
    best, move = start, start
    alpha, kappa = torch.zeros_like(pairs.preactivations), torch.zeros_like(pairs.constant_gap)
    lowest = margin_value(pairs, start)
    for _ in range(steps):
        _, slope = relu_power_with_slope(pairs.preactivations + move.neuron_products, pairs.p)
        w = move.squared_norm(pairs).clamp(min=1e-300)
        pull = torch.zeros_like(kappa)
        if pairs.power > 0.0:
            pull = 2.0 * pairs.power * pairs.constant_gap * w ** (pairs.power - 1.0)
        # grad M = U' weight + pull (z + d)
        weight = pairs.weight_gap * slope + pull.unsqueeze(1) * alpha
        along = pull * (1.0 + kappa)
        gradient = Perturbation.from_weights(pairs, weight, along)
        # Where ||grad M||^2 is what is left of large terms that cancel, its direction is unknown.
        terms = (weight * gradient.neuron_products).abs().sum(1)
        terms = terms + (along * gradient.point_product).abs()
        known = gradient.squared_length > KNOWN_SQUARE_SHARE * terms
        length = gradient.squared_length.clamp(min=1e-300).sqrt()
        scale = torch.where(known, -pairs.radius / length, 0.0)
        alpha, kappa = scale.unsqueeze(1) * weight, scale * along
        move = gradient.scaled(scale)
        value = margin_value(pairs, move)
        best = move.where(value < lowest, best)
        lowest = torch.minimum(value, lowest)
    return best


def squared_norm_range(square: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
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


@dataclass(frozen=True, eq=False)
class BallSlice(RowRecord):
    """A slice of the ball, low <= <v, d> <= high, across a unit direction v of each pair."""

    cosines: Tensor  # (m, h): <u_j, v>
    point_product: Tensor  # (m,): <z, v>
    low: Tensor  # (m,)
    high: Tensor  # (m,)


@dataclass(frozen=True, eq=False)
class TargetPairs(RowRecord):
    """m pairs of a point and a target. With a `ball_slice` only that slice of the ball is meant."""

    gram: Tensor = field(metadata=SHARED_BY_ROWS)  # (h, h): U U'
    weight_gap: Tensor  # (m, h): a
    constant_gap: Tensor  # (m,): beta
    preactivations: Tensor  # (m, h): s
    point_products: Tensor  # (m, h): <z, u_j>, which is s without the offsets
    squared_norm: Tensor  # (m,): ||z||^2
    radius: Tensor  # (m,): rho
    p: float
    power: float  # k; 0 where inputs are not normalised
    rounding_share: float  # rounding of an inner product, as a share of its terms
    ball_slice: BallSlice | None = None

    def __len__(self) -> int:
        return len(self.weight_gap)

    def preactivation_range(self) -> tuple[Tensor, Tensor]:
        """The least and the largest pre-activation that each neuron has there, (m, h) each.

        <u_j, d> is at most c t + (1 - c^2)^(1/2) (rho^2 - t^2)^(1/2) where <v, d> = t, which is
        largest at t = c rho, or at the end of the slice that is nearest to it.
        """
        rho = self.radius.unsqueeze(1)
        if self.ball_slice is None:
            return self.preactivations - rho, self.preactivations + rho
        c = self.ball_slice.cosines
        low, high = self.ball_slice.low.unsqueeze(1), self.ball_slice.high.unsqueeze(1)
        across = ((1.0 - c * c).clamp(min=0.0) + COSINE_ROUNDING).sqrt()

        def reach(t: Tensor, sign: float) -> Tensor:
            return c * t + sign * across * (rho * rho - t * t).clamp(min=0.0).sqrt()

        least = reach((-c * rho).clamp(low, high), -1.0)
        most = reach((c * rho).clamp(low, high), 1.0)
        return self.preactivations + least, self.preactivations + most

    def products(self, first: Tensor, second: Tensor) -> Tensor:
        """Inner products (m, k, l) of directions by indices (m, k) and (m, l); v has index h."""
        count = len(self.gram)
        # One index into the flat matrix: three times faster than a pair of them.
        row, column = first.clamp(max=count - 1), second.clamp(max=count - 1)
        place = (row * count).unsqueeze(2) + column.unsqueeze(1)
        part = self.gram.flatten().index_select(0, place.flatten()).view(place.shape)
        if self.ball_slice is None:
            return part
        with_v = torch.nn.functional.pad(self.ball_slice.cosines, (0, 1), value=1.0)
        part = torch.where(
            (first == count).unsqueeze(2), with_v.gather(1, second).unsqueeze(1), part
        )
        return torch.where(
            (second == count).unsqueeze(1), with_v.gather(1, first).unsqueeze(2), part
        )


@dataclass(frozen=True, eq=False)
class PointProducts(RowRecord):
    """What is computed once for all radii: the points' inner products with the neurons.

    With hidden biases and normalised inputs M has no such form: then z is the prepared point, and
    the ball the one around it that holds all prepared inputs, since x -> z/||z||^q stretches by at
    most (||z|| - rho)^-q on the way.
    """

    form: TwoLayerForm
    gram: Tensor = field(metadata=SHARED_BY_ROWS)  # (h, h)
    neuron_products: Tensor  # (n, h): <z, u_j>
    squared_norm: Tensor  # (n,): ||z||^2
    stretch: float  # the largest scale of the preparation
    length_before: Tensor | None  # (n,): ||z|| before normalising, where the ball is stretched

    def pairs(self, rows: Tensor, own: Tensor, target: Tensor, radius: Tensor) -> TargetPairs:
        """Pairs of points with outputs `own` and `target`, each (m,), at radii (m,) of the data."""
        form, products = self.form, self.neuron_products[rows]
        q, rho = form.preparation.normalize, self.stretch * radius
        if self.length_before is not None:
            left = self.length_before[rows] - rho
            rho = torch.where(left > 0, rho * left.clamp(min=1e-300) ** -q, torch.inf)
        return TargetPairs(
            gram=self.gram,
            weight_gap=form.weights[own] - form.weights[target],
            constant_gap=form.constant[own] - form.constant[target],
            preactivations=products if form.offsets is None else products + form.offsets,
            point_products=products,
            squared_norm=self.squared_norm[rows],
            radius=rho,
            p=form.p,
            power=0.0 if self.length_before is not None else 0.5 * form.p * q,
            rounding_share=form.rounding,
        )


def point_products(form: TwoLayerForm, gram: Tensor, x: Tensor) -> PointProducts:
    """The inner products of points (n, dim) with a network's neurons, in float64.

    `gram` (h, h) holds those of the neurons with each other.
    """
    x = x.double()
    z = form.preparation.scaled_offset(x)
    length_before = None
    if form.offsets is not None and form.preparation.normalize > 0.0:
        length_before = torch.linalg.vector_norm(z, dim=1)
        z = form.preparation(x)
    return PointProducts(
        form=form,
        gram=gram,
        neuron_products=z @ form.directions.T,
        squared_norm=(z * z).sum(1),
        stretch=float(form.preparation.scale),
        length_before=length_before,
    )
