"""The distance between a network and a classifier, up to scale.

dist(f, F) = inf over c > 0 of sup over ||x|| = 1 of |c f(x) - F(x)|, Min & Vidal 2024, Section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet, double, polar

_LARGE = 200  # neurons from which on it pays to explore with fewer
_COARSE = 1e-3  # what those leave out, as a share of all contributions
_KEPT = 1e-7  # relative change allowed when negligible neurons are left out of the search


@dataclass(frozen=True, eq=False)
class Distance:
    """The distance found, the scale c, and the point x of the sphere where it is attained.

    `value` is |c f - F| at the witness, the largest that was found. `lower` is a proven lower bound
    on the distance by the same points: the least over c of the largest difference on all points
    that the search found (nan for the paper's algorithm, which fixes c beforehand).
    """

    value: float
    scale: float
    witness: Tensor
    lower: float
    converged: bool
    method: str


def distance(
    net: PReLUNet,
    reference: PReLUNet,
    *,
    generator: torch.Generator,
    method: Literal["search", "paper"] = "search",
    starts: int | None = None,
    steps: int | None = None,
    fit: Dataset | None = None,
    fit_points: int = 1000,
) -> Distance:
    """dist(net, reference), by a joint search over c and x or by the paper's Algorithm 1.

    "search": f and F depend on x only through the span of their neurons, so x is sought in that
    span's coordinates (in its unit ball where it is smaller than the whole space), from `starts`
    random points (100) and from the heaviest neurons, by gradient ascent with `steps` steps (100);
    c is the exact minimiser over the points found so far, and both alternate until they agree.

    "paper": Algorithm 1 as printed: c by least squares on `fit_points` uniform points of the sphere
    (or on the points of `fit`, as the authors' file does), then normalised projected gradient
    ascent on |c f - F|^2 with steps of 0.01 (`steps` = 2000 from `starts` = 1000 uniform points).
    """
    _check.choice("method", method, ("search", "paper"))
    _check.generator("generator", generator)
    for name, count in (("starts", starts), ("steps", steps), ("fit_points", fit_points)):
        if count is not None:
            _check.integer(name, count, minimum=1)
    for name, part in (("net", net), ("reference", reference)):
        _check_plain(name, part)
    if fit is not None:
        _check.instance("fit", fit, Dataset, "be a Dataset or None")
    same = net.dim == reference.dim
    _check.require(same, "reference", f"have dim {net.dim} like the network", reference.dim)
    if method == "paper":
        inputs = fit.x.double() if fit is not None else None
        return _algorithm_1(
            net, reference, starts or 1000, steps or 2000, inputs, fit_points, generator
        )
    return _search(net, reference, starts or 100, steps or 100, generator)


@dataclass(frozen=True, eq=False)
class _Sum:
    """sum_j c_j relu(<x, u_j>)^p in chosen coordinates, with its gradient."""

    directions: Tensor
    weights: Tensor
    p: float

    def value(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.directions.T) ** self.p @ self.weights

    def gradient(self, x: Tensor) -> Tensor:
        s = x @ self.directions.T
        slope = self.p * torch.relu(s) ** (self.p - 1.0) * (s > 0)
        return (slope * self.weights) @ self.directions


def _check_plain(name: str, net: object) -> None:
    rule = "be a one-output PReLUNet without biases or preparation"
    _check.require(isinstance(net, PReLUNet), name, rule, type(net).__name__)
    assert isinstance(net, PReLUNet)
    simple = net.outputs == 1 and net.bias is None and net.hidden_bias is None
    _check.require(simple and net.preparation.plain, name, rule, repr(net))


def _search(
    net: PReLUNet, reference: PReLUNet, starts: int, steps: int, generator: torch.Generator
) -> Distance:
    """Explore with few neurons where there are many, then settle with all that matter."""
    fine = [part.effective(_KEPT) for part in (net, reference)]
    large = max(part.width for part in fine) > _LARGE
    coarse = [part.effective(_COARSE) for part in (net, reference)] if large else fine
    f, other, basis = _in_span(coarse)
    ball = len(basis) < net.dim
    x = torch.randn(starts, len(basis), generator=generator, dtype=torch.float64)
    first = _onto(torch.cat([x, _heaviest(f, 30), _heaviest(other, 30)]), ball=False)
    found = _exchange(f, other, 1.0, first, steps, ball)
    if large:
        points = _whole(found.seen[found.order(f, other)[:8]], basis, ball)
        f, other, basis = _in_span(fine)
        ball = len(basis) < net.dim
        some = torch.randn(4, len(basis), generator=generator, dtype=torch.float64)
        heavy = [_heaviest(f, 6), _heaviest(other, 6)]
        first = torch.cat([points @ basis.T, *heavy, _onto(some, ball=False)])
        found = _exchange(f, other, found.scale, first, max(1, steps // 2), ball)
    best = _whole(found.seen[found.order(f, other)[:1]], basis, ball)
    value = float(_gap(net, reference, found.scale, best))
    return Distance(value, found.scale, best[0], found.lower, found.converged, "search")


def _in_span(nets: list[PReLUNet]) -> tuple[_Sum, _Sum, Tensor]:
    """Both networks in the coordinates of their neurons' span, and its basis (r, dim)."""
    parts = [polar(net) for net in nets]
    basis = _basis(torch.cat([part.directions for part in parts]))
    f, other = (
        _Sum(part.directions @ basis.T, part.contributions[0], net.p)
        for part, net in zip(parts, nets, strict=True)
    )
    return f, other, basis


def _whole(points: Tensor, basis: Tensor, ball: bool) -> Tensor:
    """Points of the span's unit ball as points of the sphere in the whole space."""
    return torch.stack([_lift(x, basis) for x in points]) if ball else points @ basis


@dataclass(frozen=True, eq=False)
class _Exchange:
    """All points that ascents found, the scale that fits them best, and what that proves."""

    seen: Tensor
    scale: float
    lower: float
    converged: bool

    def order(self, f: _Sum, other: _Sum) -> Tensor:
        """The points from the largest gap to the smallest."""
        return (self.scale * f.value(self.seen) - other.value(self.seen)).abs().argsort().flip(0)


def _exchange(
    f: _Sum, other: _Sum, scale: float, first: Tensor, steps: int, ball: bool
) -> _Exchange:
    """Ascents for the scale, and the best scale for the points found, until they agree."""
    x, seen, lower = first, first[:0], 0.0
    for _ in range(30):
        seen = torch.cat([seen, _ascend(f, other, scale, x, steps, ball)])
        a, b = f.value(seen), other.value(seen)
        refined = _best_scale(a, b)
        lower = float((refined * a - b).abs().max())
        settled = float((scale * a - b).abs().max()) <= lower * (1.0 + 1e-4) + 1e-12
        if settled and len(x) >= len(first):
            return _Exchange(seen, scale, lower, True)
        # Follow the maxima that were found; look everywhere again before calling it settled.
        scale = refined
        near = (scale * a - b).abs().topk(min(30, len(a))).indices
        x = torch.cat([first, seen[near]]) if settled else seen[near]
    return _Exchange(seen, scale, lower, False)


def _heaviest(part: _Sum, count: int) -> Tensor:
    """The directions of the neurons that contribute most."""
    return part.directions[part.weights.abs().topk(min(count, len(part.weights))).indices]


def _ascend(f: _Sum, other: _Sum, scale: float, start: Tensor, steps: int, ball: bool) -> Tensor:
    """Ascent of s (c f - F) for both signs s from each start, halving steps that don't improve."""
    x = torch.cat([start, start])
    sign = torch.ones(len(x), dtype=torch.float64)
    sign[len(start) :] = -1.0
    step = torch.full((len(x), 1), 0.3, dtype=torch.float64)
    value = sign * (scale * f.value(x) - other.value(x))
    for _ in range(steps):
        slope = sign[:, None] * (scale * f.gradient(x) - other.gradient(x))
        length = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        trial = _onto(x + step * slope / torch.where(length > 0, length, 1.0), ball=ball)
        new = sign * (scale * f.value(trial) - other.value(trial))
        better = new > value
        x = torch.where(better[:, None], trial, x)
        value = torch.where(better, new, value)
        step = torch.where(better[:, None], step * 1.2, step * 0.5)
    return x


def _best_scale(a: Tensor, b: Tensor) -> float:
    """The c > 0 with the least max_i |c a_i - b_i|: a convex function, by golden section."""
    top = 2.0 * float(b.abs().max() / a.abs().max().clamp(min=1e-300))
    low, high = 0.0, max(top, 1e-300)
    ratio = (5.0**0.5 - 1.0) / 2.0

    def worst(c: float) -> float:
        return float((c * a - b).abs().max())

    for _ in range(90):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        if worst(first) <= worst(second):
            high = second
        else:
            low = first
    return (low + high) / 2.0


def _algorithm_1(
    net: PReLUNet,
    reference: PReLUNet,
    starts: int,
    steps: int,
    inputs: Tensor | None,
    fit_points: int,
    generator: torch.Generator,
) -> Distance:
    f, other = double(net), double(reference)
    assert isinstance(f, PReLUNet)
    assert isinstance(other, PReLUNet)
    fitted = _sphere(fit_points, net.dim, generator) if inputs is None else inputs
    with torch.no_grad():
        a, b = f(fitted), other(fitted)
    scale = max(float((a * b).sum() / (a * a).sum().clamp(min=1e-300)), 1e-300)
    x = _sphere(starts, net.dim, generator)
    for _ in range(steps):
        one = torch.ones(len(x), dtype=torch.float64)
        fx, fg = f.input_gradient(x, one)
        ox, og = other.input_gradient(x, one)
        slope = (scale * fx - ox) * (scale * fg - og)
        length = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        x = _onto(x + 0.01 * slope / torch.where(length > 0, length, 1.0), ball=False)
    gaps = _gap(net, reference, scale, x)
    best = int(gaps.argmax())
    return Distance(float(gaps[best]), scale, x[best], float("nan"), True, "paper")


def _gap(net: PReLUNet, reference: PReLUNet, scale: float, x: Tensor) -> Tensor:
    """|c f(x) - F(x)| in float64."""
    with torch.no_grad():
        return (scale * double(net)(x) - double(reference)(x)).abs()


def _sphere(count: int, dim: int, generator: torch.Generator) -> Tensor:
    return _onto(torch.randn(count, dim, generator=generator, dtype=torch.float64), ball=False)


def _onto(x: Tensor, *, ball: bool) -> Tensor:
    """The nearest point of the unit sphere, or of the unit ball."""
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / (length.clamp(min=1.0) if ball else torch.where(length > 0, length, 1.0))


def _basis(rows: Tensor) -> Tensor:
    """An orthonormal basis (r, dim) of the rows' span."""
    _, s, v = torch.linalg.svd(rows, full_matrices=False)
    return v[s > 1e-10 * s[0]]


def _lift(x: Tensor, basis: Tensor) -> Tensor:
    """The unit vector (dim,) with coordinates x in the span: a step off the span fills it up."""
    missing = max(0.0, 1.0 - float(x @ x)) ** 0.5
    axis = torch.zeros(basis.shape[1], dtype=x.dtype)
    axis[int((basis**2).sum(0).argmin())] = 1.0
    off = axis - (basis @ axis) @ basis
    return x @ basis + missing * off / off.norm()
