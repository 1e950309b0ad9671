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

    An exponent of 1 puts z on the unit sphere, and (p-1)/p makes a pReLU network of power p divide
    each activation by ||z||^(p-1), as the authors' code does (Min & Vidal 2024, Section 5.2.1). The
    value at the centre, z = 0, is zero, which makes the map continuous there for normalize < 1. A
    scale for each coordinate goes into a network's weights: `rescaled`.
    """

    scale: float = 1.0  # a positive number
    center: Tensor | None = None  # (dim,), integers become floats; None for zero
    normalize: float = 0.0  # an exponent in [0, 1]; 0 leaves z as it is

    def __post_init__(self) -> None:
        _check.number("scale", self.scale, above=0.0)
        if self.center is not None:
            object.__setattr__(self, "center", _floating_vector("center", self.center))
        _check.number("normalize", self.normalize, minimum=0.0, maximum=1.0)

    @classmethod
    def for_power(
        cls, p: float, *, scale: float = 1.0, center: Tensor | None = None
    ) -> Preparation:
        """The authors' normalisation for a network of power p: normalize = (p-1)/p.

        Arguments:

        - `p`: the power of the activation, at least 1.
        - `scale`: as in `Preparation`, 1 by default.
        - `center`: as in `Preparation`, None for zero.
        """
        p = _check.number("p", p, minimum=1.0)
        return cls(scale, center, (p - 1) / p)

    @property
    def is_identity(self) -> bool:
        """Whether inputs are left as they are."""
        return self.scale == 1.0 and self.center is None and self.normalize == 0.0

    def check_dim(self, dim: int) -> None:
        """Require that the centre has `dim` coordinates."""
        if self.center is not None:
            _check.tensor("preparation.center", self.center, (dim,))

    def map(self, change: Callable[[Tensor], Tensor]) -> Preparation:
        """The same preparation with `change` applied to its centre (a dtype, a device)."""
        return self if self.center is None else replace(self, center=change(self.center))

    def scaled_offset(self, x: Tensor) -> Tensor:
        """z = scale * (`x` - center), (n, dim), before any normalising."""
        offset = x if self.center is None else x - self.center
        return offset if self.scale == 1.0 else offset * self.scale

    def distance(self, x: Tensor) -> Tensor:
        """The l2 distance (n,) of inputs `x` from the centre, in their own units."""
        return torch.linalg.vector_norm(x if self.center is None else x - self.center, dim=1)

    def __call__(self, x: Tensor) -> Tensor:
        """Prepared inputs, (n, dim)."""
        return self.at(x).z

    def at(self, x: Tensor) -> Prepared:
        """Inputs `x` (n, dim) prepared, with what `pull_back` needs to know of them."""
        z = self.scaled_offset(x)
        if self.normalize == 0.0:
            return Prepared(z, None)
        divided = shrunk, largest, length = _divided_by_largest(z)
        out = shrunk * (length**-self.normalize * largest ** (1.0 - self.normalize))
        return Prepared(torch.where(largest > 0, out, 0.0), divided)

    def pull_back(self, at: Prepared, cotangent: Tensor) -> Tensor:
        """The gradient (n, dim) of <`cotangent`, prepared(x)> in x, from `at`; 0 at the centre."""
        grad = cotangent
        if at.divided is not None:
            shrunk, largest, length = at.divided
            direction = shrunk / length
            along = self.normalize * (direction * grad).sum(-1, keepdim=True)
            grad = (grad - along * direction) * (largest * length) ** -self.normalize
            grad = torch.where(largest > 0, grad, 0.0)
        return grad if self.scale == 1.0 else grad * self.scale

    def reach(self, radius: float, center: Tensor | None = None) -> float:
        """The largest ||prepared(x)|| over ||x - `center`|| <= `radius` (origin if None).

        (scale (||center - self.center|| + radius))^(1 - normalize).
        """
        if center is not None:
            center = _floating_vector("center", center)
        offset = 0.0
        if center is not None or self.center is not None:
            here = torch.zeros(()) if center is None else center
            there = torch.zeros(()) if self.center is None else self.center
            offset = float((here.double() - there.double()).norm())
        return float((self.scale * (offset + radius)) ** (1.0 - self.normalize))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Inputs as a preparation leaves them; if normalised, with `_divided_by_largest(z)` too."""

    z: Tensor  # (n, dim)
    divided: tuple[Tensor, Tensor, Tensor] | None


def _divided_by_largest(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z / largest (n, dim), the largest entry's size (n, 1) and ||z / largest|| (n, 1).

    Dividing first keeps the squares of an entry of 1e-30 from underflowing in float32. `largest` is
    a constant for autograd, since what is made of the three does not depend on it. The length of a
    zero row is that of a row of ones, so that no gradient meets 0/0.
    """
    largest = z.detach().abs().amax(-1, keepdim=True)
    shrunk = z / torch.where(largest > 0, largest, 1.0)
    nonzero = torch.where(largest > 0, shrunk, 1.0)
    return shrunk, largest, torch.linalg.vector_norm(nonzero, dim=-1, keepdim=True)


def directions_and_norms(rows: Tensor, *, least: float = 0.0) -> tuple[Tensor, Tensor]:
    """Rows (..., dim) divided by their l2 norms, and the norms (..., 1); zero rows stay zero.

    Norms are formed after division by the largest entry: the squares of weights of 1e-30 underflow
    in float32. A row with no entry of at least `least` is left undivided.
    """
    largest = rows.detach().abs().amax(-1, keepdim=True)
    divided = (largest > 0) & (largest >= least)
    unit = torch.where(divided, largest, 1.0)
    shrunk = rows / unit
    length = torch.linalg.vector_norm(shrunk, dim=-1, keepdim=True)
    return shrunk / torch.where(divided, length, 1.0), length * unit


def _floating_vector(name: str, value: object) -> Tensor:
    """A finite (dim,) tensor; integers become PyTorch's default floating-point type."""
    if isinstance(value, Tensor) and value.dtype != torch.bool and not value.is_complex():
        value = value if value.is_floating_point() else value.to(torch.get_default_dtype())
    return _check.tensor(name, value, ("dim",))


def check_rows(x: object, dim: int) -> None:
    """Require a tensor of points (n, dim), as a forward does: in one look, not entry by entry."""
    rule = f"be a tensor of shape (n, {dim})"
    found = _check.instance("x", x, Tensor, rule)
    fits = found.ndim == 2 and found.shape[1] == dim
    _check.require(fits, "x", rule, f"shape {tuple(found.shape)}")
