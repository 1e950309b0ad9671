"""What attacks find, point by point: the best of a search under way, and the verified result.

The re-check of every attack: nothing that an attack says of its own points is believed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar
from extremal._tensors import RowRecord, batches
from extremal.attack.ball import Ball
from extremal.models import input_dim, margin_range

# A norm may exceed the radius by this share of it, since searches in float32 may leave points
# outside by their rounding. The attacks here do not.
NORM_SLACK_SHARE = 1e-5
ATTACK_BATCH_POINTS = 1024
"""Points at a time unless said otherwise: a layer of 2000 neurons then takes 16 MB in float64."""
CLEAN_NAME = "clean"
"""The name in a result of points that are misclassified before any attack."""


class AttackViolation(RuntimeError):  # noqa: N818 - it is named for what happened
    """An attack returned points that it was not allowed to: outside the ball, the box, or NaN."""


def verified(
    net: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor, ball: Ball, name: str
) -> AttackResult:
    """Measure the points x_adv (n, dim) that an attack returned for x, in float64.

    Recomputed from the points and a float64 copy of the network in evaluation mode: finite entries;
    norms of at most radius (1 + 1e-5); the box exactly, its ends rounded to the points' dtype;
    broken where no rounding can make the margin positive (`models.margin_range`). A point out of
    bounds raises an AttackViolation that names the attack and the worst excess. Where x itself is
    not certain to be classified correctly the result is x with radius 0.

    Arguments:

    - `net`: network with outputs (n,) or (n, C), C >= 2; a copy in evaluation mode is asked.
    - `x`: points (n, dim) that were attacked, finite, float32 or float64.
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    - `x_adv`: what the attack returned, of the shape and dtype of `x`; else a ValueError.
    - `ball`: a `Ball`: the norm, radius and box of the perturbations; `x` must lie in the box.
    - `name`: of the attack, for the result's `names` and for errors.
    """
    y = check_attack(net, x, y, ball)
    same = isinstance(x_adv, Tensor) and x_adv.shape == x.shape and x_adv.dtype == x.dtype
    seen = f"{x_adv.dtype} {tuple(x_adv.shape)}" if isinstance(x_adv, Tensor) else repr(x_adv)
    _check.require(same, "x_adv", f"be like x, {x.dtype} {tuple(x.shape)}", seen)
    x_adv = x_adv.detach()
    ball.bounds(x)
    sizes = norms_within(x, x_adv, ball, name)
    clean = margin_range(net, x, y)
    _check.require(not bool(clean.margin.isnan().any()), "net(x)", "not be NaN", "NaN")
    wrong = ~clean.right
    found = clean.where(wrong, margin_range(net, x_adv, y))
    _refuse(found.margin.isnan(), name, "led to a NaN margin")
    success = wrong | found.broken
    sizes = torch.where(wrong, 0.0, torch.where(success, sizes, torch.inf))
    place = torch.where(wrong, 0, torch.where(success, 1, -1))
    x_adv = torch.where(wrong.unsqueeze(1), x, x_adv)
    return AttackResult(x_adv, success, sizes, found.margin, (CLEAN_NAME, name), place)


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


def check_attack(net: nn.Module, x: Tensor, y: Tensor, ball: Ball, batch: int = 1) -> Tensor:
    """What all attacks in a ball require; the labels are returned as `check_points` does."""
    labels = check_points(net, x, y)
    _check.instance("ball", ball, Ball, "be a Ball")
    _check.integer("batch", batch, minimum=1)
    return labels


def attack_in_batches(
    search: Callable[[slice], Tensor],
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    name: str,
    batch: int,
    bar: Bar,
    *,
    smallest: bool = False,
) -> AttackResult:
    """Search for perturbations of `batch` points at a time, and verify the points that they make.

    `search` returns the perturbations (m, dim) of the points in a slice. `name` is that of the
    attack in the result; the `bar` is told of points that are done. Where the `smallest`
    perturbations were looked for, the radii are those that were found, and not the ball's.
    """
    x_adv = torch.empty_like(x)
    with bar:
        for rows in batches(len(x), batch):
            x_adv[rows] = ball.take(rows).rounded_points(search(rows), x[rows])
            bar.done(rows.stop)
    if smallest:
        ball = replace(ball, radius=ball.norms(x_adv.double() - x.double()))
    return verified(net, x, y, x_adv, ball, name)


def norms_within(x: Tensor, x_adv: Tensor, ball: Ball, name: str) -> Tensor:
    """The float64 norms (n,) of x_adv - x, once nothing is found to be out of bounds."""
    _refuse(~torch.isfinite(x_adv).all(1), name, "returned NaN or infinite entries")
    gaps = (x_adv[at].double() - x[at].double() for at in batches(len(x), ATTACK_BATCH_POINTS))
    sizes = torch.cat([ball.norms(gap) for gap in gaps])
    radii = ball.radii(x)
    excess = sizes - radii
    _refuse(excess > NORM_SLACK_SHARE * radii, name, f"left the {ball.norm} ball", excess)
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


@dataclass(frozen=True, eq=False)
class BestPerturbations:
    """The best perturbation of each of n points that a search has met so far, updated in place.

    Attacks within a radius keep the one of least margin, attacks for the smallest radius the
    smallest one that breaks the point. A row may be noted several times at once.
    """

    delta: Tensor  # (n, dim)
    size: Tensor  # (n,) float64: the norm of the smallest that broke the point, else infinite
    margin: Tensor  # (n,): the least margin, infinite where none was noted
    broken_below: Tensor  # (n,): a margin at or below it counts as broken

    @classmethod
    def begin(
        cls, delta: Tensor, broken_below: Tensor, margin: Tensor | None = None
    ) -> BestPerturbations:
        """The perturbations `delta`, with their margins or before anything was noted."""
        never = torch.full_like(broken_below, torch.inf)
        size = torch.full_like(broken_below, torch.inf, dtype=torch.float64)
        return cls(delta, size, never if margin is None else margin, broken_below)

    def standing(self, rows: Tensor) -> Tensor:
        """Which of the points at `rows` are not broken yet, bool; a NaN margin does not count."""
        return ~(self.margin[rows] <= self.broken_below[rows])

    def note_lower(
        self, rows: Tensor, margin: Tensor, delta: Tensor, *, ties: bool | Tensor = False
    ) -> None:
        """Keep perturbations of a lower margin than before, and with `ties` of an equal one."""
        self._keep(self.margin, rows, margin, delta, ties)

    def note_smaller(self, rows: Tensor, margin: Tensor, delta: Tensor, size: Tensor) -> None:
        """Keep perturbations that break a point and are smaller than any that did before."""
        size = torch.where(margin <= self.broken_below[rows], size, torch.inf)
        self._keep(self.size, rows, size, delta)

    def note_better(self, rows: Tensor, margin: Tensor, delta: Tensor, size: Tensor) -> None:
        """Keep the smallest that breaks a point, and where none does the one of least margin."""
        self.note_smaller(rows, margin, delta, size)
        none = torch.isinf(self.size[rows])
        self.note_lower(rows[none], margin[none], delta[none])

    def _keep(
        self,
        least: Tensor,
        rows: Tensor,
        value: Tensor,
        delta: Tensor,
        ties: bool | Tensor = False,
    ) -> None:
        before = least[rows]
        better = (value < before) | ((value == before) & ties)
        if not bool(better.any()):
            return
        least.scatter_reduce_(0, rows[better], value[better], "amin")
        won = better & (value == least[rows])
        self.delta[rows[won]] = delta[won]


@dataclass(frozen=True, eq=False)
class AttackResult(RowRecord):
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

    def merged(self, index: Tensor, part: AttackResult) -> AttackResult:
        """This result with the points at `index` replaced wherever `part` is worse for them."""
        both = worst([self.take(index), part])
        return replace(self.put(index, both), names=both.names)

    def retried(
        self, attack: Callable[[Tensor], AttackResult], where: Tensor | None = None
    ) -> AttackResult:
        """This result after one more attack on the points that still stand.

        `attack` is given their places (m,); with `where`, a mask (n,), those of no others.
        """
        left = ~self.success if where is None else ~self.success & where
        rows = torch.nonzero(left).squeeze(1)
        return self if len(rows) == 0 else self.merged(rows, attack(rows))


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
    return replace(replace(second, found=renamed).where(swap, first), names=names)
