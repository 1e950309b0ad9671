"""Steepest directions of a norm, and linear functions maximised over a ball and a box.

Shapes and `bounds` as in `projection`: gradients (n, dim), radii (n, 1) in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.attack.projection import (
    Bounds,
    clipped_scale,
    falling_order,
    room_along,
    rounded_down,
    shrunk,
)

_FEW = 64  # coordinates that are ordered at first
_SPENT = 1.0 + 1e-9  # radii: beyond it no rounding of sums leaves anything to later coordinates


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
        return shrunk(unit * radius.to(unit.dtype), "l2", radius)
    t = clipped_scale(unit.abs(), room_along(unit, bounds), radius)
    return shrunk(torch.clamp(t.to(unit.dtype) * unit, *bounds), "l2", radius)


def maximum_l1(gradient: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """Coordinates filled to their rooms in order of |g_i|, until the radius is spent.

    Of coordinates that tie the first is filled first; those with g_i = 0 stay at zero.
    """
    room = radius.expand_as(gradient)
    if bounds is not None:
        room = torch.minimum(room, room_along(gradient, bounds).double())
    filled, spent = _filled(gradient, room, radius, min(_FEW, gradient.shape[1]))
    rows = torch.nonzero(~spent).squeeze(1)
    if len(rows) > 0:
        filled[rows], _ = _filled(gradient[rows], room[rows], radius[rows], gradient.shape[1])
    return shrunk(gradient.sign() * filled, "l1", radius)


def _filled(gradient: Tensor, room: Tensor, radius: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """What the `count` first coordinates take, (n, dim), and whether that clearly spends it, (n,).

    Most radii are spent on a few coordinates, and ordering all of them costs much.
    """
    order = falling_order(gradient.abs(), count)
    places = room.gather(1, order)
    total = places.cumsum(1)
    take = torch.minimum((radius - (total - places)).clamp(min=0.0), places).to(gradient.dtype)
    filled = torch.zeros_like(gradient).scatter_(1, order, take)
    return filled, total[:, -1] > _SPENT * radius[:, 0]
