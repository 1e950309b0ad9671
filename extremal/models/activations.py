"""Activations and their slopes: relu(s)^p for any real p >= 1, and a smoothed ReLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check


def relu_power(s: Tensor, p: float) -> Tensor:
    """relu(s)^p, differentiable, with small whole powers as products (a general pow is slower).

    Arguments:

    - `s`: a tensor of any shape; the result has the same.
    - `p`: the power, any real number of at least 1. It is not checked.
    """
    return _power(torch.relu(s), p)


def relu_power_with_slope(s: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """relu(s)^p and its derivative p relu(s)^(p-1), taken as 0 at a kink (p = 1, s = 0).

    Arguments:

    - `s`: a tensor of any shape; both results have the same.
    - `p`: the power, any real number of at least 1. It is not checked.
    """
    r = torch.relu(s)
    if p == 1.0:
        return r, torch.sign(r)
    lower = _power(r, p - 1.0)
    return lower * r, lower * p


def relu_power_with_slope_(s: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The same as `relu_power_with_slope`, but the first result is written over `s`: half the time.

    Arguments:

    - `s`: a tensor of any shape without a gradient; both results have the same.
    - `p`: the power, any real number of at least 1. It is not checked.
    """
    r = s.relu_()
    if p == 1.0:
        return r, torch.sign(r)
    slope = r.clone() if p == 2.0 else _power(r, p - 1.0)
    return r.mul_(slope), slope.mul_(p)


def _power(r: Tensor, p: float) -> Tensor:
    if p == 1.0:
        return r
    if p == 2.0:
        return r * r
    if p == 3.0:
        return r * r * r
    if p == 4.0:
        square = r * r
        return square * square
    return r**p


class PowerReLU(nn.Module):
    """relu(s)^p of each entry, any real p >= 1: the polynomial ReLU, not normalised by weights.

    Arguments:

    - `p`: the power, any real number of at least 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = _check.number("p", p, minimum=1.0)

    def extra_repr(self) -> str:
        """The power, for print()."""
        return f"p={self.p:g}"

    def forward(self, s: Tensor) -> Tensor:
        """relu(s)^p, of the shape of `s`."""
        return relu_power(s, self.p)


class SmoothedReLU(nn.Module):
    """0 for z <= 0, z^q / (q rho^(q-1)) up to rho, then z - (1 - 1/q) rho: smooth for q > 1.

    Allen-Zhu & Li 2023; value and slope meet at rho, where the slope is 1.

    Arguments:

    - `q`: the power of the lower part, at least 1; q = 1 is the plain ReLU.
    - `rho`: where the linear part begins, above 0.
    """

    def __init__(self, q: float, rho: float) -> None:
        super().__init__()
        self.q = _check.number("q", q, minimum=1.0)
        self.rho = _check.number("rho", rho, above=0.0)

    def extra_repr(self) -> str:
        """The settings, for print()."""
        return f"q={self.q:g}, rho={self.rho:g}"

    def forward(self, z: Tensor) -> Tensor:
        """The activation of each entry of `z`."""
        low = z.clamp(0.0, self.rho)
        if self.q == 2.0:
            power = low.square() * (0.5 / self.rho)
        else:
            power = low.pow(self.q) / (self.q * self.rho ** (self.q - 1.0))
        # Not a clamp, whose slope at rho itself would come on top of the power's.
        return power + torch.where(z > self.rho, z - self.rho, 0.0)

    def with_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The activation of each `z` and its derivative, (min(z, rho)/rho)^(q-1) for z > 0."""
        low = z.clamp(0.0, self.rho)
        if self.q == 2.0:
            slope = low / self.rho
        else:
            slope = torch.where(z > 0, (low / self.rho).pow(self.q - 1.0), 0.0)
        return slope * low / self.q + torch.where(z > self.rho, z - self.rho, 0.0), slope
