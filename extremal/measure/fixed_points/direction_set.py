"""The directions that small neurons turn to: the attractors of the alignment flow.

With the weights of these directions at the end of training: the largest margin for a given total.

The search goes from starts to distinct fixed points: it follows the flow, merges its ends, makes
them exact and leaves those that are unstable.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from dataclasses import field as option
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.measure.fixed_points.alignment_field import AlignmentField, flow_to_rest
from extremal.measure.fixed_points.fixed_point import ZERO_SHARE, FixedPoint, examine
from extremal.models import Explicit, PReLUNet, relu_power

# Ends of the flow within this angle are one.
_SAME_END_ANGLE = 1e-3
# For p < 2, where the flow ends less near to its fixed point, its ends within this angle are one.
_SAME_END_ANGLE_ON_KINKS = 3e-3
# Fixed points within this angle are one; they are exact in float64.
_SAME_POINT_ANGLE = 1e-5
# Steps of the flow from the starts, on a part of the samples, at most.
_FIRST_STEPS = 3000
# Steps of the flow on all samples, from where it ended on a part of them, at most.
_LATE_STEPS = 300
# How often starts are followed, at most: those at an unstable point are sent on.
_MOST_ROUNDS = 4
# How far starts at an unstable point are moved off it.
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


# The size -l'(0) of each loss's slope where a network is still about 0.
_SLOPE_AT_ZERO = {"exp": 1.0, "logistic": 0.5}
# How many of the largest eigenvalues are reported.
_REPORTED_EIGENVALUES = 8


class UnconvergedWeightsWarning(RuntimeWarning):
    """Weights of least loss may be off the minimum: the search ended before it had converged."""


def largest_margin(margins: Tensor) -> tuple[Tensor, float]:
    """The c >= 0 with sum 1 that maximises min_i (A c)_i, and that minimum, for A (n, m).

    A linear program, the value of a matrix game. Where the best c is not unique it is any of them.
    A RuntimeError if the solver does not find one, as with numbers that differ too much in size.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - it takes as long as all of the package

    count, width = margins.shape
    unit = float(margins.abs().max()) or 1.0
    found = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=np.column_stack([-margins.cpu().numpy() / unit, np.ones(count)]),
        b_ub=np.zeros(count),
        A_eq=np.append(np.ones(width), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * width + [(None, None)],
    )
    if not found.success:
        told = f"no largest margin of {width} weights on {count} points: linprog ended with status"
        raise RuntimeError(f"{told} {found.status}, {found.message}")
    c = torch.from_numpy(found.x[:width]).to(margins.device).clamp(min=0.0)
    c = c / c.sum()
    return c, float((margins @ c).min())


def least_loss(margins: Tensor) -> Tensor:
    """The c >= 0 of least mean exp(-A c), A (n, m), for margins that no c makes all positive.

    Where the least is not attained (a weight that never hurts may grow for ever) the weights stop
    where the loss no longer falls by 1e-12. An `UnconvergedWeightsWarning` where the search ends
    for another reason; the weights are then the best that it met.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    unit = float(margins.abs().max()) or 1.0
    a = margins.cpu().numpy() / unit

    def loss_and_slope(c: Any) -> tuple[float, Any]:
        each = np.exp(-(a @ c)) / len(a)
        return float(each.sum()), -(a.T @ each)

    bounds = [(0.0, None)] * a.shape[1]
    exact = {"ftol": 1e-12, "gtol": 1e-10, "maxiter": 10_000}
    first = np.full(a.shape[1], 0.1)
    found = minimize(
        loss_and_slope, first, jac=True, bounds=bounds, method="L-BFGS-B", options=exact
    )
    if not found.success:
        told = f"weights of least loss may be off: minimize ended with status {found.status}"
        warnings.warn(f"{told}, {found.message}", UnconvergedWeightsWarning, stacklevel=3)
    return torch.from_numpy(found.x).to(margins.device) / unit


@dataclass(frozen=True, eq=False)
class ExtremalDirections:
    """The directions found, first those of positive neurons, each sign by falling basin.

    With `dead`, the shares in `basin` of one sign add up to 1.

    `eigenvalues` are those of the Hessian of s g on the sphere (-inf along a kink). `stable` means
    that none is positive beyond 1e-6 p |growth|, and `continuum` counts those that are zero to
    within that: the dimension of a family of equally good directions, of which one is listed.

    The samples counted in `kinks` hold the neuron where they are active in part. A point with own
    samples whose <x_i, u> tends to 0 from below (`one_sided`) has a basin and is yet unstable, with
    eigenvalues +inf, as any noise would activate them.

    `reached_row` is the row that each start ended in as a positive and as a negative neuron. The
    steps of `unfinished` starts were used up before they arrived: Newton's method decided them.
    """

    directions: Tensor  # (m, dim), of norm 1
    sign: Tensor  # (m,), of the votes of the neurons they attract
    growth: Tensor  # (m,), s g, the rate of log ||w|| there
    basin: Tensor  # (m,), the share of all starts of that sign that end there
    eigenvalues: Tensor  # (m, k), falling, the largest of the flow's linearisation
    stable: Tensor  # (m,), whether no eigenvalue is positive
    continuum: Tensor  # (m,), how many eigenvalues are zero
    kinks: Tensor  # (m,), the opposing samples at <x_i, u> = 0 (p = 1 only)
    one_sided: Tensor  # (m,), the own samples that tend to 0 from below (p < 2)
    residual: Tensor  # (m,), |P G|/|G|
    reached_row: Tensor  # (2, starts), where each start ended, -1 for dead
    dead: tuple[float, float]  # shares of the positive and of the negative starts
    unfinished: tuple[float, float]  # shares of starts that had not arrived
    p: float  # the power of the activation
    data: Dataset = option(repr=False)  # the data that the directions are of

    def __len__(self) -> int:
        return len(self.directions)

    @property
    def attracting(self) -> Tensor:
        """Which rows, (m,), attract neurons that also grow there: `stable` and growth > 0."""
        return self.stable & (self.growth > 0)

    def classifier(self) -> PReLUNet:
        """The network that the directions predict for the end of training, up to scale.

        f(x) = sum_j s_j c_j relu(<u_j, x>)^p over the stable directions that grow, with the c >= 0
        of least sum such that y_i f(x_i) >= 1 on all data: late training of a 2-homogeneous network
        tends to the largest margin for its norm (Lyu & Li 2019), and at fixed directions the norm
        sum_j ||w_j||^2 + v_j^2 is 2 sum_j c_j. On the orthonormal mixture without noise this is
        eq. 2 of Min & Vidal 2024 for p >= 3 and eq. 3 for p = 1. Where no c separates the data, c
        minimises the mean exponential loss, with an `UnconvergedWeightsWarning` where the search
        for it is cut short. A continuum enters by the one direction listed for it, which for p = 2
        is a choice that the theory does not make.
        """
        rows = self.attracting
        _check.require(bool(rows.any()), "directions", "include a stable one that grows", "none")
        u, sign = self.directions[rows], self.sign[rows].double()
        labels = self.data.y.double()
        margins = labels[:, None] * relu_power(self.data.x.double() @ u.T, self.p) * sign
        weights, least = largest_margin(margins)
        weights = weights / least if least > 0 else least_loss(margins)
        root = weights.sqrt()
        return PReLUNet(
            self.directions.shape[1],
            len(u),
            self.p,
            init=Explicit(root[:, None] * u, (root * sign)[None]),
            dtype=torch.float64,
            generator=torch.Generator(),
        )

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """A few sentences: how many directions of each sign, their growth, basins and stability."""
        starts = self.reached_row.shape[1]
        lines = [f"Extremal directions for p = {self.p:g}, {starts} starts each sign"]
        lines += [self._sentence(row) for row in (0, 1)]
        if bool((self.continuum > 0).any()):
            lines.append(
                "A continuum is a whole family of fixed points with equal growth: neurons stay "
                "spread over it, and the one direction listed is its members' mean."
            )
        return "\n".join(lines)

    def _sentence(self, row: int) -> str:
        own = torch.nonzero(self.sign == (1, -1)[row])[:, 0]
        name = ("positive", "negative")[row]
        tail = f"{100 * self.dead[row]:.1f} % of starts are dead."
        if self.unfinished[row] > 0:
            tail += f" {100 * self.unfinished[row]:.1f} % had not arrived."
        if not len(own):
            return f"{name}: no direction; {tail}"
        growth, basin = self.growth[own], self.basin[own]
        parts = [_count(len(own), "direction")]
        unstable = int((~self.stable[own]).sum())
        if unstable:
            parts.append(f"{unstable} of them unstable")
        one_sided = int((self.one_sided[own] > 0).sum())
        if one_sided:
            parts.append(f"{one_sided} met from one side only (own samples just not active)")
        wide = self.continuum[own]
        if bool((wide > 0).any()):
            dims = ", ".join(map(str, wide[wide > 0].tolist()))
            parts.append(f"{int((wide > 0).sum())} standing for a continuum of dimension {dims}")
        if bool((self.kinks[own] > 0).any()):
            most = _count(int(self.kinks[own].max()), "opposing sample")
            parts.append(f"resting on the kinks of up to {most}")
        parts.append(f"growth {_range(growth)}, basins {_range(basin)}")
        return f"{name}: {', '.join(parts)}; {tail}"


def extremal_directions(
    data: Dataset,
    p: float,
    *,
    starts: int | Tensor = 200,
    loss: Literal["exp", "logistic"] = "exp",
    subset: int | None = 2000,
    generator: torch.Generator,
) -> ExtremalDirections:
    """The fixed points that attract neurons while a network is small, for any data and p >= 1.

    With f about 0 under the mean loss, q_i = -l'(0) y_i/n, and a neuron with vote of sign s obeys
    u' = s (I - u u^T) G(u), G(u) = p sum_i q_i relu(<x_i, u>)^(p-1) x_i, (log ||w||)' = s g(u),
    g(u) = sum_i q_i relu(<x_i, u>)^p (Min & Vidal 2024, Section 4, eq. 6, as balanced neurons; at
    other starts the same orbits at another speed). The loss only scales g: 1 for "exp", 1/2 for
    "logistic".

    Both signs are followed from the same starts, in the dtype of the data and in the coordinates of
    their span, with controlled steps, so that basins are those of the flow; data of more than
    `subset` points are thinned to that many at random for this, after which all data decide. Ends
    within an angle of 1e-3 (3e-3 for p < 2) are merged, then made exact in float64 by Newton's
    method, for p = 1 by the pattern of active samples; starts that came to rest at an unstable
    point are pushed off and go on. Starts that activate no sample, or are driven out of all that
    they activate, are dead. Unstable fixed points are not sought.

    Arguments:

    - `data`: a `Dataset` with labels -1 / +1.
    - `p`: the power of the activation, at least 1.
    - `starts`: the number of uniform directions to start from, 200 by default, or a tensor whose
      rows they are.
    - `loss`: "exp" or "logistic", see above.
    - `subset`: how many random points the flow sees at most, 2000 by default; None for all of them.
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    p = _check_settings(data, p, starts, subset, generator)
    _check.choice("loss", loss, tuple(_SLOPE_AT_ZERO))
    first = _starts(starts, data.dim, generator)
    with torch.no_grad():
        chosen = torch.arange(len(data))
        if subset is not None and len(data) > subset:
            chosen = torch.randperm(len(data), generator=generator)[:subset]
        q = _SLOPE_AT_ZERO[loss] * data.y.double() / len(data)
        field = AlignmentField(data.x, q, p, _kink_width(data))
        found = search(field, first, chosen)
    return _result(found, p, data)


def _result(found: FixedPoints, p: float, data: Dataset) -> ExtremalDirections:
    """Rows sorted by sign and basin, and what became of each start."""
    hits = [int((found.reached_row == j).sum()) for j in range(len(found.points))]
    signs = [int(point.sign) for point in found.points]
    order = sorted(range(len(hits)), key=lambda j: (-signs[j], -hits[j]))
    points = [found.points[j] for j in order]
    reached_row = torch.full_like(found.reached_row, -1)
    for row, j in enumerate(order):
        reached_row[found.reached_row == j] = row
    numbers = {
        "growth": [point.growth for point in points],
        "basin": [hits[j] / found.reached_row.shape[1] for j in order],
        "residual": [point.residual for point in points],
    }
    whole = {
        "sign": [signs[j] for j in order],
        "continuum": [point.zero_eigenvalues for point in points],
        "kinks": [point.kinks for point in points],
        "one_sided": [point.one_sided for point in points],
    }
    kept = min(_REPORTED_EIGENVALUES, max(data.dim - 1, 1))
    eigenvalues = torch.full((len(points), kept), -torch.inf, dtype=torch.float64)
    for row, point in enumerate(points):
        eigenvalues[row, : len(point.eigenvalues)] = point.eigenvalues[:kept]
    return ExtremalDirections(
        directions=found.lifted()[order] if points else eigenvalues.new_zeros(0, data.dim),
        eigenvalues=eigenvalues,
        stable=torch.tensor([point.stable for point in points], dtype=torch.bool),
        reached_row=reached_row,
        dead=_shares(found.reached_row < 0),
        unfinished=_shares(found.unfinished),
        p=p,
        data=data,
        **{name: torch.tensor(part, dtype=torch.float64) for name, part in numbers.items()},
        **{name: torch.tensor(part, dtype=torch.int64) for name, part in whole.items()},
    )


def _shares(mask: Tensor) -> tuple[float, float]:
    first, second = mask.double().mean(1).tolist()
    return first, second


def _check_settings(
    data: object, p: object, starts: object, subset: object, generator: object
) -> float:
    data = _check.instance("data", data, Dataset, "be a Dataset")
    _check.labels("data.y", data.y, count=len(data), outputs=1)
    _check.require(bool((data.x != 0).any()), "data.x", "have a non-zero entry", "all zeros")
    _check.generator("generator", generator)
    if subset is not None:
        _check.integer("subset", subset, minimum=1)
    if isinstance(starts, Tensor):
        _check.matrix("starts", starts, columns=data.dim)
        _check.require(bool((starts != 0).any(1).all()), "starts", "have no zero row", "one")
    else:
        _check.integer("starts", starts, minimum=1)
    return _check.number("p", p, minimum=1.0)


def _starts(starts: int | Tensor, dim: int, generator: torch.Generator) -> Tensor:
    if isinstance(starts, Tensor):
        return unit_rows(starts.detach().double())
    return unit_rows(torch.randn(starts, dim, generator=generator, dtype=torch.float64))


def _kink_width(data: Dataset) -> float:
    """The width of softened kinks: small beside the products of a random direction and a sample."""
    norms = data.x.double().square().sum(1).mean().sqrt()
    return float(norms) * min(3e-3, 0.03 / data.dim**0.5)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _range(values: Tensor) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if high - low <= 1e-4 * abs(high) else f"{low:.4g} to {high:.4g}"
