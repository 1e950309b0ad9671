"""From starts to distinct fixed points: follow, merge, make exact, push off what is unstable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal.measure.fixed_points.alignment_field import AlignmentField, flow_to_rest, unit
from extremal.measure.fixed_points.fixed_point import FixedPoint, examine

_NEAR, _NEAR_ON_KINKS = 1e-3, 3e-3  # the angle within which ends of the flow are one, p < 2
_SAME = 1e-5  # the same for fixed points in float64
_STEPS, _LATE = 3000, 300  # of the flow from the starts, and of that which all data decide
_TURNS = 4  # how often starts at an unstable point are sent on, at most
_PUSH = 0.03


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """Fixed points in the coordinates of `basis`, and the row of each start, (2, starts)."""

    points: list[FixedPoint]
    basis: Tensor | None
    fate: Tensor
    cut: Tensor

    def lifted(self) -> Tensor:
        """The directions in all coordinates, (m, dim)."""
        u = torch.stack([point.u for point in self.points])
        return u if self.basis is None else unit(u[:, :-1] @ self.basis)


def search(field: AlignmentField, starts: Tensor, thin: Tensor, flat: float) -> FixedPoints:
    """Follow both signs from the starts (h, dim), on the samples `thin` and then on all."""
    count, dim = starts.shape
    kind = torch.float64 if field.x.dtype == torch.float64 else torch.float32
    basis = _span(field.x.double())
    exact = replace(field, x=_inside(field.x.double(), basis))
    rough = replace(exact, x=exact.x.to(kind), q=exact.q.to(kind))
    few = replace(rough, x=rough.x[thin], q=rough.q[thin] * (len(field.x) / len(thin)))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(count)
    tolerance = min(1e-3, 0.01 / dim**0.5)
    at = flow_to_rest(
        few, _inside(starts, basis).repeat(2, 1).to(kind), sign.to(kind), tolerance, _STEPS
    )
    ends, cut, fate = at.u.double(), ~at.settled, torch.full((2 * count,), -1)
    rows, points = torch.nonzero(~at.dead)[:, 0], list[FixedPoint]()
    for turn in range(_TURNS):
        if not len(rows):
            break
        owner, heads = _gather(ends[rows], sign[rows], _NEAR if field.p >= 2.0 else _NEAR_ON_KINKS)
        near, s = ends[rows[heads]], sign[rows[heads]]
        late = flow_to_rest(rough, near.to(kind), s.to(kind), tolerance, _LATE)
        cut[rows] |= ~late.settled[owner]
        again = []
        for k in torch.nonzero(~late.dead)[:, 0].tolist():
            point = examine(exact, late.u[k].double(), s[k], dim, tolerance)
            members = rows[owner == k]
            # A point that is met from one side keeps its starts, stable or not.
            leave = not point.stable(flat) and not point.touching
            if leave and turn < _TURNS - 1:
                ends[members] = _pushed(point, ends[members])
                again.append(members)
            else:
                fate[members] = len(points)
                points.append(point)
        rows = torch.cat(again) if again else rows[:0]
    points, fate = _merged(exact, points, fate, dim, flat)
    return FixedPoints(points, basis, fate.reshape(2, count), cut.reshape(2, count))


def _pushed(point: FixedPoint, ends: Tensor) -> Tensor:
    """Members of an unstable point, moved off it along its fastest way to the side they are on."""
    side = torch.sign((ends - point.u) @ point.way)
    side = torch.where(side == 0, 1.0, side)
    return unit(point.u + _PUSH * side[:, None] * point.way)


def _span(x: Tensor) -> Tensor | None:
    """An orthonormal basis (r, dim) of the points' span, or None where it saves nothing.

    From the smaller Gram matrix; used only if the points lie in it to rounding.
    """
    wide = x.shape[0] < x.shape[1]
    values, vectors = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = values > 1e-13 * values[-1]
    if int(kept.sum()) + 1 >= x.shape[1]:
        return None
    rows = (x.T @ vectors[:, kept] if wide else vectors[:, kept]).T
    basis = torch.linalg.qr(rows.T).Q.T
    missed = float((x - (x @ basis.T) @ basis).abs().max())
    return basis if missed <= 1e-9 * float(x.abs().max()) else None


def _inside(rows: Tensor, basis: Tensor | None) -> Tensor:
    """Coordinates in the span and one more, the length of what is outside of it.

    The pull lies in the span, so that the part outside only shrinks, by one factor.
    """
    if basis is None:
        return rows
    inner = rows @ basis.T
    outside = (rows.square().sum(1) - inner.square().sum(1)).clamp(min=0.0).sqrt()
    outside = torch.where(outside <= 1e-7 * rows.square().sum(1).sqrt(), 0.0, outside)
    return torch.cat([inner, outside[:, None]], dim=1)


def _gather(u: Tensor, sign: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """The group of each row, (h,), and the first row of each group: one sign, small angles."""
    owner, heads = torch.full((len(u),), -1), list[int]()
    while bool((owner < 0).any()):
        head = int((owner < 0).int().argmax())
        near = torch.linalg.vector_norm(u - u[head], dim=1) <= angle
        owner[(owner < 0) & near & (sign == sign[head])] = len(heads)
        heads.append(head)
    return owner, torch.tensor(heads)


def _merged(
    field: AlignmentField, points: list[FixedPoint], fate: Tensor, dim: int, flat: float
) -> tuple[list[FixedPoint], Tensor]:
    """Points that are one, or lie on one continuum, as one; `fate` follows."""
    kept, groups = list[FixedPoint](), list[list[FixedPoint]]()
    fate = fate.clone()
    for j, point in enumerate(points):
        row = next((k for k, other in enumerate(kept) if _one(field, point, other, flat)), None)
        if row is None:
            row = len(kept)
            kept.append(point)
            groups.append([])
        groups[row].append(point)
        fate[fate == j] = -2 - row  # rows of the old and of the new list must not be confused
    fate = torch.where(fate < -1, -2 - fate, fate)
    return [_middle(field, group, dim, flat) for group in groups], fate


def _one(field: AlignmentField, point: FixedPoint, other: FixedPoint, flat: float) -> bool:
    """Whether two points are the same, or s g is the same half-way on a continuum."""
    if float(point.sign) != float(other.sign):
        return False
    if float(torch.linalg.vector_norm(point.u - other.u)) <= _SAME:
        return True
    if not (point.flats(flat) and other.flats(flat)):
        return False
    half = unit(point.u + other.u)[None]
    between = float(field.growth(half, point.sign.reshape(1))[0])
    return all(abs(between - end.growth) <= flat * abs(end.growth) for end in (point, other))


def _middle(field: AlignmentField, group: list[FixedPoint], dim: int, flat: float) -> FixedPoint:
    """The first of equal points; of a continuum the mean, where that belongs to it."""
    first = group[0]
    if len(group) == 1 or not first.flats(flat):
        return first
    mean = unit(torch.stack([point.u for point in group]).sum(0))
    point = examine(field, mean, first.sign, dim, flat)
    same = abs(point.growth - first.growth) <= flat * abs(first.growth)
    return point if same and point.flats(flat) else first
