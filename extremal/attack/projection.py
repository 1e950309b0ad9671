"""Exact Euclidean projections onto a ball, or a ball cut by a box, a batch at a time.

Perturbations `delta` are (n, dim), radii (n, 1) in float64, and `bounds` the pair (low, high) of
(n, dim) tensors with low <= 0 <= high that the box leaves to the perturbation, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Bounds = tuple[Tensor, Tensor]

ORDERS = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}


def norms(delta: Tensor, norm: str) -> Tensor:
    """The norm of each row, (n,), summed in float64 whatever the dtype of `delta`."""
    size: Tensor = torch.linalg.vector_norm(delta, ORDERS[norm], dim=1, dtype=torch.float64)
    return size


def rounded_down(radius: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of a dtype that are not above `radius`."""
    near = radius.to(dtype)
    return torch.where(near.double() > radius, torch.nextafter(near, torch.zeros_like(near)), near)


def shrunk(delta: Tensor, norm: str, radius: Tensor) -> Tensor:
    """Scale the rows whose float64 norm exceeds the radius to just under it.

    The factor is radius / norm * (1 - 4 eps), eps of delta's dtype: the rounding of the factor and
    of the products is less than that, so that the norm of the result never exceeds the radius.
    """
    size = norms(delta, norm).unsqueeze(1)
    factor = radius / torch.where(size > 0, size, 1.0) * (1.0 - 4.0 * torch.finfo(delta.dtype).eps)
    return torch.where(size > radius, delta * factor.to(delta.dtype), delta)


def room_along(direction: Tensor, bounds: Bounds) -> Tensor:
    """How far each coordinate may move in the direction's sense, (n, dim), >= 0."""
    low, high = bounds
    return torch.where(direction > 0, high, -low)


def project_linf(delta: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """argmin of ||d - delta||_2 over max |d_i| <= radius and the bounds: two clamps."""
    limit = rounded_down(radius, delta.dtype)
    inside = torch.clamp(delta, -limit, limit)
    return inside if bounds is None else torch.clamp(inside, *bounds)


def project_l2(delta: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """argmin of ||d - delta||_2 over ||d||_2 <= radius and the bounds.

    d = clip(t delta) with t = 1/(1 + multiplier) in [0, 1], the largest t with ||d|| <= radius.
    """
    if bounds is None:
        return shrunk(delta, "l2", radius)
    t = clipped_scale(delta.abs(), room_along(delta, bounds), radius).clamp(max=1.0)
    return shrunk(torch.clamp(t.to(delta.dtype) * delta, *bounds), "l2", radius)


def project_l1(delta: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """argmin of ||d - delta||_2 over sum |d_i| <= radius and the bounds.

    |d_i| = clip(|delta_i| - tau, 0, room_i) with the sign of delta_i, tau >= 0 the multiplier:
    zero where clipping alone is enough.
    """
    room = None if bounds is None else room_along(delta, bounds)
    size = delta.abs().double()
    tau = soft_threshold(size, None if room is None else room.double(), radius)
    kept = (size - tau).clamp(min=0.0).to(delta.dtype)
    if room is not None:
        kept = torch.minimum(kept, room)
    return shrunk(torch.copysign(kept, delta), "l1", radius)


def clipped_scale(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """The t (n, 1) at which h(t) = sum_i min(t size_i, room_i)^2 reaches radius^2.

    Where h never does, a t at which every coordinate is at its room. With the clipped set C(t) held
    fixed, h is B + t^2 A, and its solution t' = sqrt((radius^2 - B) / A) never overshoots: started
    at radius / ||size||, t rises, C grows, and once C stands still t is exact. It takes a handful
    of passes where sorting the breakpoints room_i / size_i costs as much as a network.
    """
    largest = size.amax(1, keepdim=True).double()
    unit = torch.where(largest > 0, largest, 1.0)
    a, b = size.double() / unit, room.double().clamp(max=2.0 * radius)  # more never binds
    full = torch.where(a > 0, b / torch.where(a > 0, a, 1.0), torch.inf)  # t that clips it
    length = torch.linalg.vector_norm(a, dim=1)  # >= 1, or 0 for a zero row
    t = torch.where(length > 0, radius.squeeze(1) / torch.where(length > 0, length, 1.0), 0.0)
    out, rows, count = t.clone(), torch.arange(len(t), device=t.device), torch.full_like(t, -1)
    a2, b2, target = a.square(), b.square(), radius.square().squeeze(1)
    while True:
        clipped = full <= t.unsqueeze(1)
        grown = clipped.sum(1)
        moving = grown != count
        out[rows] = t
        if not bool(moving.any()):
            return out.unsqueeze(1) / unit
        if 2 * int(moving.sum()) < len(rows):
            full, a2, b2, target = (part[moving] for part in (full, a2, b2, target))
            rows, t, clipped, grown = (part[moving] for part in (rows, t, clipped, grown))
        count = grown
        held = clipped.double()
        spent, rest = torch.linalg.vecdot(held, b2), torch.linalg.vecdot(1.0 - held, a2)
        solved = ((target - spent).clamp(min=0.0) / torch.where(rest > 0, rest, 1.0)).sqrt()
        t = torch.where(rest > 0, torch.maximum(t, solved), t)


def soft_threshold(size: Tensor, room: Tensor | None, radius: Tensor) -> Tensor:
    """The smallest tau >= 0 (n, 1) with s(tau) = sum_i clip(size_i - tau, 0, room_i) <= radius.

    s = sum relu(size_i - tau) - sum relu(size_i - room_i - tau) falls, and is linear between its
    breakpoints size_i and size_i - room_i. The last breakpoint at which it is still above the
    radius is searched among each kind of them, sorted, and the segment that begins there solved.
    """
    kinds = [_Tails.of(size)] if room is None else [_Tails.of(size), _Tails.of(size - room)]

    def line(tau: Tensor) -> tuple[Tensor, Tensor]:
        """Right of tau, s is mass - slope * its argument."""
        found = [kind.above(tau) for kind in kinds]
        mass, slope = found[0]
        return (mass, slope) if room is None else (mass - found[1][0], slope - found[1][1])

    def reached(tau: Tensor) -> Tensor:
        mass, slope = line(tau)
        return mass - slope * tau

    begin = torch.zeros_like(radius)
    enough = reached(begin) <= radius
    for kind in kinds:
        begin = torch.maximum(begin, kind.last(lambda tau: reached(tau) > radius))
    mass, slope = line(begin)
    tau = torch.maximum(begin, (mass - radius) / slope.clamp(min=1.0))
    return torch.where(enough, 0.0, tau)


@dataclass(frozen=True, eq=False)
class _Tails:
    """Rows of numbers, each sorted upward, and the sums of what lies behind each place."""

    values: Tensor  # (n, m)
    sums: Tensor  # (n, m + 1), the last one zero

    @classmethod
    def of(cls, numbers: Tensor) -> _Tails:
        values = sorted_rows(numbers)
        sums = torch.nn.functional.pad(values, (0, 1)).flip(1).cumsum(1).flip(1)
        return cls(values, sums)

    def above(self, tau: Tensor) -> tuple[Tensor, Tensor]:
        """The sum and the number of each row's numbers > tau (n, 1)."""
        at = torch.searchsorted(self.values, tau.contiguous(), right=True)
        return self.sums.gather(1, at), (self.values.shape[1] - at).to(tau.dtype)

    def last(self, holds: Callable[[Tensor], Tensor]) -> Tensor:
        """Each row's largest number (n, 1) at which something holds that stops holding once.

        Minus infinity where it holds nowhere.
        """
        low = torch.full_like(self.sums[:, :1], -1, dtype=torch.int64)
        high = torch.full_like(low, self.values.shape[1])
        while bool((high - low > 1).any()):
            middle = (low + high) // 2
            here = holds(self.values.gather(1, middle.clamp(min=0)))
            low, high = torch.where(here, middle, low), torch.where(here, high, middle)
        found = self.values.gather(1, low.clamp(min=0))
        return torch.where(low >= 0, found, -torch.inf)


def falling_order(numbers: Tensor) -> Tensor:
    """The places (n, m) of each row's numbers >= 0, largest first, the first of equals first.

    Numbers in float32 are ordered as their bits are: with the place behind them they make one
    integer to sort, which NumPy does in a third of the time that PyTorch takes for an order.
    """
    if numbers.device.type != "cpu" or numbers.dtype != torch.float32:
        return numbers.argsort(dim=1, descending=True, stable=True)
    bits = np.abs(numbers.numpy(force=True)).view(np.int32).astype(np.int64)
    keys = np.sort((-bits << 32) + np.arange(numbers.shape[1]), axis=1)
    return torch.from_numpy(keys & 0xFFFFFFFF)


def sorted_rows(numbers: Tensor) -> Tensor:
    """The numbers (n, m) of each row, sorted upward."""
    if numbers.device.type != "cpu":
        return numbers.sort(1).values
    # NumPy sorts without the order, which PyTorch always makes too: a tenth of the time.
    return torch.from_numpy(np.sort(numbers.numpy(force=True), axis=1))
