"""One fixed point of the alignment flow: made exact by Newton's method, and its stability.

For p < 2 neurons may rest on the kinks of opposing samples; these are found with kinks of a small
width that shrinks. The largest eigenvalues of the Hessian of s g on the sphere say how stable it
is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.measure.fixed_points.alignment_field import AlignmentField, flow_to_rest, tangential

# Up to this share of p |s g| an eigenvalue counts as zero.
ZERO_SHARE = 1e-6
# Products with a sample that are smaller than this share of the points' norms are zero.
_ZERO_PRODUCT_SHARE = 1e-9
# The share to which a sample on its kink is active counts as 0 or 1 if it is this near to it.
_SHARE_ROUNDING = 1e-9
# A step of Newton's method is no longer than this: it must stay where the flow has led.
_LONGEST_STEP = 0.1
# How often kinks are made ten times narrower.
_KINK_WIDTHS = 7
# For p < 2 a fixed point is good enough with a residual up to this.
_GOOD_RESIDUAL = 1e-6
# For p < 2 Newton's method has lost the fixed point if it went farther than this.
_LONGEST_WAY = 0.05
# How often a neuron whose fixed point was lost is followed further, with narrower kinks.
_MOST_TRIALS = 3
# A neuron whose fixed point was lost is followed for at most this many steps of the flow.
_TRIAL_STEPS = 1000
# Up to this dimension Hessians are formed, above it block Krylov spaces are.
_MOST_DENSE_DIMENSIONS = 400
# Vectors in a block of a Krylov space, and eigenvalues that are found with it.
_KRYLOV_VECTORS = 8
# Products with the Hessian for each vector in a block of a Krylov space.
_KRYLOV_PRODUCTS = 7


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A fixed point u (d,) of neurons of one sign.

    `eigenvalues` fall; there are as many as are known, at most dim - 1. `fastest_direction` (d,) is
    the vector of the largest. `kinks` opposing samples hold it at <x_i, u> = 0; it touches that of
    `one_sided` own samples from outside.
    """

    u: Tensor
    sign: Tensor
    growth: float
    eigenvalues: Tensor
    fastest_direction: Tensor
    kinks: int
    one_sided: int
    residual: float
    p: float

    @property
    def stable(self) -> bool:
        """Whether no eigenvalue is positive beyond a small share of p |s g|."""
        return not bool((self.eigenvalues > ZERO_SHARE * self.p * abs(self.growth)).any())

    @property
    def zero_eigenvalues(self) -> int:
        """How many eigenvalues are zero to within a small share of p |s g|."""
        return int((self.eigenvalues.abs() <= ZERO_SHARE * self.p * abs(self.growth)).sum())


def examine(
    field: AlignmentField, u: Tensor, sign: Tensor, dim: int, tolerance: float
) -> FixedPoint:
    """The fixed point near u (d,), and its eigenvalues in all `dim` coordinates of the data.

    d may be smaller than dim: coordinates outside of the span add eigenvalues -p s g. For p = 1
    every direction across u that keeps opposing samples on their kinks has -s g, the others -inf.

    For p < 2 a fixed point may vanish as the kinks get sharp. Then the neuron is followed further,
    with kinks of a tenth of the width, and so on.
    """
    point = _without_inactive(field, u, sign, dim)
    for _ in range(_MOST_TRIALS if field.p < 2.0 else 0):
        way = float(torch.linalg.vector_norm(point.u - u))
        if point.residual <= _GOOD_RESIDUAL and way <= _LONGEST_WAY:
            break
        field = replace(field, width=0.1 * field.width)
        u = flow_to_rest(field, u[None], sign.reshape(1), 0.3 * tolerance, _TRIAL_STEPS).u[0]
        point = _without_inactive(field, u, sign, dim)
    return point


def _without_inactive(field: AlignmentField, u: Tensor, sign: Tensor, dim: int) -> FixedPoint:
    """The fixed point with own samples that are not active at u left out, if they stay inactive.

    For p < 2 a neuron may come to rest at <x_i, u> = 0 of own samples (s q_i > 0) from the side
    where they are not active. The point attracts an open set of starts, and yet the least push to
    the other side leads away at once: it has an eigenvalue +inf for each of these samples.
    """
    if field.p >= 2.0:
        return _polished(field, u, sign, dim)
    inactive = (sign * field.q > 0) & (field.x @ u <= 0)
    point = _polished(replace(field, q=torch.where(inactive, 0.0, field.q)), u, sign, dim)
    t = field.x @ point.u
    if bool((t[inactive] > _ZERO_PRODUCT_SHARE * field.scale).any()):
        return _polished(field, u, sign, dim)
    touched = torch.nonzero(inactive & (t >= -_ZERO_PRODUCT_SHARE * field.scale))[:, 0]
    values = point.eigenvalues
    count = min(int(torch.linalg.matrix_rank(field.x[touched])), len(values)) if len(touched) else 0
    values = torch.cat([torch.full_like(values[:count], torch.inf), values])[: len(values)]
    return replace(point, eigenvalues=values, one_sided=len(touched))


def _polished(field: AlignmentField, u: Tensor, sign: Tensor, dim: int) -> FixedPoint:
    """The exact fixed point near u (d,), with its eigenvalues."""
    field, u = newton_polish(field, u, sign)
    left, kinks, fastest = residual(field, u, sign), 0, torch.zeros_like(u)
    if field.p > 1.0:
        growth = float(field.growth(u[None], sign.reshape(1)))
        values, fastest = largest_eigenvalues(field, u, sign)
        outside = torch.full((dim - len(u),), -field.p * growth, dtype=u.dtype)
        values = torch.cat([values, outside]).sort(descending=True).values
        return FixedPoint(u, sign, growth, values, fastest, kinks, 0, left, field.p)
    rest = exact_rest_on_kinks(field, u, sign)
    if rest is not None:
        u, kinks, left = rest.u, rest.kinks, rest.residual
    growth = float(sign * (torch.relu(field.x @ u) @ field.q))
    values = torch.full((dim - 1,), -growth, dtype=u.dtype)
    values[max(dim - 1 - kinks, 0) :] = -torch.inf
    if growth < 0:  # every way off that keeps the samples on their kinks is as good
        on_kink = (field.x @ u).abs() <= _ZERO_PRODUCT_SHARE * field.scale
        held = field.x[on_kink & (sign * field.q < 0)]
        fastest = torch.linalg.svd(torch.cat([u[None], held])).Vh[-1]
    return FixedPoint(u, sign, growth, values, fastest, kinks, 0, left, field.p)


def sharpen_kinks(
    field: AlignmentField, u: Tensor, sign: Tensor, factor: float
) -> tuple[AlignmentField, Tensor]:
    """The field with narrower kinks, and u (d,) moved to where the samples push as before.

    An opposing sample (s q_i < 0) within a kink pushes by q_i m_i, m_i its slope; in the narrower
    kink that takes another product <x_i, u>, and u takes the shortest way to all of them at once.
    """
    new = replace(field, width=field.width * factor)
    t = field.x @ u
    held = torch.nonzero((t > 0) & (t < field.width) & (sign * field.q < 0))[:, 0]
    if not len(held):
        return new, u
    slope = t[held] * field.width ** (field.p - 2.0)
    wanted = slope * new.width ** (2.0 - field.p)
    if field.p > 1.0:
        wanted = torch.maximum(wanted, slope ** (1.0 / (field.p - 1.0)))
    way = torch.linalg.lstsq(field.x[held], wanted - t[held], driver="gelsd").solution
    return new, unit_rows(u + way)


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
    crossed = (away > 0) != ((t > 0) & ~inside)
    crossed &= away.abs() > _ZERO_PRODUCT_SHARE * field.scale
    outside = (shares < -_SHARE_ROUNDING) | (shares > 1 + _SHARE_ROUNDING)
    if bool(crossed.any()) or bool(outside.any()):
        return None
    miss = (rows @ u).abs() / torch.linalg.vector_norm(rows, dim=1)
    kinks = int(((shares > _SHARE_ROUNDING) & (shares < 1 - _SHARE_ROUNDING)).sum())
    return Rest(u, kinks, float(miss.max()) if len(held) else 0.0)


def newton_polish(field: AlignmentField, u: Tensor, sign: Tensor) -> tuple[AlignmentField, Tensor]:
    """Newton's method for s P G(u) = 0 from u (d,) near a fixed point.

    A step d solves (<s G, u> - s P H P) d = s P G and is halved until s g grows or the residual
    falls. For p < 2 the kinks are narrowed in between; the field with the last width is returned
    beside the point.
    """
    u = _newton(field, u, sign)
    for _ in range(_KINK_WIDTHS if field.p < 2.0 else 0):
        if field.p == 1.0 and exact_rest_on_kinks(field, u, sign) is not None:
            break  # the pattern is found, which is all that p = 1 needs
        field, u = sharpen_kinks(field, u, sign, 0.1)
        u = _newton(field, u, sign)
    return field, u


def residual(field: AlignmentField, u: Tensor, sign: Tensor) -> float:
    """|P G(u)|/|G(u)|."""
    return float(torch.linalg.vector_norm(tangential(unit_rows(_pull(field, u, sign)), u)))


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
        step = _newton_step(field, u, sign)
        step = step * (_LONGEST_STEP / torch.linalg.vector_norm(step).clamp(min=_LONGEST_STEP))
        height = _growth(field, u, sign)
        for halving in range(30):
            trial = unit_rows(u + 0.5**halving * step)
            higher = _growth(field, trial, sign) > height + 1e-14 * abs(height)
            if higher or residual(field, trial, sign) < left:
                break
        else:
            break
        u = trial
    return u


def _newton_step(field: AlignmentField, u: Tensor, sign: Tensor) -> Tensor:
    pull = _pull(field, u, sign)
    radial, right = pull @ u, tangential(pull, u)
    if field.p == 1.0:
        return _step_by_samples(field, u, sign, radial, right)
    return _step_by_conjugate_gradients(field, u, sign, radial, right)


def _step_by_samples(
    field: AlignmentField, u: Tensor, sign: Tensor, radial: Tensor, right: Tensor
) -> Tensor:
    """The step for p = 1, where H = Y^T C Y has only the few samples Y within their kinks.

    d = (right + Y^T e)/radial with (radial C^-1 - Y Y^T) e = Y right, Y taken across u: as
    well-conditioned as the samples are, however narrow the kinks.
    """
    t = (field.x @ u)[None]
    bend = sign * field.q * field.curvature(t, sign.reshape(1))[0]
    held = torch.nonzero(bend)[:, 0]
    rows = tangential(field.x[held], u)
    system = torch.diag(radial / bend[held]) - rows @ rows.T
    pushes = torch.linalg.lstsq(system, rows @ right, driver="gelsd").solution
    return (right + pushes @ rows) / radial


def _step_by_conjugate_gradients(
    field: AlignmentField, u: Tensor, sign: Tensor, radial: Tensor, right: Tensor
) -> Tensor:
    """The step by conjugate gradients, cut where s g curves upward."""
    t, s = (field.x @ u)[None], sign.reshape(1)
    total, rest, ahead = torch.zeros_like(right), right, right
    square = first = float(right @ right)
    for k in range(min(len(u) + 2, 100)):
        image = radial * ahead - tangential(field.bend(t, s, ahead[None])[0], u)
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


def largest_eigenvalues(field: AlignmentField, u: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of the Hessian of s g on the sphere at u (d,), falling, and the first's vector.

    On the tangent space at a fixed point u it is P (s H) P - p s g P, H = p(p-1) sum_i q_i
    relu(<x_i,u>)^(p-2) x_i x_i^T: the ambient curvature less the slope <s G, u> = p s g along u.
    All d - 1 of them are found up to dimension 400, above it the eight largest, as the Ritz values
    of a block Krylov space (eight vectors, seven products with H each): lower bounds, close where
    they stand apart from the rest.
    """
    row, s = u[None], sign.reshape(1)
    t = row @ field.x.T
    radial = (field.pull(t, s) * row).sum()
    weights = sign * field.curvature(t, s)[0] * field.q
    x, weights = field.x[weights != 0], weights[weights != 0]
    dense = len(u) <= _MOST_DENSE_DIMENSIONS
    if dense:
        plane = torch.linalg.svd(row).Vh[1:]  # (d - 1, d), across u
        shrunk = plane @ x.T
        matrix = (shrunk * weights) @ shrunk.T
    else:
        plane, matrix = _krylov(x, weights, row)
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    values = values.flip(0) - radial
    top = vectors[:, -1] @ plane if len(values) else torch.zeros_like(u)
    return values if dense else values[:_KRYLOV_VECTORS], top


def _krylov(x: Tensor, weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """An orthonormal basis (b, d) of a block Krylov space of P H P across u (1, d), and H in it."""
    seed = torch.Generator().manual_seed(0)  # any block will do: the result does not show it
    block = torch.randn(_KRYLOV_VECTORS, u.shape[1], generator=seed, dtype=u.dtype)
    basis, images = u, []
    for _ in range(_KRYLOV_PRODUCTS):
        for _ in range(2):
            block = block - (block @ basis.T) @ basis
        basis = torch.cat([basis, torch.linalg.qr(block.T).Q.T])
        block = ((basis[-_KRYLOV_VECTORS:] @ x.T) * weights) @ x
        images.append(block)
    return basis[1:], torch.cat(images) @ basis[1:].T
