"""Linear bounds: M(d) >= c + g.d, a tangent for each a_j > 0 and a chord for each a_j < 0.

relu^p is convex, so on [s_j - rho, s_j + rho] it lies above its tangents and below its chord. On an
l2 ball the minimum of the line is c - rho ||g||.

Certified radii for any norm and box by linear bounds: M(d) >= c + g.d over ball and box.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.attack import Ball
from extremal.certify.l2_problem import (
    Perturbation,
    TargetPairs,
    line_below,
    rounding_loss,
    span_of_squares,
)
from extremal.certify.largest import largest
from extremal.models import TwoLayerForm, relu_power, relu_power_with_slope

ROUNDING = 1e-9  # share of all terms' sizes that a bound must exceed
LOWER = 1e-6  # by how much the least value of a line is taken lower than it was found


def boxed_radii(form: TwoLayerForm, x: Tensor, y: Tensor, ball: Ball, slack: Tensor) -> Tensor:
    """Radii (n,) up to which linear bounds hold all foreign outputs off correctly classified x.

    relu^p lies above its tangents and below its chord on the values that ball and box leave to a
    neuron; the least value of the resulting line over ball and box is exact. Found by bisection;
    `slack` (n,) is what another network's margin may be smaller by.
    """
    if form.offsets is not None and form.preparation.normalize > 0.0:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)
    task = _Task.of(form, x.double(), y, ball, slack)
    # Without biases f is 0 at the centre, and nothing holds beyond it.
    return largest(task.holds, ball.norms(task.z / task.scale), beyond=form.biased)


@dataclass(frozen=True, eq=False)
class _Region:
    """What ball and box leave: each neuron's values, and the squares of z + d and of d."""

    low: Tensor  # (n, h)
    high: Tensor
    least: Tensor  # (n,): ||z + d||^2
    most: Tensor
    step: Tensor  # (n,): ||d||^2 at most


@dataclass(frozen=True, eq=False)
class _Task:
    form: TwoLayerForm
    x: Tensor  # (n, dim)
    z: Tensor  # (n, dim): scale (x - center)
    scale: Tensor  # (dim,)
    s: Tensor  # (n, h)
    own: Tensor  # (n,)
    foreign: Tensor  # (n, C)
    ball: Ball
    slack: Tensor  # (n,)

    @classmethod
    def of(cls, form: TwoLayerForm, x: Tensor, y: Tensor, ball: Ball, slack: Tensor) -> _Task:
        z = form.preparation.scaled_offset(x)
        scale = torch.as_tensor(form.preparation.scale, dtype=x.dtype, device=x.device).expand(
            x.shape[1]
        )
        s = z @ form.directions.T
        mine = form.own(y)
        own = form.outputs(x).masked_fill(~mine, -torch.inf).argmax(1)
        s = s if form.offsets is None else s + form.offsets
        return cls(form, x, z, scale, s, own, ~mine, ball, slack)

    def holds(self, radius: Tensor) -> Tensor:
        """Whether every foreign output is held off at radii (n,), bool."""
        ball = replace(self.ball, radius=radius)
        region = self._region(ball)
        good = torch.ones(len(self.x), dtype=torch.bool, device=radius.device)
        for target in range(self.foreign.shape[1]):
            holds = self._bound(region, ball, target) > 0
            good &= holds | ~self.foreign[:, target]
        return good

    def _region(self, ball: Ball) -> _Region:
        rows = self.form.directions * self.scale
        radius = ball.radii(self.x).unsqueeze(1)
        if self.ball.norm == "linf":
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
            return _Region(
                self.s + low @ up + high @ down, self.s + high @ up + low @ down, *squares
            )
        reach = radius * rows.abs().amax(1)
        far = (radius * self.scale.max()).squeeze(1)
        length = torch.linalg.vector_norm(self.z, dim=1)
        least, most = (length - far).clamp(min=0.0) ** 2, (length + far) ** 2
        return _Region(self.s - reach, self.s + reach, least, most, far**2)

    def _bound(self, region: _Region, ball: Ball, target: int) -> Tensor:
        """The least value of the line for one target, less what rounding and slack ask, (n,)."""
        form, p = self.form, self.form.p
        a = form.weights[self.own] - form.weights[target]
        beta = form.constant[self.own] - form.constant[target]
        power = 0.5 * p * form.preparation.normalize
        bottom, top = relu_power(region.low, p), relu_power(region.high, p)
        gap = region.high - region.low
        rise = (top - bottom) / torch.where(gap > 0, gap, 1.0)
        value, slope = relu_power_with_slope(self.s, p)
        above = a < 0
        flat = torch.where(above, bottom + rise * (self.s - region.low), value)
        square = (self.z * self.z).sum(1)
        constant, rate = line_below(beta, region.least, region.most, square, power)
        weight = a * torch.where(above, rise, slope)
        gradient = (weight @ form.directions + 2.0 * rate.unsqueeze(1) * self.z) * self.scale
        fall = (gradient * ball.linear_maximum(-gradient, self.x)).sum(1)
        # Each coordinate of the gradient is known to a rounding of terms that may cancel.
        coordinates = 1 if self.ball.norm == "l1" else self.x.shape[1]
        terms = weight.abs().sum(1) + 2.0 * rate.abs() * square.sqrt()
        hidden = coordinates * form.rounding * float(self.scale.max()) * terms
        fall = fall - ball.radii(self.x) * hidden
        c = (a * flat).sum(1) + constant + rate * square + rate.clamp(max=0.0) * region.step
        units = region.most**power
        size = (a.abs() * top).sum(1) + beta.abs() * units + fall.abs()
        return c + fall * (1.0 + LOWER) - ROUNDING * size - self.slack * units


def linear_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """The bound (m,) with tangents at a move."""
    rho = pairs.radius.unsqueeze(1)
    low, high = pairs.s - rho, pairs.s + rho
    bottom, top = relu_power(low, pairs.p), relu_power(high, pairs.p)
    rise = (top - bottom) / (2.0 * rho).clamp(min=1e-300)
    value, slope = relu_power_with_slope(pairs.s + move.e, pairs.p)
    above = pairs.a < 0
    at_zero = torch.where(above, bottom + rise * rho, value - slope * move.e)
    weight = pairs.a * torch.where(above, rise, slope)
    # w >= ||z||^2 + 2 <z, d>, and w <= that + rho^2: the square of d costs at most rho^2.
    span = span_of_squares(pairs.square, pairs.radius)
    constant, rate = line_below(pairs.beta, *span, move.w(pairs), pairs.power)
    up = Perturbation.of(pairs, weight, 2.0 * rate)
    square = pairs.square + torch.where(rate < 0, pairs.radius**2, 0.0)
    c = (pairs.a * at_zero).sum(1) + constant + rate * square
    length = up.square.clamp(min=0.0).sqrt() + rounding_loss(pairs, weight, 2.0 * rate)
    return c - pairs.radius * length
