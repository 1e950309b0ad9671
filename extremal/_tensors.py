"""Small operations on tensors that several parts share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor

# The order of each norm, as torch.linalg.vector_norm takes it.
NORM_ORDERS = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}

# A bisection ends with an interval that is a sixteen-thousandth of the first one.
_BISECTION_HALVINGS = 14
# Where the first radius holds, the search for one that does not is given up after these doublings.
_MOST_DOUBLINGS = 20
# What a bisection tries first where it is told to begin at zero.
_FIRST_RADIUS = 1e-3

# `field(metadata=SHARED_BY_ROWS)`: all rows of a `RowRecord` have it in common, as a Gram matrix.
SHARED_BY_ROWS = {"shared": True}


def norm_ratio(own: str, asked: str, dim: int) -> float:
    """The largest ||z||_own / ||z||_asked: radii in `own` over it are radii in `asked`."""
    return float(dim) ** max(0.0, 1.0 / NORM_ORDERS[own] - 1.0 / NORM_ORDERS[asked])


def rounding_share(count: float, dtype: torch.dtype) -> float:
    """By what share `count` roundings may change a result: count u / (1 - count u), u = eps / 2.

    The usual bound for sums of so many terms in whatever order (Higham 2002, Lemma 3.1); infinite
    where it says nothing, from count u = 1/2 on.
    """
    part = 0.5 * torch.finfo(dtype).eps * count
    return part / (1.0 - part) if part < 0.5 else math.inf


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (..., dim) divided by their l2 norms; zero rows stay zero."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / torch.where(length > 0, length, 1.0)


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows that together cover `count` of them."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def bisect_largest(holds: Callable[[Tensor], Tensor], first: Tensor, *, beyond: bool) -> Tensor:
    """The largest radius (n,) at which `holds` (radii to bools) was true, by bisection; 0 if none.

    Between 0 and `first` (n,), and with `beyond` as far as doubling it goes on holding.
    """
    high = torch.where(first > 0, first, _FIRST_RADIUS)
    low = torch.zeros_like(high)
    if beyond:
        for _ in range(_MOST_DOUBLINGS):
            good = holds(high)
            if not bool(good.any()):
                break
            low, high = torch.where(good, high, low), torch.where(good, 2.0 * high, high)
    for _ in range(_BISECTION_HALVINGS):
        middle = 0.5 * (low + high)
        good = holds(middle)
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return low


class RowRecord:
    """Base of dataclasses that hold something of each of n points, pairs or neurons.

    Fields that are tensors with a row for each, or that have a `take` of their own (another
    `RowRecord`, a `Ball`), follow a choice of rows. All others, and those marked with
    `SHARED_BY_ROWS`, whatever they are, stay.

    Two records are joined field by field. A TypeError says which field cannot be: one that has rows
    in one record and is None in the other, or one that has a `take` and no more, as a `Ball`.
    """

    def take(self, index: Tensor | slice) -> Self:
        """The chosen rows: indices, a slice or a mask (n,)."""
        return self._replaced("take", index, lambda part: part[index])

    def where(self, mask: Tensor, other: Self) -> Self:
        """These rows where the mask (n,) holds, else those of `other`."""
        return self._replaced(
            "where",
            mask,
            lambda part, another: torch.where(_like(mask, part), part, another),
            other,
        )

    def put(self, index: Tensor, other: Self) -> Self:
        """These rows, but for those at `index` (m,), which are those of `other`."""
        return self._replaced(
            "put", index, lambda part, another: part.index_copy(0, index, another), other
        )

    def _replaced(
        self,
        method: str,
        rows: Tensor | slice,
        of_tensors: Callable[..., Tensor],
        *others: Self,
    ) -> Self:
        """Each field that has rows replaced by a function of it and of those of the others.

        Of tensors by `of_tensors`, of records by their own `method` at the same `rows`.
        """
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if field.metadata.get("shared"):
                continue
            parts = [getattr(each, field.name) for each in (self, *others)]
            if all(isinstance(part, Tensor) for part in parts):
                changed[field.name] = of_tensors(*parts)
                continue
            kinds = {_kind_of_rows(part) for part in parts}
            if kinds == {None}:
                continue
            name, types = f"{type(self).__name__}.{field.name}", [type(p).__name__ for p in parts]
            if len(kinds) > 1:
                rule = "have rows of one kind in both records, or in neither"
                raise TypeError(f"{name} must {rule}, got {' and '.join(types)}")
            if hasattr(parts[0], method):
                changed[field.name] = getattr(parts[0], method)(rows, *parts[1:])
            else:
                raise TypeError(f"{name} must have a method {method!r}, got {types[0]}")
        return dataclasses.replace(self, **changed)  # type: ignore[type-var]


def _kind_of_rows(part: object) -> str | None:
    """How a field follows a choice of rows; None if it does not."""
    if isinstance(part, Tensor):
        return "tensor"
    return "record" if hasattr(part, "take") else None


def _like(mask: Tensor, part: Tensor) -> Tensor:
    """A mask (n,) with as many dimensions as `part` has."""
    return mask.reshape(-1, *[1] * (part.ndim - 1))
