"""A two-layer network on patches, with a smoothed ReLU (Li & Li 2025)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from extremal import _check


class SmoothedReLU(nn.Module):
    """0 for z <= 0, z^q / (q rho^(q-1)) up to rho, then z - (1 - 1/q) rho: smooth for q > 1.

    Allen-Zhu & Li 2023; value and slope meet at rho, where the slope is 1.
    """

    def __init__(self, q: float, rho: float) -> None:
        super().__init__()
        self.q = _check.number("q", q, minimum=1.0)
        self.rho = _check.number("rho", rho, above=0.0)

    def extra_repr(self) -> str:
        """The settings, for print()."""
        return f"q={self.q:g}, rho={self.rho:g}"

    def forward(self, z: Tensor) -> Tensor:
        """The activation of each entry."""
        low = z.clamp(0.0, self.rho)
        power = low.square() * (0.5 / self.rho) if self.q == 2.0 else self._power(low)
        # Not a clamp, whose slope at rho itself would come on top of the power's.
        return power + torch.where(z > self.rho, z - self.rho, 0.0)

    def with_slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The activation of each entry and its derivative, (min(z, rho)/rho)^(q-1) for z > 0."""
        low = z.clamp(0.0, self.rho)
        if self.q == 2.0:
            slope = low / self.rho
        else:
            slope = torch.where(z > 0, (low / self.rho).pow(self.q - 1.0), 0.0)
        return slope * low / self.q + torch.where(z > self.rho, z - self.rho, 0.0), slope

    def _power(self, low: Tensor) -> Tensor:
        return low.pow(self.q) / (self.q * self.rho ** (self.q - 1.0))


class PatchCNN(nn.Module):
    """F_i(X) = sum over filters r and patches p of smoothedReLU(<w_ir, x_p>), (n, classes).

    `filters` (classes, width, dim) hold the w_ir, drawn N(0, std^2); points are flat, (n, P dim)
    for any P. Li & Li 2025; nothing else is learned.
    """

    filters: nn.Parameter

    def __init__(
        self,
        classes: int,
        width: int,
        dim: int,
        *,
        q: float = 2.0,
        rho: float = 5.0,
        std: float = 1e-3,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.outputs = _check.integer("classes", classes, minimum=2)
        self.width = _check.integer("width", width, minimum=1)
        self.patch_dim = _check.integer("dim", dim, minimum=1)
        scale = _check.number("std", std, above=0.0)
        _check.floating("dtype", dtype)
        _check.generator("generator", generator)
        self.activation = SmoothedReLU(q, rho)
        shape = (classes, width, dim)
        draw = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.filters = nn.Parameter(draw.to(dtype))

    def extra_repr(self) -> str:
        """The settings that define the network, for print()."""
        return f"classes={self.outputs}, width={self.width}, dim={self.patch_dim}"

    def forward(self, x: Tensor) -> Tensor:
        """F(X), (n, classes)."""
        return self._summed(self.activation(self._inner(x)), len(x))

    def input_gradient(
        self, x: Tensor, cotangent: Tensor | Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """F(X) and the gradient (n, P dim) of sum_i cotangent_i F_i(X) in X, without a graph.

        `cotangent` has the shape of F(X), or is a function of F(X), such as a loss's slope.
        """
        with torch.no_grad():
            values, slopes = self.activation.with_slope(self._inner(x))
            out = self._summed(values, len(x))
            given = cotangent(out) if callable(cotangent) else cotangent
            weight = slopes.reshape(len(x), -1, self.outputs, self.width)
            weight = weight * given.reshape(len(x), 1, self.outputs, 1)
            gradient = weight.reshape(len(slopes), -1) @ self.filters.flatten(0, 1)
        return out, gradient.reshape(x.shape)

    def _inner(self, x: Tensor) -> Tensor:
        """<w_ir, x_p>, (n P, classes width)."""
        rule = f"be (n, P {self.patch_dim}) numbers"
        good = x.ndim == 2 and x.shape[1] % self.patch_dim == 0
        _check.require(good, "x", rule, f"shape {tuple(x.shape)}")
        return nn.functional.linear(x.reshape(-1, self.patch_dim), self.filters.flatten(0, 1))

    def _summed(self, values: Tensor, count: int) -> Tensor:
        """Over patches and the filters of a class, (n, classes)."""
        return values.reshape(count, -1, self.outputs, self.width).sum((1, 3))
