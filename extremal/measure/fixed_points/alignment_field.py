"""The field that turns a small neuron: its pull, its growth and its curvature on given data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from extremal.models.activations import relu_power, relu_power_with_slope


@dataclass(frozen=True, eq=False)
class Field:
    """g(u) = sum_i q_i relu(<x_i, u>)^p on points x (n, d) with weights q (n,), and its gradient.

    For p < 2 the slope p t^(p-1) is not Lipschitz at the kink t = 0 (a jump for p = 1), and
    opposing samples (s q_i < 0) push a neuron onto it from the active side. So for those the slope
    is p width^(p-2) t below t = `width`, and the neuron slides along. Own samples (s q_i > 0) push
    away from their kinks, which stay sharp: they are where basins meet. `width` plays no part for
    p >= 2.

    Directions are u (m, d) with signs s (m,), products t = u x^T (m, n).
    """

    x: Tensor
    q: Tensor
    p: float
    width: float

    @cached_property
    def scale(self) -> float:
        """The root mean square of the points' norms."""
        return float(self.x.double().square().sum(1).mean().sqrt())

    def narrowed(self, width: float) -> Field:
        """The same field with another width of the kinks."""
        return replace(self, width=width)

    def growth(self, u: Tensor, sign: Tensor) -> Tensor:
        """s g(u), (m,), the rate of log ||w||, with softened kinks for p < 2."""
        t = u @ self.x.T
        power = relu_power(t, self.p)
        if self.p < 2.0:
            r, e, p = torch.relu(t), self.width, self.p
            soft = torch.where(r < e, 0.5 * p * e ** (p - 2.0) * r * r, power - (1 - p / 2) * e**p)
            power = torch.where(self._own(sign), power, soft)
        return sign * (power @ self.q)

    def slope(self, t: Tensor, sign: Tensor) -> Tensor:
        """p relu(t)^(p-1), softened for p < 2, (m, n)."""
        sharp = relu_power_with_slope(t, self.p)[1]
        if self.p >= 2.0:
            return sharp
        soft = self.p * self.width ** (self.p - 2.0) * torch.relu(t)
        return torch.where(self._own(sign), sharp, torch.minimum(sharp, soft))

    def curvature(self, t: Tensor, sign: Tensor) -> Tensor:
        """The derivative of `slope`, zero where t <= 0, (m, n)."""
        p = self.p
        if p == 2.0:
            return 2.0 * (t > 0).to(t.dtype)
        if p > 2.0:
            return p * (p - 1.0) * torch.relu(t) ** (p - 2.0)
        sharp = p * (p - 1.0) * t.clamp(min=1e-3 * self.width) ** (p - 2.0)
        inside = (t < self.width) & ~self._own(sign)
        return torch.where(t > 0, torch.where(inside, p * self.width ** (p - 2.0), sharp), 0.0)

    def pull(self, t: Tensor, sign: Tensor) -> Tensor:
        """s G(u) = s sum_i q_i slope(t_i) x_i, (m, d)."""
        return sign[:, None] * ((self.slope(t, sign) * self.q) @ self.x)

    def bend(self, t: Tensor, sign: Tensor, v: Tensor) -> Tensor:
        """s H v, H = sum_i q_i curvature(t_i) x_i x_i^T, for vectors v (m, d)."""
        weight = sign[:, None] * self.curvature(t, sign) * self.q  # (m, n)
        return ((v @ self.x.T) * weight) @ self.x

    def _own(self, sign: Tensor) -> Tensor:
        return sign[:, None] * self.q > 0


def across(v: Tensor, u: Tensor) -> Tensor:
    """(I - u u^T) v row by row."""
    return v - (v * u).sum(-1, keepdim=True) * u


def unit(v: Tensor) -> Tensor:
    """Rows divided by their norms; zero rows stay."""
    length = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return v / torch.where(length > 0, length, 1.0)
