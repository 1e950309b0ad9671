"""A data set: points, labels, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from extremal import _check

Box = tuple[float, float] | tuple[Tensor, Tensor]
"""The least and the largest value of all coordinates, or of each, (dim,)."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points `x` (n, dim) with labels `y` (n,), checked when made.

    All points lie in the `box`, whose ends are numbers, or tensors that are kept in the points'
    dtype.
    """

    x: Tensor  # (n, dim), points
    y: Tensor  # (n,), labels -1 / +1, or 0..C-1, kept as int64
    group: Tensor | None = None  # (n,), the latent subclass in 0..K-1, where it is known
    box: Box | None = None  # (low, high) for all coordinates, or (dim,) tensors
    source: Any = None  # the object that made the data, for methods that can use it

    def __post_init__(self) -> None:
        x = _check.matrix("x", self.x)
        object.__setattr__(self, "y", _check.labels("y", self.y, count=len(x)))
        if self.group is not None:
            rule = f"be an integer tensor of shape ({len(x)},) with entries >= 0"
            group = _check.tensor("group", self.group, (len(x),), whole=True, rule=rule)
            least = int(group.min())
            _check.require(least >= 0, "group", rule, f"smallest entry {least}")
        if self.box is not None:
            object.__setattr__(self, "box", checked_box(self.box, x))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return self.x.shape[1]

    @property
    def signed(self) -> bool:
        """Whether the labels are -1 / +1 (a one-output network's kind)."""
        return bool((self.y.abs() == 1).all()) and bool((self.y < 0).any() | (self.y == 1).all())

    def take(self, index: Tensor | slice) -> Dataset:
        """The data set of the rows that `index`, row numbers, a mask or a slice, chooses."""
        group = None if self.group is None else self.group[index]
        return replace(self, x=self.x[index], y=self.y[index], group=group)

    def subset(self, count: int, *, generator: torch.Generator) -> Dataset:
        """`count` rows, drawn by `generator` without repetition, in their old order."""
        _check.integer("count", count, minimum=1)
        rule = f"be at most the number of points, {len(self)}"
        _check.require(count <= len(self), "count", rule, count)
        _check.generator("generator", generator)
        rows = torch.randperm(len(self), generator=generator)[:count].sort().values
        return self.take(rows.to(self.x.device))

    def evenly_spaced(self, count: int) -> Dataset:
        """At most `count` rows, evenly spaced: data often come in order of class."""
        _check.integer("count", count, minimum=1)
        rows = torch.linspace(0, len(self) - 1, min(count, len(self))).round().long()
        return self.take(rows.to(self.x.device))

    def relabel(self, groups: Tensor) -> Dataset:
        """The data with coarser labels: `groups` (C,) holds the new label of each class 0..C-1.

        `torch.arange(10) % 2` is parity. New labels are 0..G-1, or -1 and +1; False and True are
        taken as 0 and 1. The old labels become the points' `group`, since they are the subclasses
        of the new ones.
        """
        rule = "be an integer tensor (C,) with a label for each class of y"
        if isinstance(groups, Tensor) and groups.dtype == torch.bool:
            groups = groups.long()
        _check.tensor("groups", groups, ("C",), whole=True, rule=rule)
        largest, least = int(self.y.max()), int(self.y.min())
        _check.require(least >= 0, "y", "be classes 0..C-1 to be relabelled", f"label {least}")
        _check.require(largest < len(groups), "groups", rule, f"none for class {largest}")
        return replace(self, y=groups.to(self.y.device)[self.y], group=self.y)

    def fine(self) -> Dataset:
        """The data with its subclasses 0..K-1 as labels: the opposite of `relabel`."""
        return replace(
            self, y=_check.instance("group", self.group, Tensor, "be known for fine labels")
        )

    def to(self, target: torch.dtype | torch.device | str) -> Dataset:
        """The same data with points of the dtype `target`, or all of it on the device `target`."""
        if isinstance(target, torch.dtype):
            return replace(self, x=self.x.to(target))
        group = None if self.group is None else self.group.to(target)
        return replace(self, x=self.x.to(target), y=self.y.to(target), group=group)


def check_draw(count: object, generator: object, dtype: object) -> None:
    """Require what every sampler takes: a number of points, a generator and a dtype."""
    _check.integer("count", count, minimum=1)
    _check.generator("generator", generator)
    _check.floating("dtype", dtype)


def checked_box(box: object, x: Tensor) -> Box:
    """The box, once its ends are known to be finite, in order and around the points.

    Arguments:

    - `box`: (low, high), two numbers with low < high or two (dim,) tensors with low <= high.
    - `x`: (n, dim), points that must lie inside; ends that are tensors get their dtype and device.
    """
    rule = f"be a pair (low, high) of numbers or of ({x.shape[1]},) tensors"
    pair = box if isinstance(box, tuple) else ()
    _check.require(len(pair) == 2, "box", rule, box)
    low, high = pair
    if not any(isinstance(end, Tensor) for end in pair):
        low, high = _check.number("box", low), _check.number("box", high)
        _check.require(low < high, "box", "have low < high", box)
        least, most = x.min(), x.max()  # Two numbers, since a mask would be as large as the data.
        inside = bool((least >= low) & (most <= high))
        seen = f"x in [{float(least):g}, {float(most):g}]"
        _check.require(inside, "box", f"contain every coordinate of x, here {box}", seen)
        return low, high
    fits = all(isinstance(end, Tensor) and end.shape == x.shape[1:] for end in pair)
    _check.require(fits, "box", rule, " and ".join(map(_shape_or_type, pair)))
    _check.require(not any(end.is_complex() for end in pair), "box", "be real", "complex ends")
    low, high = low.to(x), high.to(x)
    _check.finite("box", torch.stack([low, high]))
    _check_each(low <= high, "have low <= high", low, high)
    _check_each((x >= low).all(0) & (x <= high).all(0), "contain every point of x", low, high)
    return low, high


def _check_each(good: Tensor, rule: str, low: Tensor, high: Tensor) -> None:
    """Require that all of good (dim,) hold; the first coordinate that does not is shown."""
    first = int((~good).byte().argmax())
    shown = f"({float(low[first]):g}, {float(high[first]):g}) at coordinate {first}"
    _check.require(bool(good.all()), "box", rule, shown)


def _shape_or_type(end: object) -> str:
    return f"shape {tuple(end.shape)}" if isinstance(end, Tensor) else type(end).__name__
