"""The activation relu(s)^p and its slope, for any real p >= 1."""

from __future__ import annotations

import torch
from torch import Tensor


def relu_power(s: Tensor, p: float) -> Tensor:
    """relu(s)^p, differentiable, with small whole powers as products (a general pow is slower).

    Arguments:

    - `s`: a tensor of any shape; the result has the same.
    - `p`: the power, any real number of at least 1. It is not checked.
    """
    r = torch.relu(s)
    return _power(r, p)


def relu_power_with_slope(s: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """relu(s)^p and its derivative p relu(s)^(p-1), taken as 0 at a kink (p = 1, s = 0).

    Arguments:

    - `s`: a tensor of any shape; both results have the same.
    - `p`: the power, any real number of at least 1. It is not checked.
    """
    r = torch.relu(s)
    if p == 1.0:
        return r, torch.sign(r)
    lower = _power(r, p - 1.0)
    return lower * r, lower * p


def _power(r: Tensor, p: float) -> Tensor:
    if p == 1.0:
        return r
    if p == 2.0:
        return r * r
    if p == 3.0:
        return r * r * r
    if p == 4.0:
        square = r * r
        return square * square
    return r**p
