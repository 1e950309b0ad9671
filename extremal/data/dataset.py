"""A data set: points, labels, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from extremal import _check

Box = tuple[float, float] | tuple[Tensor, Tensor]
"""The least and the largest value of all coordinates, or of each, (dim,)."""

# Names of classes are refused: which of them is 0 would be a guess.
_LABEL_RULE = "be whole numbers, -1 / +1 or 0..C-1: a tensor, an array, a series or a list"


@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """Points `x` (n, dim) with labels `y` (n,), checked when made.

    Tensors are kept as they are. NumPy arrays, pandas frames and series, lists and whatever else
    NumPy reads are copied once: points to float32, which networks have unless said, labels and
    groups to int64. Points that are to stay in float64 are given as `torch.from_numpy(x)`. Anything
    but finite numbers is a ValueError: missing values, strings, frames with a column of them.

    All points lie in the `box`, whose ends are numbers, or tensors that are kept in the points'
    dtype.

    Arguments:

    - `x`: the points (n, dim), floating-point if they are a tensor.
    - `y`: the labels (n,), -1 / +1 or 0..C-1, whole numbers of any type.
    - `group`: the latent subclass (n,) of each point in 0..K-1; None where it is not known.
    - `box`: (low, high) for all coordinates, two numbers or two (dim,) arrays; None for no box.
    - `source`: the object that made the data, for methods that can use it.
    """

    x: Tensor  # (n, dim), points
    y: Tensor  # (n,), labels -1 / +1, or 0..C-1, kept as int64
    group: Tensor | None = None  # (n,), the latent subclass in 0..K-1, where it is known
    box: Box | None = None  # (low, high) for all coordinates, or (dim,) tensors
    source: Any = None  # the object that made the data, for methods that can use it

    def __init__(
        self,
        x: Tensor | ArrayLike,
        y: Tensor | ArrayLike,
        group: Tensor | ArrayLike | None = None,
        box: Box | tuple[ArrayLike, ArrayLike] | None = None,
        source: Any = None,
    ) -> None:
        points = _check.matrix("x", _as_tensor("x", x, np.float32))
        labels = _check.labels("y", _as_tensor("y", y, rule=_LABEL_RULE), count=len(points))
        found: dict[str, Any] = {"x": points, "y": labels, "group": None, "box": None}
        if group is not None:
            rule = f"be integers of shape ({len(points)},), each >= 0"
            given = _as_tensor("group", group)
            found["group"] = _check.tensor("group", given, (len(points),), whole=True, rule=rule)
            least = int(found["group"].min())
            _check.require(least >= 0, "group", rule, f"smallest entry {least}")
        if box is not None:
            found["box"] = checked_box(box, points)
        for name, value in {**found, "source": source}.items():
            object.__setattr__(self, name, value)

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


def _as_tensor(
    name: str,
    value: object,
    dtype: type[np.number[Any]] | None = None,
    rule: str = "be finite numbers: a tensor, an array, a frame or lists",
) -> Tensor:
    """A tensor as it is; what NumPy reads as numbers as a new one: `dtype`, or float64 or int64."""
    if isinstance(value, Tensor):
        return value
    _check.require(not np.ma.is_masked(value), name, rule, "a masked array")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:  # such as rows of several lengths
        why = " ".join(str(error).split())
        raise ValueError(f"{name} must {rule}, got {type(value).__name__} ({why})") from None
    _check.require(array.dtype.kind in "fiub", name, rule, _odd_entry(array))
    with np.errstate(over="ignore"):  # Numbers that float32 lacks are infinite then, and refused.
        return torch.from_numpy(
            array.astype(dtype or (np.float64 if array.dtype.kind == "f" else np.int64))
        )


def _odd_entry(array: np.ndarray[Any, Any]) -> str:
    """The kind of an array that does not hold numbers alone, and the first entry that is none."""
    plain = (Number, np.bool_)
    odd = next((repr(entry) for entry in array.flat if not isinstance(entry, plain)), "")
    mixed = array.dtype.kind == "O" and not odd
    note = " (try frame.astype(float))" if mixed else f" with {odd}" if odd else ""
    return " ".join(f"an array of dtype {array.dtype}{note}".split())


def checked_box(box: object, x: Tensor) -> Box:
    """The box, once its ends are known to be finite, in order and around the points.

    Arguments:

    - `box`: (low, high), two numbers with low < high or two (dim,) tensors or arrays with
      low <= high.
    - `x`: (n, dim), points that must lie inside; ends (dim,) become tensors of their dtype, on
      their device.
    """
    rule = f"be a pair (low, high) of numbers or of ({x.shape[1]},) tensors"
    pair = box if isinstance(box, tuple) else ()
    _check.require(len(pair) == 2, "box", rule, box)
    low, high = pair = tuple(map(_box_end, pair))
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


def _box_end(end: object) -> object:
    """An end of a box, as a tensor where it is an array or a list."""
    plain = end is None or isinstance(end, Tensor | Number | str)
    return end if plain else _as_tensor("box", end)


def _check_each(good: Tensor, rule: str, low: Tensor, high: Tensor) -> None:
    """Require that all of good (dim,) hold; the first coordinate that does not is shown."""
    first = int((~good).byte().argmax())
    shown = f"({float(low[first]):g}, {float(high[first]):g}) at coordinate {first}"
    _check.require(bool(good.all()), "box", rule, shown)


def _shape_or_type(end: object) -> str:
    return f"shape {tuple(end.shape)}" if isinstance(end, Tensor) else type(end).__name__
