"""Certified radii for any norm and box by linear bounds: M(d) >= c + g.d over ball and box."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.attack import Ball
from extremal.certify.largest import largest
from extremal.certify.norm_term import line_below
from extremal.models import Shallow
from extremal.models.activations import relu_power, relu_power_with_slope

ROUNDING = 1e-9  # share of all terms' sizes that a bound must exceed
LOWER = 1e-6  # by how much the least value of a line is taken lower than it was found


def boxed_radii(form: Shallow, x: Tensor, y: Tensor, ball: Ball, slack: Tensor) -> Tensor:
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
    form: Shallow
    x: Tensor  # (n, dim)
    z: Tensor  # (n, dim): scale (x - center)
    scale: Tensor  # (dim,)
    s: Tensor  # (n, h)
    own: Tensor  # (n,)
    foreign: Tensor  # (n, C)
    ball: Ball
    slack: Tensor  # (n,)

    @classmethod
    def of(cls, form: Shallow, x: Tensor, y: Tensor, ball: Ball, slack: Tensor) -> _Task:
        z = form.preparation.residue(x)
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
