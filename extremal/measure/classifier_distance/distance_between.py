"""The distance between a network and a classifier, up to scale.

dist(f, F) = inf over c > 0 of sup over ||x|| = 1 of |c f(x) - F(x)|, Min & Vidal 2024, Section 5.1:
by a search of our own, and by Algorithm 1 of the paper as printed.

The proven upper bound writes the difference as a sum of parts, each at most H ||P x||^q for a
projection P on a plane or a line and q = min(p, 2): a neuron against the one that it is near to,
remainders of gathered neurons, unpaired neurons. Parts on nearly orthogonal planes hardly add up,
which eigenvalues of sum H P say. For p = 1 and few neurons the supremum of all but remainders has
an exact dual. The largest difference of two neurons is bounded on the circle of their plane.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.measure.classifier_distance.distance_search import (
    best_scale,
    search,
    shortest_residual,
)
from extremal.measure.classifier_distance.network_difference import (
    Gathered,
    NeuronSum,
    as_sum,
    gather_neurons,
)
from extremal.models import PReLUNet, float64_copy

# The length of a step of the paper's Algorithm 1.
_PAPER_STEP = 0.01
# The share of all contributions that the search does without.
_NEGLIGIBLE_SHARE = 1e-10
# The share of all contributions that the upper bound counts by their sum alone.
_SUMMED_SHARE = 1e-7


@dataclass(frozen=True, eq=False)
class Distance:
    """The distance found, the scale c, and the point x of the sphere where it is attained.

    `lower` is the least over c of the largest difference on all points that the search found (nan
    for the paper's algorithm, which fixes c beforehand). `upper` bounds the supremum at c, and so
    the distance (nan where the two networks have different powers, and for the paper's algorithm).
    """

    value: float  # |c f - F| at the witness, the largest that was found
    scale: float  # c, above 0
    witness: Tensor  # (dim,), of norm 1
    lower: float  # a proven lower bound on the distance, or nan
    upper: float  # a proven upper bound on the distance, or nan
    converged: bool  # whether c and x agreed in the end; always True for "paper"
    method: str  # "search" or "paper"


@dataclass(frozen=True, eq=False)
class Supremum:
    """The largest |c f - F| found on the sphere at a given scale c, and the point that has it.

    `upper` is a proven upper bound on the supremum (nan where the powers differ).
    """

    value: float  # |c f - F| at the witness
    scale: float  # c, as given
    witness: Tensor  # (dim,), of norm 1
    upper: float


def algorithm_1(
    net: PReLUNet,
    reference: PReLUNet,
    *,
    starts: int,
    steps: int,
    inputs: Tensor | None,
    fit_points: int,
    generator: torch.Generator,
) -> Distance:
    """The largest |c f - F| that ascents from uniform points of the sphere reach, as printed.

    One fitted scale c = sum_i f(x_i) F(x_i) / sum_i f(x_i)^2, on `fit_points` uniform points or on
    `inputs` (n, dim), and x <- x + 0.01 g / ||g||, projected to the sphere, with g the gradient of
    |c f - F|^2.
    """
    f, other = float64_copy(net), float64_copy(reference)
    fitted = _sphere(fit_points, net.dim, generator) if inputs is None else inputs
    with torch.no_grad():
        a, b = f(fitted), other(fitted)
    scale = max(float((a * b).sum() / (a * a).sum().clamp(min=1e-300)), 1e-300)
    x = _sphere(starts, net.dim, generator)
    one = torch.ones(starts, dtype=torch.float64)
    for _ in range(steps):
        fx, fg = f.input_gradient(x, one)
        ox, og = other.input_gradient(x, one)
        slope = (scale * fx - ox) * (scale * fg - og)
        length = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        x = unit_rows(x + _PAPER_STEP * slope / torch.where(length > 0, length, 1.0))
    with torch.no_grad():
        gaps = (scale * f(x) - other(x)).abs()
    best = int(gaps.argmax())
    none = float("nan")
    return Distance(float(gaps[best]), scale, x[best], none, none, True, "paper")


def _sphere(count: int, dim: int, generator: torch.Generator) -> Tensor:
    return unit_rows(torch.randn(count, dim, generator=generator, dtype=torch.float64))


def distance(
    net: PReLUNet,
    reference: PReLUNet,
    *,
    generator: torch.Generator,
    method: Literal["search", "paper"] = "search",
    starts: int | None = None,
    steps: int | None = None,
    fit: Dataset | None = None,
    fit_points: int = 1000,
) -> Distance:
    """dist(net, reference), by a joint search over c and x or by the paper's Algorithm 1.

    "search": f and F depend on x only through the span of their neurons, so x is sought in that
    span's coordinates, from random points and from the heaviest neurons by ascents; c is the exact
    minimiser over the points found so far, and both alternate until they agree.

    "paper": Algorithm 1 as printed: c by least squares, then normalised projected gradient ascent
    on |c f - F|^2 with steps of 0.01 from uniform points.

    Arguments:

    - `net`: f, a `PReLUNet` with one output, without biases or preparation.
    - `reference`: F, another such network, of the same dim.
    - `generator`: source of all random numbers; the same seed gives the same result.
    - `method`: "search" or "paper", see above.
    - `starts`: random points to start from; None for 100 with "search", 1000 with "paper".
    - `steps`: of each ascent; None for at most 100 with "search", 2000 with "paper".
    - `fit`: the points that "paper" finds c on, as the authors' file does; None for uniform ones.
    - `fit_points`: how many uniform points of the sphere "paper" finds c on without `fit`, 1000 by
      default.
    """
    _check.choice("method", method, ("search", "paper"))
    _check_pair(net, reference, generator)
    _check_counts(starts=starts, steps=steps, fit_points=fit_points)
    if fit is not None:
        _check.instance("fit", fit, Dataset, "be a Dataset or None")
    if method == "paper":
        return algorithm_1(
            net,
            reference,
            starts=starts or 1000,
            steps=steps or 2000,
            inputs=fit.x.double() if fit is not None else None,
            fit_points=fit_points,
            generator=generator,
        )
    return _searched(net, reference, starts, steps, generator, None)


def supremum(
    net: PReLUNet,
    reference: PReLUNet,
    *,
    scale: float,
    generator: torch.Generator,
    starts: int | None = None,
    steps: int | None = None,
) -> Supremum:
    """sup over ||x|| = 1 of |c f(x) - F(x)| at a given scale c > 0, by the search of `distance`.

    Arguments:

    - `net`: f, a `PReLUNet` with one output, without biases or preparation.
    - `reference`: F, another such network, of the same dim.
    - `scale`: c, a number above 0.
    - `generator`: source of all random numbers; the same seed gives the same result.
    - `starts`: how many random points ascents begin from; None for 100.
    - `steps`: the most steps of an ascent; None for 100.
    """
    _check_pair(net, reference, generator)
    _check_counts(starts=starts, steps=steps)
    c = _check.number("scale", scale, above=0.0)
    found = _searched(net, reference, starts, steps, generator, c)
    return Supremum(found.value, c, found.witness, found.upper)


def _searched(
    net: PReLUNet,
    reference: PReLUNet,
    starts: int | None,
    steps: int | None,
    generator: torch.Generator,
    scale: float | None,
) -> Distance:
    """The search without negligible neurons, its points judged with all of them."""
    f, other = as_sum(net), as_sum(reference)
    sums = f.without_lightest(_NEGLIGIBLE_SHARE), other.without_lightest(_NEGLIGIBLE_SHARE)
    found = search((net, reference), sums, starts or 100, steps or 100, generator, scale)
    c = found.scale
    a, b = f.value(found.points), other.value(found.points)
    gaps = (c * a - b).abs()
    best = int(gaps.argmax())
    lower = float((best_scale(a, b) * a - b).abs().max())
    bounded = f.scaled(c).without_lightest(_SUMMED_SHARE), other.without_lightest(_SUMMED_SHARE)
    summed = max(c * f.mass + other.mass - bounded[0].mass - bounded[1].mass, 0.0)
    high = difference_upper_bound(*bounded) + summed
    witness = found.points[best]
    return Distance(float(gaps[best]), c, witness, lower, high, found.converged, "search")


def _check_pair(net: PReLUNet, reference: PReLUNet, generator: object) -> None:
    _check.generator("generator", generator)
    rule = "be a one-output PReLUNet without biases or preparation"
    for name, part in (("net", net), ("reference", reference)):
        _check.instance(name, part, PReLUNet, rule)
        simple = part.outputs == 1 and part.bias is None and part.hidden_bias is None
        _check.require(simple and part.preparation.is_identity, name, rule, repr(part))
    same = net.dim == reference.dim
    _check.require(same, "reference", f"have dim {net.dim} like the network", reference.dim)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            _check.integer(name, count, minimum=1)


# Cells of the grid on the circle of two neurons.
_CIRCLE_CELLS = 8192
# The exact dual for p = 1 tries all ways in which up to this many neurons are on or off.
_MOST_SWITCHED_NEURONS = 10
# A bound is raised by this share, for what rounding may hide.
_ROUNDING_SHARE = 1e-9


def largest_on_circle(a: Tensor, b: Tensor, angle: Tensor, p: float) -> Tensor:
    """An upper bound, (n,), on max over t of a cos_+(t)^p - b cos_+(t - angle)^p; a, b > 0.

    Exact for p = 1: the maximum lies where the second neuron is silent, at height a sin(angle) (a,
    if it is silent at the first one's peak), or on the vector a u - b v where both are active.
    Otherwise the largest value on a grid, and what the difference can rise between two points of
    it: by its slope or, for p >= 2, by its curvature.
    """
    if p == 1.0:
        return _largest_for_power_1(a, b, angle)
    cell = 2.0 * math.pi / _CIRCLE_CELLS
    t = cell * torch.arange(_CIRCLE_CELLS + 1, dtype=a.dtype)
    values = a[:, None] * torch.relu(t.cos()) ** p
    values -= b[:, None] * torch.relu((t - angle[:, None]).cos()) ** p
    change = angle ** (p - 1.0) + angle if p < 2.0 else (p - 1.0) * angle
    rise = cell / 2.0 * p * ((a - b).abs() + torch.minimum(a, b) * change)
    if p >= 2.0:
        rise = torch.minimum(rise, cell**2 / 8.0 * p * (p - 1.0) * (a + b))
    return torch.relu(values.amax(1) + rise)


def _largest_for_power_1(a: Tensor, b: Tensor, angle: Tensor) -> Tensor:
    alone = a * torch.where(angle < math.pi / 2.0, angle.sin(), 1.0)
    on_first = a - b * angle.cos()  # of a u - b v along u, and along v
    on_second = a * angle.cos() - b
    both = (a * on_first - b * on_second).clamp(min=0.0).sqrt()
    return torch.where((on_first >= 0) & (on_second >= 0), torch.maximum(alone, both), alone)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Bounds H_i ||P_i x||^q: `heights` (n,), orthonormal vectors (m, dim), and their part (m,)."""

    heights: Tensor
    vectors: Tensor
    part: Tensor

    def __add__(self, other: _Parts) -> _Parts:
        return _Parts(
            torch.cat([self.heights, other.heights]),
            torch.cat([self.vectors, other.vectors]),
            torch.cat([self.part, other.part + len(self.heights)]),
        )

    def bound(self, q: float, *, weighted: bool = True) -> float:
        """A bound on sum_i H_i ||P_i x||^q over the unit ball.

        With w_i = H_i or 1 and S = sum_i w_i P_i, sum_i w_i ||P_i x||^2 is at most S's largest
        eigenvalue, and with r_i = ||P_i x|| Hölder's inequality says
        sum_i H_i r_i^q <= (sum_i (H_i w_i^(-q/2))^(2/(2-q)))^(1-q/2) (sum_i w_i r_i^2)^(q/2).
        """
        weight = self.heights if weighted else (self.heights > 0).double()
        some = weight > 0
        if not bool(some.any()):
            return 0.0
        counted = some[self.part]
        rows = weight[self.part[counted], None].sqrt() * self.vectors[counted]
        top = _largest_eigenvalue(rows)
        if q == 2.0:
            return top
        shares = (self.heights[some] * weight[some] ** (-q / 2.0)) ** (2.0 / (2.0 - q))
        return float(shares.sum()) ** (1.0 - q / 2.0) * top ** (q / 2.0)


def difference_upper_bound(f: NeuronSum, other: NeuronSum) -> float:
    """The bound on |f - F| for both as sums of one power; nan where the powers differ."""
    if f.p != other.p:
        return float("nan")
    orders = [(g, h) for g, h in ((f, other), (other, f)) if len(g.weights) >= len(h.weights)]
    found = min(_gathered_bound(*order) for order in orders)
    if f.p == 1.0:
        found = min(found, max(_switched_bound(f, other, sign) for sign in (1.0, -1.0)))
    return found * (1.0 + _ROUNDING_SHARE)


def _gathered_bound(members: NeuronSum, heads: NeuronSum) -> float:
    """A bound on |members - heads|."""
    found = gather_neurons(members, heads)
    return max(_one_sided_bound(found, heads, sign) for sign in (1.0, -1.0))


def _one_sided_bound(found: Gathered, heads: NeuronSum, sign: float) -> float:
    """A bound on sign (members - heads) from above."""
    q = min(heads.p, 2.0)
    met = found.groups.weights != 0
    pairs = _pairs(found.groups, heads, met, sign)
    unpaired = _lines(found.far.directions, torch.relu(sign * found.far.weights))
    unpaired += _lines(heads.directions[~met], torch.relu(-sign * heads.weights[~met]))
    heights = torch.relu(sign * found.heights)
    if q == 2.0:
        return (pairs + unpaired + _lines(found.off, heights)).bound(q)
    main = [(pairs + unpaired).bound(q, weighted=weighted) for weighted in (True, False)]
    if q == 1.0:
        main.append(_switched_bound(found.neurons, heads, sign))
    # A sum of few or small heights is bounded well enough by itself.
    rest = float(heights.sum())
    return min(main) + (_lines(found.off, heights).bound(q) if rest > 1e-3 * min(main) else rest)


def _switched_bound(members: NeuronSum, heads: NeuronSum, sign: float) -> float:
    """sup of sign (members - heads) over the unit ball for p = 1, inf where it has many neurons.

    With positive parts a_j u_j and negative ones b_k m_k it is the maximum over s in {0, 1}^n of
    the minimum over l in [0, 1]^m of ||sum_j s_j a_j u_j - sum_k l_k b_k m_k||, by duality, and any
    l proves an upper bound.
    """
    weights = sign * torch.cat([members.weights, -heads.weights])
    vectors = weights.abs()[:, None] * torch.cat([members.directions, heads.directions])
    positive, negative = vectors[weights > 0], vectors[weights < 0]
    count = len(positive)
    if count > _MOST_SWITCHED_NEURONS or len(negative) > 4 * _MOST_SWITCHED_NEURONS:
        return float("inf")
    on = torch.arange(2**count)[:, None] >> torch.arange(count) & 1
    ends = shortest_residual(on.double() @ positive, negative, cycles=50)
    return float(torch.linalg.vector_norm(ends, dim=1).max())


def _pairs(groups: NeuronSum, heads: NeuronSum, met: Tensor, sign: float) -> _Parts:
    """Each group's neuron against the one it is near to, on the plane of both."""
    u, mu = groups.directions[met], heads.directions[met]
    a, b = groups.weights[met].abs(), heads.weights[met].abs()
    along = (u * mu).sum(1, keepdim=True)
    across = u - along * mu
    sine = torch.linalg.vector_norm(across, dim=1, keepdim=True)
    angle = torch.atan2(sine, along).squeeze(1)
    ours = sign * heads.weights[met] > 0
    heights = largest_on_circle(torch.where(ours, a, b), torch.where(ours, b, a), angle, heads.p)
    vectors = torch.cat([mu, across / torch.where(sine > 0, sine, 1.0)])
    return _Parts(heights, vectors, torch.arange(len(heights)).repeat(2))


def _lines(vectors: Tensor, heights: Tensor) -> _Parts:
    return _Parts(heights, unit_rows(vectors), torch.arange(len(heights)))


def _largest_eigenvalue(rows: Tensor) -> float:
    """That of rows^T rows."""
    gram = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    return float(torch.linalg.eigvalsh(gram)[-1])
