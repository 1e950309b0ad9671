"""Minimal radii by means that share nothing with attacks and certificates.

`by_patterns` is exact for p = 1: it visits every activation pattern. `by_rays` is brute force for
up to four dimensions: many directions, the first crossing along each, and local search from the
best.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.optimize import linprog, nnls
from torch import Tensor

from extremal.models import PReLUNet, as_two_layer_form, output_margins

ORDER = {"l1": 1, "l2": 2, "linf": np.inf}
ENOUGH_CROSSINGS = 12  # directions from which the local search of `by_rays` begins
HALVINGS = 16  # of a ray: to 2e-5 of it, far below the thousandth that tests ask for


def by_patterns(net: PReLUNet, x: Tensor, label: int, norm: str, box=None) -> float:
    """The distance of one point x (dim,) to the nearest d with margin <= 0, for p = 1.

    Within a pattern of active neurons every pre-activation and margin is affine in d: the distance
    is a linear program (l1, linf) or a least-distance problem (l2), and the least over patterns and
    targets is the answer.
    """
    form = as_two_layer_form(net)
    assert form is not None
    assert form.p == 1.0
    assert form.preparation.normalize == 0.0
    own = int(form.classes(torch.tensor([label])))
    rows = (form.directions * form.preparation.scale).numpy()
    s = form.preparation.scaled_offset(x[None]) @ form.directions.T
    s = (s if form.offsets is None else s + form.offsets)[0].numpy()
    weights, constant = form.weights.numpy(), form.constant.numpy()
    limits = _box_rows(x, box)
    best = np.inf
    for pattern in product((0.0, 1.0), repeat=len(s)):
        on = np.array(pattern)
        sign = 2.0 * on - 1.0
        for target in range(len(weights)):
            if target == own:
                continue
            a = (weights[own] - weights[target]) * on
            value = a @ s + constant[own] - constant[target]
            # G d >= h: signs are as the pattern says, and the margin is at most 0.
            g = np.vstack([sign[:, None] * rows, -(a @ rows)[None], limits[0]])
            h = np.concatenate([-sign * s, [value], limits[1]])
            best = min(best, least_norm(g, h, norm))
    return best


def least_norm(g: np.ndarray, h: np.ndarray, norm: str) -> float:
    """min ||d|| over G d >= h, inf where there is none."""
    if norm != "l2":
        return _least_linear(g, h, norm)
    size = np.linalg.norm(g, axis=1)
    keep = size > 1e-14
    if (h[~keep] > 1e-12).any():
        return np.inf
    g, h = g[keep] / size[keep, None], h[keep] / size[keep]
    scale = max(1e-300, np.abs(h).max())
    # Lawson & Hanson 1974, chapter 23: least distance programming by non-negative least squares.
    system = np.vstack([g.T, h[None] / scale])
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    u, _ = nnls(system, goal, maxiter=1000)
    r = system @ u - goal
    if -r[-1] < 1e-12:
        return np.inf
    d = -scale * r[:-1] / r[-1]
    return float(np.linalg.norm(d)) if (g @ d >= h - 1e-7 * scale).all() else np.inf


def _least_linear(g: np.ndarray, h: np.ndarray, norm: str) -> float:
    dim = g.shape[1]
    eye = np.eye(dim)
    if norm == "linf":  # d, t: -t <= d <= t
        sides, cost = -np.ones((dim, 1)), np.r_[np.zeros(dim), 1.0]
    else:  # d, t_i: -t_i <= d_i <= t_i
        sides, cost = -eye, np.r_[np.zeros(dim), np.ones(dim)]
    a = np.block([[-g, np.zeros((len(g), sides.shape[1]))], [eye, sides], [-eye, sides]])
    b = np.r_[-h, np.zeros(2 * dim)]
    found = linprog(cost, a, b, bounds=(None, None), method="highs")
    return float(found.fun) if found.status == 0 else np.inf


def _box_rows(x: Tensor, box) -> tuple[np.ndarray, np.ndarray]:
    dim = len(x)
    if box is None:
        return np.zeros((0, dim)), np.zeros(0)
    low, high = (torch.as_tensor(end, dtype=x.dtype).expand(dim) for end in box)
    return np.vstack([np.eye(dim), -np.eye(dim)]), np.r_[(low - x).numpy(), (x - high).numpy()]


def by_rays(net, x: Tensor, label: int, norm: str, box=None, *, farthest: float) -> float:
    """The smallest radius found for one point x (dim,), dim <= 4, by brute force; inf beyond
    `farthest`. Whatever it returns is the norm of a broken point, to a bisection."""
    generator = torch.Generator().manual_seed(5)
    directions = _directions(len(x), norm, generator)
    radii = torch.linspace(0.0, farthest, 61, dtype=x.dtype)[1:]

    def moves(toward: Tensor, radius: Tensor) -> Tensor:
        """Perturbations (n, dim) along directions, clipped to the box."""
        d = toward * radius[:, None]
        return d if box is None else (x + d).clamp(*box) - x

    def broken(d: Tensor) -> Tensor:
        with torch.no_grad():
            return output_margins(net(x + d), torch.full((len(d),), label)) <= 0

    def crossing(toward: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The norms of the perturbations after bisection between safe `low` and broken `high`."""
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            bad = broken(moves(toward, middle))
            low, high = torch.where(bad, low, middle), torch.where(bad, middle, high)
        return torch.linalg.vector_norm(moves(toward, high), ORDER[norm], dim=1)

    step, left, toward, hit = radii[0], directions, directions[:0], radii[:0]
    for radius in radii:
        bad = broken(moves(left, radius.expand(len(left))))
        toward, left = torch.cat([toward, left[bad]]), left[~bad]
        hit = torch.cat([hit, radius.expand(int(bad.sum()))])
        # Without a box later directions cross farther out.
        if len(left) == 0 or (box is None and len(hit) >= ENOUGH_CROSSINGS):
            break
    if len(hit) == 0:
        return float("inf")
    size = crossing(toward, hit - step, hit)
    order = size.argsort()[:ENOUGH_CROSSINGS]
    toward, size = toward[order], size[order]
    for spread in 0.3 * 0.7 ** torch.arange(20):
        noise = torch.randn(24, *toward.shape, generator=generator, dtype=x.dtype)
        noise *= torch.rand(noise.shape, generator=generator) < 0.6  # along some coordinates only
        new = _unit((toward + float(spread) * noise).flatten(0, 1), norm)
        bound = size.repeat(24)
        rows = torch.nonzero(broken(moves(new, bound))).squeeze(1)
        if len(rows) == 0:
            continue
        place = rows % len(toward)
        better = crossing(new[rows], torch.zeros_like(bound[rows]), bound[rows])
        for where in place.unique().tolist():
            some = torch.nonzero(place == where).squeeze(1)
            best = some[better[some].argmin()]
            if better[best] < size[where]:
                size[where], toward[where] = better[best], new[rows[best]]
    return float(size.min())


def _directions(dim: int, norm: str, generator: torch.Generator) -> Tensor:
    if dim == 1:
        return torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    count = {2: 400, 3: 1200, 4: 2500}[dim]
    drawn = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    corners = torch.tensor(list(product((-1.0, 0.0, 1.0), repeat=dim)), dtype=torch.float64)
    return _unit(torch.cat([drawn, corners[corners.abs().sum(1) > 0]]), norm)


def _unit(rows: Tensor, norm: str) -> Tensor:
    return rows / torch.linalg.vector_norm(rows, ORDER[norm], dim=1, keepdim=True).clamp(min=1e-12)
