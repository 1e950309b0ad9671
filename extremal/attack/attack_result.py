"""What attacks found, point by point.

The re-check of every attack: nothing that an attack says of its own points is believed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.attack.ball import Ball
from extremal.models import float64_copy, input_dim, margin

# Searches in float32 may leave points outside by their rounding; the attacks here do not.
SLACK = 1e-5

# Rows at a time: a hidden layer of 2000 neurons then takes 16 MB in float64.
BATCH = 1024


class AttackViolation(RuntimeError):  # noqa: N818 - it is named for what happened
    """An attack returned points that it was not allowed to: outside the ball, the box, or NaN."""


def verified(
    net: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor, ball: Ball, name: str
) -> AttackResult:
    """Measure the points x_adv (n, dim) that an attack returned for x, in float64.

    Recomputed from the points and a float64 copy of the network in evaluation mode: finite entries;
    norms of at most radius (1 + 1e-5); the box exactly, its ends rounded to the points' dtype;
    broken where the margin is <= 0. A point out of bounds raises an AttackViolation that names the
    attack and the worst excess. Where x itself is misclassified the result is x with radius 0.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is asked.
    - `x`: points (n, dim) that were attacked, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `x_adv`: what the attack returned, of the shape and dtype of `x`; else a ValueError.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `name`: of the attack, for the result's `names` and for errors.
    """
    y = check_points(net, x, y)
    check_ball(ball)
    same = isinstance(x_adv, Tensor) and x_adv.shape == x.shape and x_adv.dtype == x.dtype
    seen = f"{x_adv.dtype} {tuple(x_adv.shape)}" if isinstance(x_adv, Tensor) else repr(x_adv)
    _check.require(same, "x_adv", f"be like x, {x.dtype} {tuple(x.shape)}", seen)
    x_adv = x_adv.detach()
    ball.bounds(x)
    sizes = norms_within(x, x_adv, ball, name)
    twin = float64_copy(net)
    clean = _margins(twin, x, y)
    _check.require(not bool(clean.isnan().any()), "net(x)", "not be NaN", "NaN")
    wrong = clean <= 0
    value = torch.where(wrong, clean, _margins(twin, x_adv, y))
    _refuse(value.isnan(), name, "led to a NaN margin")
    success = value <= 0
    sizes = torch.where(wrong, 0.0, torch.where(success, sizes, torch.inf))
    found = torch.where(wrong, 0, torch.where(success, 1, -1))
    x_adv = torch.where(wrong.unsqueeze(1), x, x_adv)
    return AttackResult(x_adv, success, sizes, value, (CLEAN, name), found)


def check_points(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Require a network, points (n, dim) and their labels, returned as int64 on x's device.

    Arguments:

    - `net`: a `torch.nn.Module`; `x` and `y` must fit a `PReLUNet`, `MLP`, `DeepPReLU` or
      `ConvPReLU`.
    - `x`: points (n, dim), finite and floating-point, with n >= 1.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    """
    _check.module("net", net)
    dim = input_dim(net)
    _check.matrix("x", x, columns=dim)
    outputs = None if dim is None else getattr(net, "outputs", None)
    return _check.labels("y", y, count=len(x), outputs=outputs).to(x.device)


def check_ball(ball: object) -> None:
    """Require a `Ball`."""
    _check.instance("ball", ball, Ball, "be a Ball")


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows that together cover `count` of them."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _margins(twin: nn.Module, points: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        parts = [margin(twin, points[at].double(), y[at]) for at in batches(len(points), BATCH)]
    return torch.cat(parts)


def norms_within(x: Tensor, x_adv: Tensor, ball: Ball, name: str) -> Tensor:
    """The float64 norms (n,) of x_adv - x, once nothing is found to be out of bounds."""
    _refuse(~torch.isfinite(x_adv).all(1), name, "returned NaN or infinite entries")
    gaps = (x_adv[at].double() - x[at].double() for at in batches(len(x), BATCH))
    sizes = torch.cat([ball.norms(gap) for gap in gaps])
    radii = ball.radii(x)
    excess = sizes - radii
    _refuse(excess > SLACK * radii, name, f"left the {ball.norm} ball", excess)
    limits = ball.limits(x)
    if limits is not None:
        outside = torch.maximum(limits[0] - x_adv, x_adv - limits[1]).amax(1)
        _refuse(outside > 0, name, "left the box", outside)
    return sizes


def _refuse(bad: Tensor, name: str, what: str, excess: Tensor | None = None) -> None:
    """Raise an AttackViolation if any point is bad."""
    if bool(bad.any()):
        by = "" if excess is None else f", by up to {float(excess.max()):.3g}"
        raise AttackViolation(f"{name} {what} at {int(bad.sum())} of {len(bad)} points{by}")


CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The worst point found around each of n points, as `verified` measured it.

    Where `success` is False, `radius` is infinite and `x_adv` holds the attempt of least margin.
    A point that is misclassified from the start counts as broken: x_adv = x, radius 0, and the
    name "clean".
    """

    x_adv: Tensor  # (n, dim), of the attacked points' dtype
    success: Tensor  # (n,) bool
    radius: Tensor  # (n,) float64: norm of the perturbation where success, else inf
    margin: Tensor  # (n,) float64, at x_adv
    names: tuple[str, ...]  # the attacks that took part
    found: Tensor  # (n,) int64: index into names of the attack that broke the point, or -1

    def __len__(self) -> int:
        return len(self.x_adv)

    @property
    def accuracy(self) -> float:
        """The share of points that were not broken."""
        return 1.0 - int(self.success.sum()) / len(self)

    @property
    def name(self) -> tuple[str, ...]:
        """For each point the name of the attack that broke it, "" where none did."""
        return tuple("" if i < 0 else self.names[i] for i in self.found.tolist())

    def take(self, index: Tensor) -> AttackResult:
        """The result for the chosen points."""
        parts = (self.x_adv, self.success, self.radius, self.margin)
        x_adv, success, radius, margin = (part[index] for part in parts)
        return AttackResult(x_adv, success, radius, margin, self.names, self.found[index])

    def merged(self, index: Tensor, part: AttackResult) -> AttackResult:
        """This result with the points at `index` replaced wherever `part` is worse for them."""
        both = worst([self.take(index), part])
        fields = ("x_adv", "success", "radius", "margin", "found")
        x_adv, success, radius, margin, found = (
            getattr(self, field).index_copy(0, index, getattr(both, field)) for field in fields
        )
        return AttackResult(x_adv, success, radius, margin, both.names, found)


def worst(results: Iterable[AttackResult]) -> AttackResult:
    """For each point the smallest radius that succeeds, and the attack that found it.

    Where no attack succeeded, the attempt of least margin. Of equals, the first.

    Arguments:

    - `results`: one or more `AttackResult`, all of the same points in the same order.
    """
    every = list(results)
    _check.require(len(every) >= 1, "results", "hold at least one AttackResult", every)
    shapes = {tuple(result.x_adv.shape) for result in every}
    _check.require(len(shapes) == 1, "results", "be of the same points", sorted(shapes))
    return functools.reduce(_worse, every)


def _worse(first: AttackResult, second: AttackResult) -> AttackResult:
    neither = ~first.success & ~second.success
    swap = (second.radius < first.radius) | (neither & (second.margin < first.margin))
    names = tuple(dict.fromkeys(first.names + second.names))  # first's indices stay valid
    place = torch.tensor([names.index(name) for name in second.names], device=swap.device)
    renamed = torch.where(second.found >= 0, place[second.found.clamp(min=0)], -1)
    return AttackResult(
        x_adv=torch.where(swap.unsqueeze(1), second.x_adv, first.x_adv),
        success=torch.where(swap, second.success, first.success),
        radius=torch.where(swap, second.radius, first.radius),
        margin=torch.where(swap, second.margin, first.margin),
        names=names,
        found=torch.where(swap, renamed, first.found),
    )
