"""Fixed points for p < 2, where neurons may rest on the kinks of opposing samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.measure.fixed_points.alignment_field import Field, unit

TOUCH = 1e-9  # products this small, relative to the points' norms, are zero


def narrow(field: Field, u: Tensor, sign: Tensor, factor: float) -> tuple[Field, Tensor]:
    """The field with narrower kinks, and u (d,) moved to where the samples push as before.

    An opposing sample (s q_i < 0) within a kink pushes by q_i m_i, m_i its slope; in the narrower
    kink that takes another product <x_i, u>, and u takes the shortest way to all of them at once.
    """
    new = field.narrowed(field.width * factor)
    t = field.x @ u
    held = torch.nonzero((t > 0) & (t < field.width) & (sign * field.q < 0))[:, 0]
    if not len(held):
        return new, u
    slope = t[held] * field.width ** (field.p - 2.0)
    wanted = slope * new.width ** (2.0 - field.p)
    if field.p > 1.0:
        wanted = torch.maximum(wanted, slope ** (1.0 / (field.p - 1.0)))
    way = torch.linalg.lstsq(field.x[held], wanted - t[held], driver="gelsd").solution
    return new, unit(u + way)


@dataclass(frozen=True, eq=False)
class Rest:
    """A fixed point u (d,), the number of opposing samples on whose kinks it rests, its residual.

    The residual is the largest |<x_i, u>| of those samples over their norms: all else of the
    condition holds by construction.
    """

    u: Tensor
    kinks: int
    residual: float


def snap(field: Field, u: Tensor, sign: Tensor) -> Rest | None:
    """The exact fixed point for p = 1 with the pattern of active samples near u (d,).

    Opposing samples may hold a neuron at <x_i, u> = 0, active to a share gamma_i in [0, 1]
    (Filippov's sense of the flow). So s g(u) u = sum of s q_i x_i over active samples plus sum of
    gamma_i s q_i x_i over held ones: the part of the first sum across the held samples. None where
    the shares or the other samples do not agree with that.
    """
    push = sign * field.q
    t = field.x @ u
    inside = (t > 0) & (t < field.width) & (push < 0)
    w = torch.where((t > 0) & ~inside, push, 0.0) @ field.x
    held = torch.nonzero(inside)[:, 0]
    rows = field.x[held]
    shares = push[held]
    if len(held):
        for k in range(2):
            part = torch.linalg.lstsq(rows.T, w, driver="gelsd").solution
            w, shares = w - part @ rows, part if k == 0 else shares + part
    growth = torch.linalg.vector_norm(w) * torch.sign(w @ u)
    if float(growth) == 0:
        return None
    u = w / growth
    shares = shares / -push[held]
    away = torch.where(inside, 0.0, field.x @ u)
    crossed = ((away > 0) != ((t > 0) & ~inside)) & (away.abs() > TOUCH * field.scale)
    if bool(crossed.any()) or bool(((shares < -TOUCH) | (shares > 1 + TOUCH)).any()):
        return None
    miss = (rows @ u).abs() / torch.linalg.vector_norm(rows, dim=1)
    kinks = int(((shares > TOUCH) & (shares < 1 - TOUCH)).sum())
    return Rest(u, kinks, float(miss.max()) if len(held) else 0.0)
