"""From starts to distinct fixed points: follow, merge, make exact, leave what is unstable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.measure.fixed_points.alignment_field import AlignmentField, flow_to_rest
from extremal.measure.fixed_points.fixed_point import ZERO_SHARE, FixedPoint, examine

# Ends of the flow within this angle are one.
_SAME_END_ANGLE = 1e-3
# The same for p < 2, where the flow ends less near to its fixed point.
_SAME_END_ANGLE_ON_KINKS = 3e-3
# Fixed points within this angle are one; they are exact in float64.
_SAME_POINT_ANGLE = 1e-5
# Steps of the flow from the starts, on a part of the samples, at most.
_FIRST_STEPS = 3000
# Steps of the flow from its ends, on all samples, at most.
_LATE_STEPS = 300
# How often starts are followed, at most: those at an unstable point are sent on.
_MOST_ROUNDS = 4
# How far they are moved off the unstable point.
_PUSH_LENGTH = 0.03


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """Fixed points in the coordinates of `basis`, and what became of each start."""

    points: list[FixedPoint]
    basis: Tensor | None  # (r, dim), or None for all coordinates
    reached_row: Tensor  # (2, starts): the point that each start ended in, -1 for dead
    unfinished: Tensor  # (2, starts): whether its steps were used up before it had arrived

    def lifted(self) -> Tensor:
        """The directions in all coordinates, (m, dim)."""
        u = torch.stack([point.u for point in self.points])
        return u if self.basis is None else unit_rows(u[:, :-1] @ self.basis)


def search(field: AlignmentField, starts: Tensor, subset: Tensor) -> FixedPoints:
    """Follow both signs from the starts (h, dim), on the samples `subset` and then on all."""
    count, dim = starts.shape
    kind = torch.float64 if field.x.dtype == torch.float64 else torch.float32
    basis = _span_basis(field.x.double())
    exact = replace(field, x=_in_span(field.x.double(), basis))
    rough = replace(exact, x=exact.x.to(kind), q=exact.q.to(kind))
    few = replace(rough, x=rough.x[subset], q=rough.q[subset] * (len(field.x) / len(subset)))
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(count)
    tolerance = min(1e-3, 0.01 / dim**0.5)
    at = flow_to_rest(
        few, _in_span(starts, basis).repeat(2, 1).to(kind), sign.to(kind), tolerance, _FIRST_STEPS
    )
    ends, unfinished, reached_row = at.u.double(), ~at.settled, torch.full((2 * count,), -1)
    angle = _SAME_END_ANGLE if field.p >= 2.0 else _SAME_END_ANGLE_ON_KINKS
    rows, points = torch.nonzero(~at.dead)[:, 0], list[FixedPoint]()
    for turn in range(_MOST_ROUNDS):
        if not len(rows):
            break
        owner, heads = _grouped(ends[rows], sign[rows], angle)
        near, s = ends[rows[heads]], sign[rows[heads]]
        late = flow_to_rest(rough, near.to(kind), s.to(kind), tolerance, _LATE_STEPS)
        unfinished[rows] |= ~late.settled[owner]
        again = []
        for k in torch.nonzero(~late.dead)[:, 0].tolist():
            point = examine(exact, late.u[k].double(), s[k], dim, tolerance)
            members = rows[owner == k]
            # A point that is met from one side keeps its starts, stable or not.
            leave = not point.stable and not point.one_sided
            if leave and turn < _MOST_ROUNDS - 1:
                ends[members] = _pushed(point, ends[members])
                again.append(members)
            else:
                reached_row[members] = len(points)
                points.append(point)
        rows = torch.cat(again) if again else rows[:0]
    points, reached_row = _merged(exact, points, reached_row, dim)
    return FixedPoints(points, basis, reached_row.reshape(2, count), unfinished.reshape(2, count))


def _pushed(point: FixedPoint, ends: Tensor) -> Tensor:
    """Members of an unstable point, moved off it along its fastest direction to their own side."""
    side = torch.sign((ends - point.u) @ point.fastest_direction)
    side = torch.where(side == 0, 1.0, side)
    return unit_rows(point.u + _PUSH_LENGTH * side[:, None] * point.fastest_direction)


def _span_basis(x: Tensor) -> Tensor | None:
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


def _in_span(rows: Tensor, basis: Tensor | None) -> Tensor:
    """Coordinates in the span and one more, the length of what is outside of it.

    The pull lies in the span, so that the part outside only shrinks, by one factor.
    """
    if basis is None:
        return rows
    inner = rows @ basis.T
    outside = (rows.square().sum(1) - inner.square().sum(1)).clamp(min=0.0).sqrt()
    outside = torch.where(outside <= 1e-7 * rows.square().sum(1).sqrt(), 0.0, outside)
    return torch.cat([inner, outside[:, None]], dim=1)


def _grouped(u: Tensor, sign: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """The group of each row, (h,), and the first row of each group: one sign, small angles."""
    owner, heads = torch.full((len(u),), -1), list[int]()
    while bool((owner < 0).any()):
        head = int((owner < 0).int().argmax())
        near = torch.linalg.vector_norm(u - u[head], dim=1) <= angle
        owner[(owner < 0) & near & (sign == sign[head])] = len(heads)
        heads.append(head)
    return owner, torch.tensor(heads)


def _merged(
    field: AlignmentField, points: list[FixedPoint], reached_row: Tensor, dim: int
) -> tuple[list[FixedPoint], Tensor]:
    """Points that are one, or lie on one continuum, as one; `reached_row` follows."""
    kept, groups = list[FixedPoint](), list[list[FixedPoint]]()
    reached_row = reached_row.clone()
    for j, point in enumerate(points):
        row = next((k for k, other in enumerate(kept) if _are_one(field, point, other)), None)
        if row is None:
            row = len(kept)
            kept.append(point)
            groups.append([])
        groups[row].append(point)
        # Rows of the new list are below -1 at first, not to be confused with those of the old one.
        reached_row[reached_row == j] = -2 - row
    reached_row = torch.where(reached_row < -1, -2 - reached_row, reached_row)
    return [_representative(field, group, dim) for group in groups], reached_row


def _are_one(field: AlignmentField, point: FixedPoint, other: FixedPoint) -> bool:
    """Whether two points are the same, or s g is the same half-way on a continuum."""
    if float(point.sign) != float(other.sign):
        return False
    if float(torch.linalg.vector_norm(point.u - other.u)) <= _SAME_POINT_ANGLE:
        return True
    if not (point.zero_eigenvalues and other.zero_eigenvalues):
        return False
    half = unit_rows(point.u + other.u)[None]
    between = float(field.growth(half, point.sign.reshape(1))[0])
    return all(abs(between - end.growth) <= ZERO_SHARE * abs(end.growth) for end in (point, other))


def _representative(field: AlignmentField, group: list[FixedPoint], dim: int) -> FixedPoint:
    """The first of equal points; of a continuum the mean, where that belongs to it."""
    first = group[0]
    if len(group) == 1 or not first.zero_eigenvalues:
        return first
    mean = unit_rows(torch.stack([point.u for point in group]).sum(0))
    point = examine(field, mean, first.sign, dim, ZERO_SHARE)
    same = abs(point.growth - first.growth) <= ZERO_SHARE * abs(first.growth)
    return point if same and point.zero_eigenvalues else first
