"""Fixed points of the alignment flow to full precision, by Newton's method on the sphere.

Fixed points for p < 2, where neurons may rest on the kinks of opposing samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.measure.fixed_points.alignment_field import AlignmentField, across, unit

TOUCH = 1e-9  # products this small, relative to the points' norms, are zero


def sharpen_kinks(
    field: AlignmentField, u: Tensor, sign: Tensor, factor: float
) -> tuple[AlignmentField, Tensor]:
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


def exact_rest_on_kinks(field: AlignmentField, u: Tensor, sign: Tensor) -> Rest | None:
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


_LONGEST = 0.1  # a step must not leave the neighbourhood that the flow has reached
_LEVELS = 7  # of narrower and narrower kinks, by factors of 10


def polish(field: AlignmentField, u: Tensor, sign: Tensor) -> tuple[AlignmentField, Tensor]:
    """Newton's method for s P G(u) = 0 from u (d,) near a fixed point.

    A step d solves (<s G, u> - s P H P) d = s P G and is halved until s g grows or the residual
    falls. For p < 2 the kinks are narrowed in between; the field with the last width is returned
    beside the point.
    """
    u = _newton(field, u, sign)
    for _ in range(_LEVELS if field.p < 2.0 else 0):
        if field.p == 1.0 and exact_rest_on_kinks(field, u, sign) is not None:
            break  # the pattern is found, which is all that p = 1 needs
        field, u = sharpen_kinks(field, u, sign, 0.1)
        u = _newton(field, u, sign)
    return field, u


def residual(field: AlignmentField, u: Tensor, sign: Tensor) -> float:
    """|P G(u)|/|G(u)|."""
    return float(torch.linalg.vector_norm(across(unit(_pull(field, u, sign)), u)))


def _pull(field: AlignmentField, u: Tensor, sign: Tensor) -> Tensor:
    return field.pull((field.x @ u)[None], sign.reshape(1))[0]


def _growth(field: AlignmentField, u: Tensor, sign: Tensor) -> float:
    return float(field.growth(u[None], sign.reshape(1)))


def _newton(field: AlignmentField, u: Tensor, sign: Tensor, rounds: int = 60) -> Tensor:
    goal = 1e-13
    if field.p < 2.0:  # products are only known to rounding, which narrow kinks blow up
        goal += 1e-15 * field.scale / field.width
    for _ in range(rounds):
        left = residual(field, u, sign)
        if left <= goal:
            break
        step = _step(field, u, sign)
        step = step * (_LONGEST / torch.linalg.vector_norm(step).clamp(min=_LONGEST))
        height = _growth(field, u, sign)
        for halving in range(30):
            trial = unit(u + 0.5**halving * step)
            higher = _growth(field, trial, sign) > height + 1e-14 * abs(height)
            if higher or residual(field, trial, sign) < left:
                break
        else:
            break
        u = trial
    return u


def _step(field: AlignmentField, u: Tensor, sign: Tensor) -> Tensor:
    pull = _pull(field, u, sign)
    radial, right = pull @ u, across(pull, u)
    if field.p == 1.0:
        return _by_samples(field, u, sign, radial, right)
    return _conjugate(field, u, sign, radial, right)


def _by_samples(
    field: AlignmentField, u: Tensor, sign: Tensor, radial: Tensor, right: Tensor
) -> Tensor:
    """The step for p = 1, where H = Y^T C Y has only the few samples Y within their kinks.

    d = (right + Y^T e)/radial with (radial C^-1 - Y Y^T) e = Y right, Y taken across u: as
    well-conditioned as the samples are, however narrow the kinks.
    """
    t = (field.x @ u)[None]
    bend = sign * field.q * field.curvature(t, sign.reshape(1))[0]
    held = torch.nonzero(bend)[:, 0]
    rows = across(field.x[held], u)
    system = torch.diag(radial / bend[held]) - rows @ rows.T
    pushes = torch.linalg.lstsq(system, rows @ right, driver="gelsd").solution
    return (right + pushes @ rows) / radial


def _conjugate(
    field: AlignmentField, u: Tensor, sign: Tensor, radial: Tensor, right: Tensor
) -> Tensor:
    """The step by conjugate gradients, cut where s g curves upward."""
    t, s = (field.x @ u)[None], sign.reshape(1)
    total, rest, ahead = torch.zeros_like(right), right, right
    square = first = float(right @ right)
    for k in range(min(len(u) + 2, 100)):
        image = radial * ahead - across(field.bend(t, s, ahead[None])[0], u)
        bent = float(ahead @ image)
        if bent <= 1e-10 * abs(float(radial)) * float(ahead @ ahead):
            return total if k else right / radial.abs().clamp(min=1e-300)
        total = total + square / bent * ahead
        rest = rest - square / bent * image
        new = float(rest @ rest)
        if new <= 1e-16 * first:
            break
        ahead, square = rest + new / square * ahead, new
    return total
