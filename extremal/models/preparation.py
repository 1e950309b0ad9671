"""What is done to inputs before a plain network sees them: scaling, centring, normalising."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal import _check


@dataclass(frozen=True, eq=False)
class Preparation:
    """The map x -> z / ||z||^normalize with z = scale * (x - center), a frozen value.

    `scale` is a positive number or a (dim,) tensor, `center` a (dim,) tensor or None for zero, and
    `normalize` an exponent in [0, 1]: 0 leaves z as it is, 1 puts it on the unit sphere, and
    (p-1)/p makes a pReLU network of power p divide each activation by ||z||^(p-1), as the authors'
    code does (Min & Vidal 2024, Section 5.2.1). The value at the centre, z = 0, is zero, which
    makes the map continuous there for normalize < 1.
    """

    scale: float | Tensor = 1.0
    center: Tensor | None = None
    normalize: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.scale, Tensor):
            _check.finite("scale", self.scale)
            good = self.scale.ndim == 1 and bool((self.scale > 0).all())
            _check.require(good, "scale", "be a number or a (dim,) tensor > 0", "another tensor")
        else:
            _check.number("scale", self.scale, above=0.0)
        if self.center is not None:
            shape = tuple(self.center.shape)
            _check.require(self.center.ndim == 1, "center", "be a (dim,) tensor", f"shape {shape}")
            _check.finite("center", self.center)
        _check.number("normalize", self.normalize, minimum=0.0, maximum=1.0)

    @classmethod
    def for_power(cls, p: float, **others: float | Tensor | None) -> Preparation:
        """The authors' normalisation for a network of power p: normalize = (p-1)/p."""
        return cls(normalize=(p - 1) / p, **others)  # type: ignore[arg-type]

    def check_dim(self, dim: int) -> None:
        """Require that the centre and a scale per coordinate fit `dim` coordinates."""
        for name, value in (("center", self.center), ("scale", self.scale)):
            if isinstance(value, Tensor):
                fits = tuple(value.shape) == (dim,)
                rule = f"have shape ({dim},)"
                _check.require(fits, f"preparation.{name}", rule, f"shape {tuple(value.shape)}")

    def map(self, change: Callable[[Tensor], Tensor]) -> Preparation:
        """The same preparation with `change` applied to its tensors (a dtype, a device)."""
        changes = {
            name: change(value)
            for name, value in (("scale", self.scale), ("center", self.center))
            if isinstance(value, Tensor)
        }
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]

    def residue(self, x: Tensor) -> Tensor:
        """z = scale * (x - center), before any normalising."""
        moved = x if self.center is None else x - self.center
        whole = not isinstance(self.scale, Tensor) and self.scale == 1.0
        return moved if whole else moved * self.scale

    def __call__(self, x: Tensor) -> Tensor:
        """Prepared inputs, (n, dim)."""
        z = self.residue(x)
        if self.normalize == 0.0:
            return z
        # Norms are taken of a z that is nowhere zero, so that autograd meets no 0/0.
        zero = (z == 0).all(-1, keepdim=True)
        norm = torch.linalg.vector_norm(torch.where(zero, 1.0, z), dim=-1, keepdim=True)
        return torch.where(zero, 0.0, z * norm**-self.normalize)

    def pull_back(self, x: Tensor, cotangent: Tensor) -> Tensor:
        """The gradient at x of <cotangent, prepared(x)>, (n, dim); zero at the centre."""
        grad = cotangent
        if self.normalize > 0.0:
            z = self.residue(x)
            square = (z * z).sum(-1, keepdim=True)
            safe = torch.where(square > 0, square, 1.0)
            along = (z * grad).sum(-1, keepdim=True) * (self.normalize / safe)
            grad = (grad - along * z) * safe ** (-self.normalize / 2)
            grad = torch.where(square > 0, grad, 0.0)
        whole = not isinstance(self.scale, Tensor) and self.scale == 1.0
        return grad if whole else grad * self.scale

    def reach(self, radius: float, center: Tensor | None = None) -> float:
        """The largest ||prepared(x)|| over the ball ||x - center|| <= radius (origin if None)."""
        offset = 0.0
        if center is not None or self.center is not None:
            here = torch.zeros(()) if center is None else center
            there = torch.zeros(()) if self.center is None else self.center
            offset = float((here.double() - there.double()).norm())
        scale = self.scale
        widest = float(scale.max()) if isinstance(scale, Tensor) else float(scale)
        return float((widest * (offset + radius)) ** (1.0 - self.normalize))
