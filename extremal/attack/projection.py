"""Exact Euclidean projections onto a ball, or a ball cut by a box, a batch at a time.

Perturbations `delta` are (n, dim), radii (n, 1) in float64, and `bounds` the pair (low, high) of
(n, dim) tensors with low <= 0 <= high that the box leaves to the perturbation, or None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from extremal._tensors import NORM_ORDERS

Bounds = tuple[Tensor, Tensor]

# So many rows are worked on at a time, so that what is made of them stays in the cache.
ROWS_IN_CACHE = 256
# The search for a threshold takes Newton's steps alone at first; from here on every second step
# is a bisection, which cannot go round in circles.
_PURE_NEWTON_STEPS = 12
# The search for a threshold ends after so many steps at the latest.
_MOST_THRESHOLD_STEPS = 200


def norms(delta: Tensor, norm: str) -> Tensor:
    """The norm of each row, (n,), summed in float64 whatever the dtype of `delta`."""
    size: Tensor = torch.linalg.vector_norm(delta, NORM_ORDERS[norm], dim=1, dtype=torch.float64)
    return size


def rounded_down(radius: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest numbers of a dtype that are not above `radius`."""
    near = radius.to(dtype)
    return torch.where(near.double() > radius, torch.nextafter(near, torch.zeros_like(near)), near)


def scaled_inside(delta: Tensor, norm: str, radius: Tensor) -> Tensor:
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
        return scaled_inside(delta, "l2", radius)
    t = l2_box_scale(delta.abs(), room_along(delta, bounds), radius).clamp(max=1.0)
    return scaled_inside(torch.clamp(t.to(delta.dtype) * delta, *bounds), "l2", radius)


def project_l1(delta: Tensor, radius: Tensor, bounds: Bounds | None) -> Tensor:
    """argmin of ||d - delta||_2 over sum |d_i| <= radius and the bounds.

    |d_i| = clip(|delta_i| - tau, 0, room_i) with the sign of delta_i, tau >= 0 the multiplier:
    zero where clipping alone is enough.
    """
    room = None if bounds is None else room_along(delta, bounds)
    size = delta.abs()
    tau = soft_threshold(size, room, radius)
    kept = (size - tau.to(size.dtype)).clamp_(min=0.0)
    if room is not None:
        kept = torch.minimum(kept, room)
    return scaled_inside(torch.copysign(kept, delta), "l1", radius)


def l2_box_scale(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """The t (n, 1) at which h(t) = sum_i min(t size_i, room_i)^2 reaches radius^2.

    Where h never does, a t at which every coordinate is at its room. With the clipped set C(t) held
    fixed, h is B + t^2 A, and its solution t' = sqrt((radius^2 - B) / A) never overshoots: started
    at radius / ||size||, t rises, C grows, and once C stands still t is exact. It takes a handful
    of passes where sorting the breakpoints room_i / size_i costs as much as a network.
    """
    largest = size.amax(1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    whole = torch.where(radius > 0, radius, 1.0).to(size.dtype)
    a, b = size / unit, (room / whole).clamp_(max=2.0)  # in units of the radius; more never binds
    length = torch.linalg.vector_norm(a, dim=1)  # >= 1, or 0 for a zero row
    t = torch.where(length > 0, 1.0 / torch.where(length > 0, length, 1.0), 0.0)
    out, rows, count = t.clone(), torch.arange(len(t), device=t.device), torch.full_like(t, -1)
    a2, b2 = a.square(), b.square()
    while True:
        clipped = t.unsqueeze(1) * a >= b
        grown = clipped.sum(1)
        moving = grown != count
        out[rows] = t
        if not bool(moving.any()):
            return out.unsqueeze(1) * (radius / unit)
        if 2 * int(moving.sum()) < len(rows):
            a, b, a2, b2 = (part[moving] for part in (a, b, a2, b2))
            rows, t, clipped, grown = (part[moving] for part in (rows, t, clipped, grown))
        count = grown
        held = clipped.to(a.dtype)
        spent, rest = torch.linalg.vecdot(held, b2), torch.linalg.vecdot(1.0 - held, a2)
        solved = ((1.0 - spent).clamp(min=0.0) / torch.where(rest > 0, rest, 1.0)).sqrt()
        t = torch.where(rest > 0, torch.maximum(t, solved), t)


def soft_threshold(size: Tensor, room: Tensor | None, radius: Tensor) -> Tensor:
    """The smallest tau >= 0 (n, 1) with s(tau) = sum_i clip(size_i - tau, 0, room_i) <= radius.

    s = sum relu(size_i - tau) - sum relu(size_i - room_i - tau) falls, and is linear between its
    breakpoints size_i and size_i - room_i. Newton's steps, or halves of what is left where those
    lead out of it, go on until one of them passes no breakpoint: that one is exact.
    """
    tails = [_Tails.of(size)] if room is None else [_Tails.of(size), _Tails.of(size - room)]
    low, high = torch.zeros_like(radius), size.amax(1, keepdim=True).double()
    tau = low
    mass, slope, place = _linear_piece(tails, tau)
    done = mass <= radius
    for number in range(_MOST_THRESHOLD_STEPS):
        if bool(done.all()):
            break
        above = mass - slope * tau > radius
        low, high = torch.where(above, tau, low), torch.where(above, high, tau)
        solved = (mass - radius) / slope.clamp(min=1.0)
        newton = (slope > 0) & (solved >= low) & (solved <= high)
        if number >= _PURE_NEWTON_STEPS and number % 2 == 1:
            newton = torch.zeros_like(newton)
        new = torch.where(newton, solved, 0.5 * (low + high))
        tau = torch.where(done, tau, new)
        mass, slope, now = _linear_piece(tails, tau)
        done, place = done | (newton & (now == place)), now
    return torch.where(done, tau, high)


@dataclass(frozen=True, eq=False)
class _Tails:
    """Rows of numbers, those below zero taken as zero, sorted upward; and the sums before each."""

    values: Tensor  # (n, m) float64
    sums: Tensor  # (n, m + 1), the first one zero

    @classmethod
    def of(cls, numbers: Tensor) -> _Tails:
        values = sorted_rows(numbers.clamp(min=0.0)).double()
        sums = values.new_zeros(len(values), values.shape[1] + 1)
        torch.cumsum(values, 1, out=sums[:, 1:])
        return cls(values, sums)

    def above(self, tau: Tensor) -> tuple[Tensor, Tensor]:
        """The sum and the number of each row's numbers > tau (n, 1), where tau >= 0."""
        at = torch.searchsorted(self.values, tau, right=True)
        return self.sums[:, -1:] - self.sums.gather(1, at), self.values.shape[1] - at


def _linear_piece(tails: list[_Tails], tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Right of tau, s is mass - slope * its argument; and a number for the piece that this is."""
    mass, slope = tails[0].above(tau)
    if len(tails) == 1:
        return mass, slope.to(tau.dtype), slope
    less, fewer = tails[1].above(tau)
    piece = slope * tails[1].sums.shape[1] + fewer
    return mass - less, (slope - fewer).to(tau.dtype), piece


def falling_order(numbers: Tensor, count: int) -> Tensor:
    """The places (n, count) of each row's largest numbers >= 0 in order, the first of equals first.

    Numbers in float32 are ordered as their bits are: with the place behind them they make one
    integer to sort, which NumPy does in a third of the time that PyTorch takes for an order.
    """
    if numbers.device.type != "cpu" or numbers.dtype != torch.float32:
        return numbers.argsort(dim=1, descending=True, stable=True)[:, :count]
    bits = np.abs(numbers.numpy(force=True)).view(np.int32).astype(np.int64)
    keys = (-bits << 32) + np.arange(numbers.shape[1])
    if count < numbers.shape[1]:
        keys = np.partition(keys, count - 1, axis=1)[:, :count]
    return torch.from_numpy(np.sort(keys, axis=1) & 0xFFFFFFFF)


def sorted_rows(numbers: Tensor) -> Tensor:
    """The numbers (n, m) of each row, sorted upward."""
    if numbers.device.type != "cpu":
        return numbers.sort(1).values
    # NumPy sorts without the order, which PyTorch always makes too: a tenth of the time.
    return torch.from_numpy(np.sort(numbers.numpy(force=True), axis=1))
