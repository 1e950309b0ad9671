"""Linear problems over a ball and a box: the steepest direction, the maximum, the smallest move.

Shapes and `bounds` are those of `projection`: gradients (n, dim), radii (n, 1) in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.projection import (
    Bounds,
    falling_order,
    l2_box_scale,
    room_along,
    rounded_down,
    scaled_inside,
)

# At most so many steps are made; it takes a handful, since each one clips more coordinates.
_MOST_NEWTON_STEPS = 50
# Rows that have arrived are left out once fewer than this share of them still moves.
_COMPACTED_BELOW_SHARE = 0.7
# So many of the largest coordinates are ordered at first.
_FIRST_ORDERED_COORDINATES = 64
# A radius is clearly spent beyond this many radii: no rounding of sums then leaves anything to
# later coordinates.
_SPENT_RADII = 1.0 + 1e-9


def smallest_move(gradient: Tensor, need: Tensor, norm: str, bounds: Bounds | None) -> Tensor:
    """argmin of ||d|| over <gradient, d> >= need (n,) and the bounds, (n, dim), exact.

    Where not even all of the box reaches `need`, the d that fills every room; zero where
    need <= 0. `norm` is "l1", "l2" or "linf".
    """
    wanted = need.clamp(min=0.0).unsqueeze(1)
    size = gradient.abs()
    largest = size.amax(1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    size, wanted = size / unit, wanted / unit
    room = None if bounds is None else room_along(gradient, bounds)
    if norm == "l1":
        return gradient.sign() * _greedy_l1(size, wanted, room)
    rate = size if norm == "l2" else torch.where(size > 0, 1.0, 0.0).to(size.dtype)
    t = _reaching_multiple(size, rate, wanted, room)
    moved = t * rate
    return gradient.sign() * (moved if room is None else torch.minimum(moved, room))


def _reaching_multiple(size: Tensor, rate: Tensor, wanted: Tensor, room: Tensor | None) -> Tensor:
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
    for _ in range(_MOST_NEWTON_STEPS):
        now, *others = parts
        new = _newton_step(now, *others)
        moved = torch.nonzero((new > now).squeeze(1)).squeeze(1)
        if len(moved) == 0:
            break
        t = t.index_copy(0, left, new)
        parts = (new, *others)
        if len(moved) < _COMPACTED_BELOW_SHARE * len(left):
            left, parts = left[moved], tuple(part[moved] for part in parts)
    return t


def _newton_step(
    t: Tensor, rate: Tensor, room: Tensor, weight: Tensor, value: Tensor, wanted: Tensor
) -> Tensor:
    """One step of t (n, 1) toward h(t) = wanted, never back."""
    clipped = (t * rate >= room).to(t.dtype)
    rest = wanted - torch.linalg.vecdot(value, clipped).unsqueeze(1)
    slope = torch.linalg.vecdot(weight, 1.0 - clipped).unsqueeze(1)
    solved = torch.where(slope > 0, rest / torch.where(slope > 0, slope, 1.0), t)
    return torch.maximum(t, solved)


def _greedy_l1(size: Tensor, wanted: Tensor, room: Tensor | None) -> Tensor:
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


def steepest(gradient: Tensor, norm: str) -> Tensor:
    """argmax of <gradient, d> over ||d|| <= 1, a row at a time; a zero gradient gives zero.

    l2: g/||g||. linf: sign(g). l1: the largest |g_i| takes it all, and coordinates that tie for it
    share equally, so that the direction does not depend on the order of the coordinates.
    """
    if norm == "linf":
        return gradient.sign()
    largest = gradient.abs().amax(1, keepdim=True)
    unit = gradient / torch.where(largest > 0, largest, 1.0)
    if norm == "l2":
        length = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        return unit / torch.where(length > 0, length, 1.0)
    top = (gradient.abs() == largest) & (largest > 0)
    return torch.where(top, gradient.sign(), 0.0) / top.sum(1, keepdim=True).clamp(min=1)


def maximum_linf(gradient: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """sign(g_i) min(radius, room_i)."""
    limit = rounded_down(radius, gradient.dtype)
    if bounds is None:
        return gradient.sign() * limit
    return gradient.sign() * torch.minimum(room_along(gradient, bounds), limit)


def maximum_l2(gradient: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """clip(t g) with the t at which its norm is the radius; every room filled if none is."""
    unit = steepest(gradient, "l2")
    if bounds is None:
        return scaled_inside(unit * radius.to(unit.dtype), "l2", radius)
    t = l2_box_scale(unit.abs(), room_along(unit, bounds), radius)
    return scaled_inside(torch.clamp(t.to(unit.dtype) * unit, *bounds), "l2", radius)


def maximum_l1(gradient: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """Coordinates filled to their rooms in order of |g_i|, until the radius is spent.

    Of coordinates that tie the first is filled first; those with g_i = 0 stay at zero.
    """
    room = radius.expand_as(gradient)
    if bounds is not None:
        room = torch.minimum(room, room_along(gradient, bounds).double())
    few = min(_FIRST_ORDERED_COORDINATES, gradient.shape[1])
    filled, spent = _filled_in_order(gradient, room, radius, few)
    rows = torch.nonzero(~spent).squeeze(1)
    if len(rows) > 0:
        every = (gradient[rows], room[rows], radius[rows], gradient.shape[1])
        filled[rows], _ = _filled_in_order(*every)
    return scaled_inside(gradient.sign() * filled, "l1", radius)


def _filled_in_order(
    gradient: Tensor, room: Tensor, radius: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """What the `count` first coordinates take, (n, dim), and whether that clearly spends it, (n,).

    Most radii are spent on a few coordinates, and ordering all of them costs much.
    """
    order = falling_order(gradient.abs(), count)
    places = room.gather(1, order)
    total = places.cumsum(1)
    take = torch.minimum((radius - (total - places)).clamp(min=0.0), places).to(gradient.dtype)
    filled = torch.zeros_like(gradient).scatter_(1, order, take)
    return filled, total[:, -1] > _SPENT_RADII * radius[:, 0]
