"""The distance between a network and a classifier, up to scale.

dist(f, F) = inf over c > 0 of sup over ||x|| = 1 of |c f(x) - F(x)|, Min & Vidal 2024, Section 5.1:
by a search of our own, and by Algorithm 1 of the paper as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.measure.classifier_distance.distance_search import best_scale, search
from extremal.measure.classifier_distance.distance_upper_bound import difference_upper_bound
from extremal.measure.classifier_distance.network_difference import as_sum
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

    `value` is |c f - F| at the witness, the largest that was found. `lower` is a proven lower bound
    on the distance by the same points: the least over c of the largest difference on all points
    that the search found (nan for the paper's algorithm, which fixes c beforehand). `upper` is a
    proven upper bound on the supremum at c, and so on the distance (nan where the two networks have
    different powers, and for the paper's algorithm).
    """

    value: float
    scale: float  # c, above 0
    witness: Tensor  # (dim,), of norm 1
    lower: float
    upper: float
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
    assert isinstance(f, PReLUNet)
    assert isinstance(other, PReLUNet)
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
    span's coordinates, from `starts` random points (100) and from the heaviest neurons, by ascents
    of at most `steps` steps (100); c is the exact minimiser over the points found so far, and both
    alternate until they agree.

    "paper": Algorithm 1 as printed: c by least squares on `fit_points` uniform points of the sphere
    (or on the points of `fit`, as the authors' file does), then normalised projected gradient
    ascent on |c f - F|^2 with steps of 0.01 (`steps` = 2000 from `starts` = 1000 uniform points).

    Arguments:

    - `net`: f, a `PReLUNet` with one output, without biases or preparation.
    - `reference`: F, another such network, of the same dim.
    - `generator`: source of all random numbers; the same seed gives the same result.
    - `method`: "search" or "paper", see above.
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
