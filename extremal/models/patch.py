"""A two-layer network on patches, with a smoothed ReLU (Li & Li 2025)."""

from __future__ import annotations

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
        rule = f"be (n, P {self.patch_dim}) numbers"
        good = x.ndim == 2 and x.shape[1] % self.patch_dim == 0
        _check.require(good, "x", rule, f"shape {tuple(x.shape)}")
        patches = x.reshape(-1, self.patch_dim)  # (n P, d)
        inner = nn.functional.linear(patches, self.filters.flatten(0, 1))  # (n P, classes width)
        out = self.activation(inner).reshape(len(x), -1, self.outputs, self.width)
        return out.sum((1, 3))
