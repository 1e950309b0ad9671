"""Weights of fixed directions at the end of training: the largest margin for a given total."""

from __future__ import annotations

import torch
from torch import Tensor


def largest_margin(margins: Tensor) -> tuple[Tensor, float]:
    """The c >= 0 with sum 1 that maximises min_i (A c)_i, and that minimum, for A (n, m).

    A linear program (the value of a matrix game), solved by a primal-dual interior point method:
    A c - t = z, A^T b + v = r with c, z, b, v >= 0, sum c = sum b = 1, and products z b and c v
    that go to zero together. Where the best c is not unique it is the middle of the best ones.
    """
    count, width = margins.shape
    unit = float(margins.abs().max()) or 1.0
    a = margins / unit
    c, b = a.new_full((width,), 1.0 / width), a.new_full((count,), 1.0 / count)
    t, r = float((a @ c).min()) - 1.0, float((a.T @ b).max()) + 1.0
    z, v = a @ c - t, r - a.T @ b
    for _ in range(100):
        gap = float(z @ b + c @ v)
        if gap < 1e-13:
            break
        goal = 0.1 * gap / (count + width)
        dc, dt, dr = _step(a, c, b, z, v, goal)
        dz = a @ dc - dt
        db, dv = (goal - b * dz) / z - b, (goal - v * dc) / c - v
        size = 0.99 * min(_room(part, d) for part, d in ((c, dc), (z, dz), (b, db), (v, dv)))
        size = min(size, 1.0)
        c, z, b, v = c + size * dc, z + size * dz, b + size * db, v + size * dv
        t, r = t + size * dt, r + size * dr
    return c / c.sum(), float((margins @ (c / c.sum())).min())


def _step(
    a: Tensor, c: Tensor, b: Tensor, z: Tensor, v: Tensor, goal: float
) -> tuple[Tensor, float, float]:
    """Newton's step for (c, t, r), everything else eliminated: a system of m + 2 equations.

    The iterates satisfy the linear equations from the start, so that their right sides are zero.
    """
    width = a.shape[1]
    weight = b / z
    system = a.new_zeros(width + 2, width + 2)
    system[:width, :width] = (a.T * weight) @ a + torch.diag(v / c)
    system[:width, width] = system[width, :width] = -(a.T @ weight)
    system[width, width] = weight.sum()
    system[:width, width + 1] = system[width + 1, :width] = 1.0
    drive = goal / z - b
    right = torch.cat([a.T @ drive + goal / c - v, -drive.sum().reshape(1), a.new_zeros(1)])
    found = torch.linalg.lstsq(system, right, driver="gelsd").solution
    return found[:width], float(found[width]), float(found[width + 1])


def _room(part: Tensor, change: Tensor) -> float:
    """The largest step that keeps part + step change >= 0."""
    down = change < 0
    return float((-part[down] / change[down]).min()) if bool(down.any()) else 1e9


def least_loss(margins: Tensor) -> Tensor:
    """The c >= 0 of least mean exp(-A c), A (n, m), by Newton steps with a falling log barrier.

    For margins that no c makes all positive. Where the least is not attained (a weight that never
    hurts may grow for ever) the weights stop where the loss no longer falls by 1e-9 of itself.
    """
    unit = float(margins.abs().max()) or 1.0
    a = margins / unit
    c = a.new_full((a.shape[1],), 0.1)
    for k in range(60):
        barrier = max(0.5**k, 1e-10)
        for _ in range(5):
            each = torch.exp(-(a @ c)) / len(a)
            slope = -(a.T @ each) - barrier / c
            bend = (a.T * each) @ a + torch.diag(barrier / c**2)
            step = torch.linalg.solve(bend, -slope)
            c = c + min(0.9 * _room(c, step), 1.0, 1.0 / float((a @ step).abs().max())) * step
    return c / unit
