"""The directions that small neurons turn to: the attractors of the alignment flow.

Weights of fixed directions at the end of training: the largest margin for a given total.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as option
from typing import Literal

import torch
from torch import Tensor

from extremal import _check
from extremal.data import Dataset
from extremal.measure.fixed_points.alignment_field import AlignmentField, unit
from extremal.measure.fixed_points.fixed_point_search import FixedPoints, search
from extremal.models import Explicit, PReLUNet, relu_power


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


_PUSH = {"exp": 1.0, "logistic": 0.5}  # -l'(0)
_KEPT = 8  # eigenvalues reported


@dataclass(frozen=True, eq=False)
class ExtremalDirections:
    """The directions found, first those of positive neurons, each sign by falling basin.

    `directions` (m, dim) are of norm 1, `sign` (m,) is that of the votes of the neurons they
    attract, and `growth` (m,) = s g is the rate of log ||w|| there. `basin` (m,) is the share of
    all starts of that sign that end there; with `dead` (of the positive, of the negative) the
    shares of a sign add up to 1. `residual` (m,) is |P G|/|G|.

    `eigenvalues` (m, k), falling, are the largest of the flow's linearisation, the Hessian of s g
    on the sphere (-inf along a kink); `stable` (m,) says that none is positive beyond
    `flat` p |growth|, and `continuum` (m,) how many are zero to within that: the dimension of a
    family of equally good directions, of which one is listed.

    `kinks` (m,) counts the opposing samples that hold the neuron at <x_i, u> = 0, active in part
    (p = 1 only); `touching` (m,) the own samples (p < 2) whose <x_i, u> tends to 0 from below: such
    a point has a basin and is yet unstable, with eigenvalues +inf, as any noise would activate
    them.

    `fate` (2, starts) is the row that each start ended in as a positive and as a negative neuron,
    -1 for dead; `cut` (positive, negative) is the share of starts whose flow had not arrived when
    its steps were used up: Newton's method decided them.
    """

    directions: Tensor
    sign: Tensor
    growth: Tensor
    basin: Tensor
    eigenvalues: Tensor
    stable: Tensor
    continuum: Tensor
    kinks: Tensor
    touching: Tensor
    residual: Tensor
    fate: Tensor
    dead: tuple[float, float]
    cut: tuple[float, float]
    p: float  # the power of the activation
    flat: float  # the size, as a share of p |growth|, up to which an eigenvalue counts as zero
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
        lines = [f"Extremal directions for p = {self.p:g}, {self.fate.shape[1]} starts each sign"]
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
        if self.cut[row] > 0:
            tail += f" {100 * self.cut[row]:.1f} % had not arrived."
        if not len(own):
            return f"{name}: no direction; {tail}"
        growth, basin = self.growth[own], self.basin[own]
        parts = [_count(len(own), "direction")]
        unstable = int((~self.stable[own]).sum())
        if unstable:
            parts.append(f"{unstable} of them unstable")
        if bool((self.touching[own] > 0).any()):
            one_sided = int((self.touching[own] > 0).sum())
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
    flat: float = 1e-6,
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
    - `flat`: the size, as a share of p |growth|, up to which an eigenvalue counts as zero.
    - `generator`: source of all random numbers; the same seed gives the same result.
    """
    p, flat = _check_settings(data, p, starts, subset, flat, generator)
    _check.choice("loss", loss, tuple(_PUSH))
    first = _starts(starts, data.dim, generator)
    with torch.no_grad():
        thin = torch.arange(len(data))
        if subset is not None and len(data) > subset:
            thin = torch.randperm(len(data), generator=generator)[:subset]
        field = AlignmentField(data.x, _PUSH[loss] * data.y.double() / len(data), p, _width(data))
        found = search(field, first, thin, flat)
    return _result(found, p, flat, data)


def _result(found: FixedPoints, p: float, flat: float, data: Dataset) -> ExtremalDirections:
    """Rows sorted by sign and basin, and what became of each start."""
    hits = [int((found.fate == j).sum()) for j in range(len(found.points))]
    signs = [int(point.sign) for point in found.points]
    order = sorted(range(len(hits)), key=lambda j: (-signs[j], -hits[j]))
    points = [found.points[j] for j in order]
    fate = torch.full_like(found.fate, -1)
    for row, j in enumerate(order):
        fate[found.fate == j] = row
    numbers = {
        "growth": [point.growth for point in points],
        "basin": [hits[j] / found.fate.shape[1] for j in order],
        "residual": [point.residual for point in points],
    }
    whole = {
        "sign": [signs[j] for j in order],
        "continuum": [point.flats(flat) for point in points],
        "kinks": [point.kinks for point in points],
        "touching": [point.touching for point in points],
    }
    kept = min(_KEPT, max(data.dim - 1, 1))
    eigenvalues = torch.full((len(points), kept), -torch.inf, dtype=torch.float64)
    for row, point in enumerate(points):
        eigenvalues[row, : len(point.eigenvalues)] = point.eigenvalues[:kept]
    return ExtremalDirections(
        directions=found.lifted()[order] if points else eigenvalues.new_zeros(0, data.dim),
        eigenvalues=eigenvalues,
        stable=torch.tensor([point.stable(flat) for point in points], dtype=torch.bool),
        fate=fate,
        dead=_shares(found.fate < 0),
        cut=_shares(found.cut),
        p=p,
        flat=flat,
        data=data,
        **{name: torch.tensor(part, dtype=torch.float64) for name, part in numbers.items()},
        **{name: torch.tensor(part, dtype=torch.int64) for name, part in whole.items()},
    )


def _shares(mask: Tensor) -> tuple[float, float]:
    first, second = mask.double().mean(1).tolist()
    return first, second


def _check_settings(
    data: object, p: object, starts: object, subset: object, flat: object, generator: object
) -> tuple[float, float]:
    _check.instance("data", data, Dataset, "be a Dataset")
    assert isinstance(data, Dataset)
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
    return _check.number("p", p, minimum=1.0), _check.number("flat", flat, above=0.0, maximum=0.5)


def _starts(starts: int | Tensor, dim: int, generator: torch.Generator) -> Tensor:
    if isinstance(starts, Tensor):
        return unit(starts.detach().double())
    return unit(torch.randn(starts, dim, generator=generator, dtype=torch.float64))


def _width(data: Dataset) -> float:
    """The width of softened kinks: small beside the products of a random direction and a sample."""
    norms = data.x.double().square().sum(1).mean().sqrt()
    return float(norms) * min(3e-3, 0.03 / data.dim**0.5)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _range(values: Tensor) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if high - low <= 1e-4 * abs(high) else f"{low:.4g} to {high:.4g}"
