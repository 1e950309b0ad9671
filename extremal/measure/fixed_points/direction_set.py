"""The directions that small neurons turn to: the attractors of the alignment flow.

With the weights of these directions at the end of training: the largest margin for a given total.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as option
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.measure.fixed_points.alignment_field import AlignmentField
from extremal.measure.fixed_points.fixed_point_search import FixedPoints, search
from extremal.models import Explicit, PReLUNet, relu_power

# The size -l'(0) of each loss's slope where a network is still about 0.
_SLOPE_AT_ZERO = {"exp": 1.0, "logistic": 0.5}
# How many of the largest eigenvalues are reported.
_REPORTED_EIGENVALUES = 8


def largest_margin(margins: Tensor) -> tuple[Tensor, float]:
    """The c >= 0 with sum 1 that maximises min_i (A c)_i, and that minimum, for A (n, m).

    A linear program, the value of a matrix game. Where the best c is not unique it is any of them.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - it takes as long as all of the package

    count, width = margins.shape
    unit = float(margins.abs().max()) or 1.0
    found = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=np.column_stack([-margins.numpy() / unit, np.ones(count)]),
        b_ub=np.zeros(count),
        A_eq=np.append(np.ones(width), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * width + [(None, None)],
    )
    c = torch.from_numpy(found.x[:width]).clamp(min=0.0)
    c = c / c.sum()
    return c, float((margins @ c).min())


def least_loss(margins: Tensor) -> Tensor:
    """The c >= 0 of least mean exp(-A c), A (n, m), for margins that no c makes all positive.

    Where the least is not attained (a weight that never hurts may grow for ever) the weights stop
    where the loss no longer falls by 1e-12.
    """
    from scipy.optimize import minimize  # noqa: PLC0415

    unit = float(margins.abs().max()) or 1.0
    a = margins.numpy() / unit

    def loss_and_slope(c: Any) -> tuple[float, Any]:
        each = np.exp(-(a @ c)) / len(a)
        return float(each.sum()), -(a.T @ each)

    bounds = [(0.0, None)] * a.shape[1]
    exact = {"ftol": 1e-12, "gtol": 1e-10, "maxiter": 10_000}
    first = np.full(a.shape[1], 0.1)
    found = minimize(
        loss_and_slope, first, jac=True, bounds=bounds, method="L-BFGS-B", options=exact
    )
    return torch.from_numpy(found.x) / unit


@dataclass(frozen=True, eq=False)
class ExtremalDirections:
    """The directions found, first those of positive neurons, each sign by falling basin.

    `directions` (m, dim) are of norm 1, `sign` (m,) is that of the votes of the neurons they
    attract, and `growth` (m,) = s g is the rate of log ||w|| there. `basin` (m,) is the share of
    all starts of that sign that end there; with `dead` (of the positive, of the negative) the
    shares of a sign add up to 1. `residual` (m,) is |P G|/|G|.

    `eigenvalues` (m, k), falling, are the largest of the flow's linearisation, the Hessian of s g
    on the sphere (-inf along a kink); `stable` (m,) says that none is positive beyond
    1e-6 p |growth|, and `continuum` (m,) how many are zero to within that: the dimension of a
    family of equally good directions, of which one is listed.

    `kinks` (m,) counts the opposing samples that hold the neuron at <x_i, u> = 0, active in part
    (p = 1 only); `one_sided` (m,) the own samples (p < 2) whose <x_i, u> tends to 0 from below:
    such a point has a basin and is yet unstable, with eigenvalues +inf, as any noise would activate
    them.

    `reached_row` (2, starts) is the row that each start ended in as a positive and as a negative
    neuron, -1 for dead; `unfinished` (positive, negative) is the share of starts whose flow had not
    arrived when its steps were used up: Newton's method decided them.
    """

    directions: Tensor
    sign: Tensor
    growth: Tensor
    basin: Tensor
    eigenvalues: Tensor
    stable: Tensor
    continuum: Tensor
    kinks: Tensor
    one_sided: Tensor
    residual: Tensor
    reached_row: Tensor
    dead: tuple[float, float]
    unfinished: tuple[float, float]
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
        minimises the mean exponential loss. A continuum enters by the one direction listed for it,
        which for p = 2 is a choice that the theory does not make.
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

    Both signs are followed from `starts` uniform directions each (or from the rows of a tensor), in
    the dtype of the data and in the coordinates of their span, with controlled steps, so that
    basins are those of the flow; data of more than `subset` points are thinned to that many at
    random for this (None: never), after which all data decide. Ends within an angle of 1e-3
    (3e-3 for p < 2) are merged, then made exact in float64 by Newton's method, for p = 1 by the
    pattern of active samples; starts that came to rest at an unstable point are pushed off and go
    on. Starts that activate no sample, or are driven out of all that they activate, are dead.
    Unstable fixed points are not sought.

    Arguments:

    - `data`: a `Dataset` with labels -1 / +1.
    - `p`: the power of the activation, at least 1.
    - `loss`: "exp" or "logistic", see above.
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
