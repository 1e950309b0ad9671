"""The smallest perturbation that a linear constraint asks for, within a box.

argmin of ||d|| over <gradient, d> >= need and bounds, exact, a batch at a time. Where not even all
of the box reaches `need`, the d that fills every room; where need <= 0, zero. Shapes and `bounds`
as in `projection`: gradients (n, dim), `need` (n,).
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.projection import Bounds, room_along

_PASSES = 50  # it takes a handful; each one clips more coordinates
_WORTH = 0.7  # a share of rows that still move, below which the others are left out


def nearest(gradient: Tensor, need: Tensor, norm: str, bounds: Bounds | None) -> Tensor:
    """The smallest d in `norm` ("l1", "l2", "linf") with <gradient, d> >= need, (n, dim)."""
    wanted = need.clamp(min=0.0).unsqueeze(1)
    size = gradient.abs()
    largest = size.amax(1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    size, wanted = size / unit, wanted / unit
    room = None if bounds is None else room_along(gradient, bounds)
    if norm == "l1":
        return gradient.sign() * _fill(size, wanted, room)
    rate = size if norm == "l2" else torch.where(size > 0, 1.0, 0.0).to(size.dtype)
    t = _level(size, rate, wanted, room)
    moved = t * rate
    return gradient.sign() * (moved if room is None else torch.minimum(moved, room))


def _level(size: Tensor, rate: Tensor, wanted: Tensor, room: Tensor | None) -> Tensor:
    """The t (n, 1) at which h(t) = sum_i size_i min(t rate_i, room_i) reaches `wanted`.

    h is concave and piecewise linear: Newton's steps from the left never overshoot, and end once
    the set of clipped coordinates stands still. Beyond the largest h, a t that clips everything.
    """
    weight = size * rate
    whole = weight.sum(1, keepdim=True)
    t = wanted / torch.where(whole > 0, whole, 1.0)
    if room is None:
        return t
    value = size * room
    left = torch.arange(len(t), device=t.device)  # the rows that still move
    parts: tuple[Tensor, ...] = (t, rate, room, weight, value, wanted)
    for _ in range(_PASSES):
        now, *others = parts
        new = _newton(now, *others)
        moved = torch.nonzero((new > now).squeeze(1)).squeeze(1)
        if len(moved) == 0:
            break
        t = t.index_copy(0, left, new)
        parts = (new, *others)
        if len(moved) < _WORTH * len(left):
            left, parts = left[moved], tuple(part[moved] for part in parts)
    return t


def _newton(
    t: Tensor, rate: Tensor, room: Tensor, weight: Tensor, value: Tensor, wanted: Tensor
) -> Tensor:
    """One step of t (n, 1) toward h(t) = wanted, never back."""
    clipped = (t * rate >= room).to(t.dtype)
    rest = wanted - torch.linalg.vecdot(value, clipped).unsqueeze(1)
    slope = torch.linalg.vecdot(weight, 1.0 - clipped).unsqueeze(1)
    solved = torch.where(slope > 0, rest / torch.where(slope > 0, slope, 1.0), t)
    return torch.maximum(t, solved)


def _fill(size: Tensor, wanted: Tensor, room: Tensor | None) -> Tensor:
    """The least sum |d_i| with sum size_i |d_i| = wanted: the largest coordinates first."""
    if room is None:
        best = size.argmax(1, keepdim=True)
        top = size.gather(1, best)
        return torch.zeros_like(size).scatter_(1, best, wanted / torch.where(top > 0, top, 1.0))
    sizes, order = size.sort(dim=1, descending=True, stable=True)
    rooms = room.gather(1, order)
    value = sizes * rooms
    left = (wanted - (value.cumsum(1) - value)).clamp(min=0.0)
    take = torch.minimum(left / torch.where(sizes > 0, sizes, 1.0), rooms)
    take = torch.where(sizes > 0, take, 0.0)
    return torch.zeros_like(size).scatter_(1, order, take)
