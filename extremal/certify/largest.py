"""The largest radius at which something still holds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HALVINGS = 14  # a ten-thousandth of the interval
DOUBLINGS = 20
FIRST = 1e-3  # tried where `first` is zero


def largest(holds: Callable[[Tensor], Tensor], first: Tensor, *, beyond: bool) -> Tensor:
    """The largest radius (n,) at which `holds` (radii to bools) was true, by bisection; 0 if none.

    Between 0 and `first` (n,), and with `beyond` as far as doubling it goes on holding.
    """
    high = torch.where(first > 0, first, FIRST)
    low = torch.zeros_like(high)
    if beyond:
        for _ in range(DOUBLINGS):
            good = holds(high)
            if not bool(good.any()):
                break
            low, high = torch.where(good, high, low), torch.where(good, 2.0 * high, high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        good = holds(middle)
        low, high = torch.where(good, middle, low), torch.where(good, high, middle)
    return low
