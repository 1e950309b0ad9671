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
            _check_vector("scale", self.scale)
            least = float(self.scale.min())
            _check.require(least > 0, "scale", "be > 0 in every coordinate", f"entry {least:g}")
        else:
            _check.number("scale", self.scale, above=0.0)
        if self.center is not None:
            _check_vector("center", self.center)
        _check.number("normalize", self.normalize, minimum=0.0, maximum=1.0)

    @classmethod
    def for_power(cls, p: float, **others: float | Tensor | None) -> Preparation:
        """The authors' normalisation for a network of power p: normalize = (p-1)/p."""
        p = _check.number("p", p, minimum=1.0)
        return cls(normalize=(p - 1) / p, **others)  # type: ignore[arg-type]

    @property
    def is_identity(self) -> bool:
        """Whether inputs are left as they are."""
        whole = not isinstance(self.scale, Tensor) and self.scale == 1.0
        return whole and self.center is None and self.normalize == 0.0

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

    def scaled_offset(self, x: Tensor) -> Tensor:
        """z = scale * (x - center), before any normalising."""
        moved = x if self.center is None else x - self.center
        whole = not isinstance(self.scale, Tensor) and self.scale == 1.0
        return moved if whole else moved * self.scale

    def distance(self, x: Tensor) -> Tensor:
        """The l2 distance (n,) of inputs from the centre, in their own units."""
        return torch.linalg.vector_norm(x if self.center is None else x - self.center, dim=1)

    def __call__(self, x: Tensor) -> Tensor:
        """Prepared inputs, (n, dim)."""
        return self.at(x).z

    def at(self, x: Tensor) -> Prepared:
        """Prepared inputs, with what `pull_back` needs to know of them."""
        z = self.scaled_offset(x)
        if self.normalize == 0.0:
            return Prepared(z, None)
        polar = shrunk, largest, length = _polar(z)
        out = shrunk * (length**-self.normalize * largest ** (1.0 - self.normalize))
        return Prepared(torch.where(largest > 0, out, 0.0), polar)

    def pull_back(self, at: Prepared, cotangent: Tensor) -> Tensor:
        """The gradient in x of <cotangent, prepared(x)>, (n, dim); zero at the centre."""
        grad = cotangent
        if at.polar is not None:
            shrunk, largest, length = at.polar
            toward = shrunk / length
            along = self.normalize * (toward * grad).sum(-1, keepdim=True)
            grad = (grad - along * toward) * (largest * length) ** -self.normalize
            grad = torch.where(largest > 0, grad, 0.0)
        whole = not isinstance(self.scale, Tensor) and self.scale == 1.0
        return grad if whole else grad * self.scale

    def reach(self, radius: float, center: Tensor | None = None) -> float:
        """An upper bound on ||prepared(x)|| over ||x - center|| <= radius (origin if None).

        (max scale (||center - self.center|| + radius))^(1 - normalize), which is attained where the
        scale is one number.
        """
        if center is not None:
            _check_vector("center", center)
        offset = 0.0
        if center is not None or self.center is not None:
            here = torch.zeros(()) if center is None else center
            there = torch.zeros(()) if self.center is None else self.center
            offset = float((here.double() - there.double()).norm())
        scale = self.scale
        widest = float(scale.max()) if isinstance(scale, Tensor) else float(scale)
        return float((widest * (offset + radius)) ** (1.0 - self.normalize))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Inputs as a preparation leaves them; where it normalises, with the parts of `_polar`."""

    z: Tensor  # (n, dim)
    polar: tuple[Tensor, Tensor, Tensor] | None


def _polar(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z / largest (n, dim), the largest entry's size (n, 1) and ||z / largest|| (n, 1).

    Dividing first keeps the squares of an entry of 1e-30 from underflowing in float32. `largest` is
    a constant for autograd, since what is made of the three does not depend on it. The length of a
    zero row is that of a row of ones, so that no gradient meets 0/0.
    """
    largest = z.detach().abs().amax(-1, keepdim=True)
    shrunk = z / torch.where(largest > 0, largest, 1.0)
    nonzero = torch.where(largest > 0, shrunk, 1.0)
    return shrunk, largest, torch.linalg.vector_norm(nonzero, dim=-1, keepdim=True)


def _check_vector(name: str, value: object) -> None:
    rule = "be a (dim,) tensor"
    _check.require(isinstance(value, Tensor), name, rule, type(value).__name__)
    assert isinstance(value, Tensor)
    good = value.ndim == 1 and len(value) >= 1
    _check.require(good, name, rule, f"shape {tuple(value.shape)}")
    _check.finite(name, value)
