"""Where an attack may go: a norm ball around each point, perhaps cut by a box."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import NORM_ORDERS
from extremal.attack import linear_problems, projection
from extremal.attack.projection import ROWS_IN_CACHE, Bounds
from extremal.data import Box


def draw_linf(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """Uniform in the cube of half-width `radius`, cut by the bounds: still uniform with a box."""
    share = torch.rand(like.shape, generator=g, device=g.device, dtype=like.dtype).to(like.device)
    high = radius.to(like.dtype).expand_as(like)
    low = -high
    if bounds is not None:
        low, high = torch.maximum(low, bounds[0]), torch.minimum(high, bounds[1])
    return low + share * (high - low)


def draw_l2(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """radius u^(1/dim) z/||z||, z normal and u uniform: uniform in the ball, the box ignored."""
    n, dim = like.shape
    z = torch.randn(n, dim, generator=g, device=g.device, dtype=like.dtype).to(like.device)
    u = torch.rand(n, 1, generator=g, device=g.device, dtype=torch.float64).to(like.device)
    length: Tensor = radius * u ** (1.0 / dim) / torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return z * length.to(like.dtype)


def draw_l1(like: Tensor, radius: Tensor, bounds: Bounds | None, g: torch.Generator) -> Tensor:
    """radius s_i e_i / (e_0 + ... + e_dim), e exponential, s random signs: uniform in the ball.

    The box is ignored, as in `draw_l2`.
    """
    n, dim = like.shape
    e = torch.empty(n, dim + 1, device=g.device, dtype=like.dtype).exponential_(generator=g)
    signs = torch.randint(2, (n, dim), generator=g, device=g.device) * 2 - 1
    e, signs = e.to(like.device), signs.to(like.device)
    return e[:, 1:] * signs * (radius / e.sum(1, keepdim=True)).to(like.dtype)


NORMS = tuple(NORM_ORDERS)
"""The norms of balls, by name."""

# Each norm's projection on ball and box, linear maximum over them, and uniform draw.
_OPERATIONS_BY_NORM = {
    "l1": (projection.project_l1, linear_problems.maximum_l1, draw_l1),
    "l2": (projection.project_l2, linear_problems.maximum_l2, draw_l2),
    "linf": (projection.project_linf, linear_problems.maximum_linf, draw_linf),
}
# A coordinate with less room than this share of the radius counts as blocked by the box: rounding
# leaves about 1e-7 of it in float32, and a steepest step must not go on pushing there.
_BLOCKED_ROOM_SHARE = 1e-5


@dataclass(frozen=True, eq=False)
class Ball:
    """The perturbations d with ||d|| <= radius and, where there is a box, x + d in the box.

    Points x must lie in the box, whose ends are rounded to their dtype.

    Rounding: whatever a method returns has a float64 norm of at most the radius. In float32 that
    costs up to 5e-7 of the radius (`projection.scaled_inside`). `rounded_points` makes points of
    perturbations, and rounds x + d toward x, so that neither the norm nor the box is exceeded.
    """

    norm: str  # "l1", "l2" or "linf"
    radius: float | Tensor  # at least 0, one number or (n,), one for each point
    box: Box | None = None  # (low, high), numbers or (dim,) tensors; None for no box

    def __post_init__(self) -> None:
        _check.choice("norm", self.norm, NORMS)
        if isinstance(self.radius, Tensor):
            _check_radii(self.radius)
        else:
            object.__setattr__(self, "radius", _check.number("radius", self.radius, minimum=0.0))
        if self.box is not None:
            _check_box(self.box)

    def take(self, index: Tensor | slice) -> Ball:
        """The ball of the points that `index`, row numbers, a mask or a slice, chooses."""
        if isinstance(self.radius, Tensor):
            return replace(self, radius=self.radius[index])
        return self

    def radii(self, x: Tensor) -> Tensor:
        """The radius of each point of `x`, (n,) in float64 on its device."""
        if not isinstance(self.radius, Tensor):
            return torch.full((len(x),), self.radius, dtype=torch.float64, device=x.device)
        rule = f"have one entry for each of {len(x)} points"
        _check.require(len(self.radius) == len(x), "radius", rule, len(self.radius))
        return self.radius.to(x.device, torch.float64)

    def limits(self, x: Tensor) -> Bounds | None:
        """The ends of the box in the dtype and on the device of `x`, each () or (dim,)."""
        if self.box is None:
            return None
        low, high = (torch.as_tensor(end, dtype=x.dtype, device=x.device) for end in self.box)
        fits = low.ndim == 0 or low.shape == x.shape[1:]
        rule = f"have one entry for each of {x.shape[1]} coordinates"
        _check.require(fits, "box", rule, f"shape {tuple(low.shape)}")
        return low, high

    def norms(self, delta: Tensor) -> Tensor:
        """The norm of each perturbation of `delta` (n, dim), (n,) in float64."""
        return projection.norms(delta, self.norm)

    def project(self, delta: Tensor, x: Tensor) -> Tensor:
        """Exact argmin of ||d - `delta`||_2 over ||d|| <= radius, `x` + d in the box, (n, dim)."""
        _check_pair("delta", delta, x)
        return self.around(x).project(delta)

    def around(self, x: Tensor) -> PreparedBall:
        """What an ascent asks of the ball around `x` (n, dim) step after step, looked at once."""
        return PreparedBall(self.norm, self.radii(x).unsqueeze(1), self.bounds(x))

    def steepest(self, gradient: Tensor) -> Tensor:
        """argmax of <g, d> over ||d|| <= 1, (n, dim), for `gradient` g (n, dim); zero where g is.

        In l1 the coordinates that tie for the largest |g_i| share equally.
        """
        return linear_problems.steepest(gradient, self.norm)

    def without_blocked(self, gradient: Tensor, delta: Tensor, x: Tensor) -> Tensor:
        """The gradient with zeros where the box leaves x + delta no room to move along it.

        Arguments:

        - `gradient`: (n, dim), the direction to move in.
        - `delta`: the perturbations (n, dim) so far.
        - `x`: the points (n, dim) that are perturbed.
        """
        return self.around(x).without_blocked(gradient, delta)

    def linear_maximum(self, gradient: Tensor, x: Tensor) -> Tensor:
        """argmax of <g, d> over ||d|| <= radius and `x` + d in the box, (n, dim), exact.

        g is the `gradient` (n, dim). Coordinates with a zero gradient stay at zero; in l1 the first
        of tied coordinates goes first.
        """
        _check_pair("gradient", gradient, x)
        radii = self.radii(x).unsqueeze(1)
        maximum = _OPERATIONS_BY_NORM[self.norm][1]
        if len(x) <= ROWS_IN_CACHE:
            return maximum(gradient, radii, self.bounds(x))
        parts = zip(*(part.split(ROWS_IN_CACHE) for part in (gradient, radii, x)), strict=True)
        return torch.cat([maximum(part, r, self.bounds(here)) for part, r, here in parts])

    def sample(self, x: Tensor, *, generator: torch.Generator) -> Tensor:
        """Random perturbations of `x`, (n, dim): uniform in the ball where there is no box.

        All draws are by `generator`. With a box, linf is uniform in what the box leaves of the
        ball; in l1 and l2 a uniform draw of the whole ball is projected, so that some of the mass
        lies on the box's faces.
        """
        _check.generator("generator", generator)
        _check.matrix("x", x)
        draw = _OPERATIONS_BY_NORM[self.norm][2]
        drawn = draw(x, self.radii(x).unsqueeze(1), self.bounds(x), generator)
        return self.project(drawn, x)

    def rounded_points(self, delta: Tensor, x: Tensor) -> Tensor:
        """The points `x` + `delta`, (n, dim), each coordinate rounded toward x, and in the box.

        |point_i - x_i| <= |delta_i| holds exactly: where rounding to nearest went farther, the
        neighbouring number on x's side is taken.
        """
        limits = self.limits(x)
        points = torch.empty_like(x)
        parts = (part.split(ROWS_IN_CACHE) for part in (points, x, delta))
        for to, here, move in zip(*parts, strict=True):
            point = here + move
            over = (point.double() - here.double()).abs() > move.double().abs()
            torch.where(over, torch.nextafter(point, here), point, out=to)
        return points if limits is None else points.clamp_(*limits)

    def bounds(self, x: Tensor) -> Bounds | None:
        """What the box leaves to perturbations of `x`: (low - x, high - x), each (n, dim).

        Points outside of the box are a ValueError.
        """
        limits = self.limits(x)
        if limits is None:
            return None
        low, high = limits[0] - x, limits[1] - x
        if bool((low > 0).any()) or bool((high < 0).any()):
            seen = f"coordinates in [{float(x.min()):g}, {float(x.max()):g}]"
            _check.require(False, "x", "lie in the box", seen)
        return low, high


@dataclass(frozen=True, eq=False)
class PreparedBall:
    """A ball around given points, whose perturbations delta (n, dim) are taken as they come."""

    norm: str
    radius: Tensor  # (n, 1) float64
    bounds: Bounds | None

    def project(self, delta: Tensor) -> Tensor:
        """See `Ball.project`."""
        return _OPERATIONS_BY_NORM[self.norm][0](delta, self.radius, self.bounds)

    def without_blocked(self, gradient: Tensor, delta: Tensor) -> Tensor:
        """See `Ball.without_blocked`."""
        if self.bounds is None:
            return gradient
        low, high = self.bounds
        room = projection.room_along(gradient, (low - delta, high - delta))
        least = (_BLOCKED_ROOM_SHARE * self.radius).to(delta.dtype)
        return torch.where(room > least, gradient, 0.0)


def _check_radii(radius: Tensor) -> None:
    rule = "be a number or a floating-point (n,) tensor, finite and >= 0"
    _check.tensor("radius", radius, ("n",), rule=rule)
    _check.require(bool((radius >= 0).all()), "radius", rule, f"smallest {float(radius.min()):g}")


def _check_box(box: Box) -> None:
    rule = "be a pair (low, high) of numbers or of (dim,) tensors"
    _check.require(isinstance(box, tuple) and len(box) == 2, "box", rule, box)
    low, high = box
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        good = _check.number("box", low) < _check.number("box", high)
        _check.require(good, "box", "have low < high", box)
        return
    vectors = all(isinstance(end, Tensor) and end.ndim == 1 for end in box)
    ends = torch.as_tensor(low), torch.as_tensor(high)
    _check.require(vectors and ends[0].shape == ends[1].shape, "box", rule, box)
    _check.finite("box", torch.stack(ends))
    _check.require(bool((ends[0] <= ends[1]).all()), "box", "have low <= high", box)


def _check_pair(name: str, value: Tensor, x: Tensor) -> None:
    rule = f"be a floating-point tensor of x's shape {tuple(x.shape)}, dtype and device"
    good = isinstance(value, Tensor) and value.shape == x.shape and x.ndim == 2
    seen = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    _check.require(good, name, rule, seen)
    alike = x.is_floating_point() and value.dtype == x.dtype and value.device == x.device
    _check.require(alike, name, rule, f"{value.dtype} on {value.device}")
    _check.finite(name, value)
