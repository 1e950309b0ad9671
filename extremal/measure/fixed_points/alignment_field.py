"""The field that turns a small neuron, and its flow from many starts.

The field has a pull, a growth and a curvature on given data; the flow says where each neuron goes
while the network is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.models import relu_power, relu_power_with_slope

# A neuron has arrived where |P G|/|G| is at most this.
_ARRIVED_SPEED = 1e-4
# For p < 2 a neuron has arrived where |P G|/|G| is at most this: the last part of its way is stiff.
_ARRIVED_SPEED_ON_KINKS = 1e-3
# A neuron is dead where no sample activates it by more than this share of the samples' norms.
_DEAD_PRODUCT_SHARE = 1e-6
# The step of third order less the one of second order, by Bogacki & Shampine.
_ERROR_WEIGHTS = (5 / 72, -1 / 12, -1 / 9, 1 / 8)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Where each start ended, and how."""

    u: Tensor  # (h, d)
    dead: Tensor  # (h,): whether it died
    settled: Tensor  # (h,): whether it died or arrived before its steps were used up


def flow_to_rest(
    field: AlignmentField, u: Tensor, sign: Tensor, tolerance: float, steps: int
) -> Arrivals:
    """Integrate u' = s P_u G(u)/|G(u)| from each row of u (h, d), with its own step sizes.

    Dividing by |G| only changes the clock, so orbits and basins are those of the flow, and tiny
    fields (large p in high dimension) cost no more than others. Steps are those of the pair 3(2) of
    Bogacki & Shampine with local errors below `tolerance`, so that none leaves its basin. A neuron
    is dead once no sample activates it, or once those that do shrink it (s g <= 0) and activate
    it by less than the tolerance: on the new clock the approach to the dead cone ends in a step
    across its edge.
    """
    u = u.clone()
    dead = torch.zeros(len(u), dtype=torch.bool)
    settled = torch.zeros_like(dead)
    size = torch.full((len(u), 1), 0.1, dtype=u.dtype)
    scale, arrived = field.scale, _ARRIVED_SPEED if field.p >= 2.0 else _ARRIVED_SPEED_ON_KINKS
    first, top, radial = _velocity(field, u, sign)
    active = torch.arange(len(u))
    for _ in range(steps + 1):
        ending = (radial <= 0) & (top <= tolerance * scale)
        died = (top <= _DEAD_PRODUCT_SHARE * scale) | ending
        resting = torch.linalg.vector_norm(first, dim=1) <= arrived
        dead[active[died]], settled[active[died | resting]] = True, True
        keep = ~(died | resting)
        active, first, top, radial = active[keep], first[keep], top[keep], radial[keep]
        if not len(active):
            break
        here, step = u[active], size[active]
        new, ahead, error = _attempt(field, here, sign[active], first, step)
        # Without the bound by |P G|/|G| steps at the edge of stability would tremble for ever.
        allowed = (0.02 * torch.linalg.vector_norm(first, dim=1)).clamp(max=tolerance)
        # Nor may a step jump to and fro across a kink: it must go on as it began, and not turn.
        advances = ((new - here) * first).sum(1) >= 0.3 * step[:, 0] * first.square().sum(1)
        good = (error <= allowed) & advances & ((ahead[0] * first).sum(1) >= 0)
        error = torch.where(good, error, torch.maximum(error, 5.0 * allowed))
        u[active[good]] = new[good]
        first = torch.where(good[:, None], ahead[0], first)
        top, radial = torch.where(good, ahead[1], top), torch.where(good, ahead[2], radial)
        factor = (0.9 * (error / allowed + 1e-9) ** (-1.0 / 3.0)).clamp(0.2, 2.0)
        # Longer steps than 1 would carry products that fade from below across zero.
        size[active] = (step * factor[:, None]).clamp(max=1.0)
    return Arrivals(u, dead, settled)


# s P G/|G| (h, d), the largest product with a sample (h,), and a multiple of s g (h,).
_Velocity = tuple[Tensor, Tensor, Tensor]


def _velocity(field: AlignmentField, u: Tensor, sign: Tensor) -> _Velocity:
    """The velocity at directions u (h, d); the multiple of s g is by a positive number."""
    t = u @ field.x.T
    top = t.amax(1)
    if field.p >= 2.0:  # only the clock changes, and no power underflows
        t = t / torch.where(top > 0, top, 1.0)[:, None]
    pull = field.pull(t, sign)
    # Where the samples' pulls cancel but for rounding, none moves the neuron.
    most = (field.slope(t, sign) * field.q.abs()) @ torch.linalg.vector_norm(field.x, dim=1)
    rounding = 10.0 * torch.finfo(u.dtype).eps * most
    top = torch.where(torch.linalg.vector_norm(pull, dim=1) > rounding, top, 0.0)
    pull = unit_rows(pull)
    return tangential(pull, u), top, (pull * u).sum(1)


def _attempt(
    field: AlignmentField, u: Tensor, sign: Tensor, first: Tensor, step: Tensor
) -> tuple[Tensor, _Velocity, Tensor]:
    """One step: the new directions (h, d), the velocity there, and the local errors (h,)."""
    second = _velocity(field, unit_rows(u + 0.5 * step * first), sign)[0]
    third = _velocity(field, unit_rows(u + 0.75 * step * second), sign)[0]
    new = unit_rows(u + step * (2 / 9 * first + 1 / 3 * second + 4 / 9 * third))
    ahead = _velocity(field, new, sign)
    slopes = (first, second, third, ahead[0])
    miss = sum(w * k for w, k in zip(_ERROR_WEIGHTS, slopes, strict=True)) * step
    return new, ahead, torch.linalg.vector_norm(miss, dim=1)


@dataclass(frozen=True, eq=False)
class AlignmentField:
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


def tangential(v: Tensor, u: Tensor) -> Tensor:
    """The part of v across u, (I - u u^T) v, row by row."""
    return v - (v * u).sum(-1, keepdim=True) * u
