"""Numbers, radii and boxes as JSON has them: without infinities, NaN and tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from extremal.data.dataset import Box


def finite_or_none(value: float) -> float | None:
    """The number, or None for NaN and infinity."""
    return value if math.isfinite(value) else None


def nulls(values: Tensor) -> list[float | None]:
    """Numbers (n,) with None for the infinite ones."""
    return [finite_or_none(value) for value in values.tolist()]


def infinities(values: Sequence[float | None]) -> Tensor:
    """What `nulls` was made of, (n,) in float64."""
    known = [math.inf if value is None else value for value in values]
    return torch.tensor(known, dtype=torch.float64)


def plain_box(box: Box | None) -> list[float | list[float]] | None:
    """A box as two numbers, or as two lists with one for each coordinate."""
    if box is None:
        return None
    return [end.tolist() if isinstance(end, Tensor) else float(end) for end in box]


def read_box(box: Any) -> Box | None:
    """What `plain_box` was made of, tensors in float64."""
    if box is None:
        return None
    low, high = box
    if isinstance(low, list):
        return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
    return float(low), float(high)
