"""Linear bounds: M(d) >= c + g.d, a tangent for each a_j > 0 and a chord for each a_j < 0.

relu^p is convex, so on [s_j - rho, s_j + rho] it lies above its tangents and below its chord. On an
l2 ball the minimum of the line is c - rho ||g||. On any ball cut by a box its minimum is exact,
too, and gives certified radii in every norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import bisect_largest
from extremal.attack import Ball
from extremal.certify.l2_problem import (
    Perturbation,
    TargetPairs,
    line_below,
    rounding_loss,
    squared_norm_range,
)
from extremal.models import RoundingNear, TwoLayerForm, relu_power, relu_power_with_slope

# A bound must exceed this share of the sizes of all its terms, which rounding may hide.
ROUNDING_SHARE = 1e-9
# The fall of a line over ball and box is taken larger than it was found by this share.
FALL_SLACK_SHARE = 1e-6


def boxed_radii(
    form: TwoLayerForm, x: Tensor, y: Tensor, ball: Ball, slack: Tensor, rounding: RoundingNear
) -> Tensor:
    """Radii (n,) up to which linear bounds hold all foreign outputs off correctly classified x.

    relu^p lies above its tangents and below its chord on the values that ball and box leave to a
    neuron; the least value of the resulting line over ball and box is exact. Found by bisection;
    `slack` (n,) is what another network's margin may be smaller by, `rounding` that of the network
    as it runs, around the points.
    """
    if form.offsets is not None and form.preparation.normalize > 0.0:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    problem = _box_problem(form, x.double(), y, ball, slack, rounding)
    # Without biases f is 0 at the centre, and nothing holds beyond it.
    first = ball.norms(problem.z / problem.scale)
    return bisect_largest(problem.holds, first, beyond=form.biased)


@dataclass(frozen=True, eq=False)
class _ReachableValues:
    """What ball and box leave: each neuron's values, and the squares of z + d and of d."""

    low: Tensor  # (n, h): the least pre-activations
    high: Tensor  # (n, h): the largest pre-activations
    least_norm: Tensor  # (n,): the least ||z + d||^2
    most_norm: Tensor  # (n,): the largest ||z + d||^2
    most_step: Tensor  # (n,): the largest ||d||^2


@dataclass(frozen=True, eq=False)
class _BoxProblem:
    form: TwoLayerForm
    x: Tensor  # (n, dim)
    z: Tensor  # (n, dim): scale (x - center)
    scale: float
    preactivations: Tensor  # (n, h): s
    own: Tensor  # (n,)
    foreign: Tensor  # (n, C)
    ball: Ball
    slack: Tensor  # (n,)
    rounding: RoundingNear

    def holds(self, radius: Tensor) -> Tensor:
        """Whether every foreign output is held off at radii (n,), bool."""
        ball = replace(self.ball, radius=radius)
        reachable = self._in_linf(ball) if self.ball.norm == "linf" else self._in_l1(ball)
        good = torch.ones(len(self.x), dtype=torch.bool, device=radius.device)
        error = self.rounding.outputs(radius)
        mine = error.gather(1, self.own.unsqueeze(1)).squeeze(1)
        for target in range(self.foreign.shape[1]):
            holds = self._bound(reachable, ball, target) > mine + error[:, target]
            good &= holds | ~self.foreign[:, target]
        return good

    def _in_linf(self, ball: Ball) -> _ReachableValues:
        """Ball and box are one box, in which each coordinate is free."""
        rows, radius = self.form.directions * self.scale, ball.radii(self.x).unsqueeze(1)
        bounds = ball.bounds(self.x)
        low, high = -radius.expand_as(self.x), radius.expand_as(self.x)
        if bounds is not None:
            low, high = torch.maximum(low, bounds[0]), torch.minimum(high, bounds[1])
        up, down = rows.clamp(min=0.0).T, rows.clamp(max=0.0).T
        first, last = self.z + self.scale * low, self.z + self.scale * high
        largest = torch.maximum(first.abs(), last.abs())
        least = torch.where(first * last < 0, 0.0, torch.minimum(first.abs(), last.abs()))
        step = self.scale * torch.maximum(low.abs(), high.abs())
        squares = ((part * part).sum(1) for part in (least, largest, step))
        s = self.preactivations
        return _ReachableValues(s + low @ up + high @ down, s + high @ up + low @ down, *squares)

    def _in_l1(self, ball: Ball) -> _ReachableValues:
        """The ball alone, of which the box may leave less."""
        rows, radius = self.form.directions * self.scale, ball.radii(self.x).unsqueeze(1)
        reach = radius * rows.abs().amax(1)
        far = (radius * self.scale).squeeze(1)
        length = torch.linalg.vector_norm(self.z, dim=1)
        least, most = (length - far).clamp(min=0.0) ** 2, (length + far) ** 2
        s = self.preactivations
        return _ReachableValues(s - reach, s + reach, least, most, far**2)

    def _bound(self, reachable: _ReachableValues, ball: Ball, target: int) -> Tensor:
        """The least value of the line for one target, less what rounding and slack ask, (n,)."""
        form, p, s = self.form, self.form.p, self.preactivations
        a = form.weights[self.own] - form.weights[target]
        beta = form.constant[self.own] - form.constant[target]
        power = 0.5 * p * form.preparation.normalize
        bottom, top = relu_power(reachable.low, p), relu_power(reachable.high, p)
        gap = reachable.high - reachable.low
        rise = (top - bottom) / torch.where(gap > 0, gap, 1.0)
        value, slope = relu_power_with_slope(s, p)
        above = a < 0
        at_zero = torch.where(above, bottom + rise * (s - reachable.low), value)
        square = (self.z * self.z).sum(1)
        norms = reachable.least_norm, reachable.most_norm
        constant, rate = line_below(beta, *norms, square, power)
        weight = a * torch.where(above, rise, slope)
        gradient = (weight @ form.directions + 2.0 * rate.unsqueeze(1) * self.z) * self.scale
        fall = (gradient * ball.linear_maximum(-gradient, self.x)).sum(1)
        # Each coordinate of the gradient is known to a rounding of terms that may cancel.
        coordinates = 1 if self.ball.norm == "l1" else self.x.shape[1]
        terms = weight.abs().sum(1) + 2.0 * rate.abs() * square.sqrt()
        hidden = coordinates * form.rounding * self.scale * terms
        fall = fall - ball.radii(self.x) * hidden
        c = (a * at_zero).sum(1) + constant + rate * square
        c = c + rate.clamp(max=0.0) * reachable.most_step
        units = reachable.most_norm**power
        size = (a.abs() * top).sum(1) + beta.abs() * units + fall.abs()
        return c + fall * (1.0 + FALL_SLACK_SHARE) - ROUNDING_SHARE * size - self.slack * units


def _box_problem(
    form: TwoLayerForm, x: Tensor, y: Tensor, ball: Ball, slack: Tensor, rounding: RoundingNear
) -> _BoxProblem:
    z = form.preparation.scaled_offset(x)
    s = z @ form.directions.T
    s = s if form.offsets is None else s + form.offsets
    mine = form.own(y)
    own = form.outputs(x).masked_fill(~mine, -torch.inf).argmax(1)
    return _BoxProblem(form, x, z, form.preparation.scale, s, own, ~mine, ball, slack, rounding)


def linear_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """The bound (m,) on an l2 ball, with tangents at a perturbation."""
    rho, a = pairs.radius.unsqueeze(1), pairs.weight_gap
    s, e = pairs.preactivations, move.neuron_products
    low, high = s - rho, s + rho
    bottom, top = relu_power(low, pairs.p), relu_power(high, pairs.p)
    rise = (top - bottom) / (2.0 * rho).clamp(min=1e-300)
    value, slope = relu_power_with_slope(s + e, pairs.p)
    above = a < 0
    at_zero = torch.where(above, bottom + rise * rho, value - slope * e)
    weight = a * torch.where(above, rise, slope)
    # w >= ||z||^2 + 2 <z, d>, and w <= that + rho^2: the square of d costs at most rho^2.
    norms = squared_norm_range(pairs.squared_norm, pairs.radius)
    constant, rate = line_below(pairs.constant_gap, *norms, move.squared_norm(pairs), pairs.power)
    gradient = Perturbation.from_weights(pairs, weight, 2.0 * rate)
    square = pairs.squared_norm + torch.where(rate < 0, pairs.radius**2, 0.0)
    c = (a * at_zero).sum(1) + constant + rate * square
    length = gradient.squared_length.clamp(min=0.0).sqrt()
    length = length + rounding_loss(pairs, weight, 2.0 * rate)
    return c - pairs.radius * length
