"""Smallest moves to convex boundaries, against scipy's solver and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from extremal.attack.two_layer.interior_point import (
    ConvexBoundary,
    smallest_to_convex,
)
from tests.attack.balls import NORMS

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}


def boundary_of(neurons, values, level, slope, p):
    """||relu(values + neurons d)||_p <= level + <slope, d>, one problem."""
    h, n = neurons.shape
    lifted = torch.cat([neurons, torch.zeros(h, 1).double()], 1)
    one = torch.ones(1, h, dtype=torch.float64)
    last = torch.zeros(1, n, dtype=torch.float64)
    return ConvexBoundary(p, lifted, last, one, values[None], level[None], slope[None])


def by_scipy(neurons, values, level, slope, p, norm, bounds):
    """The least norm, by SLSQP; in l1 and linf with unknowns of their own."""
    u, s, b, c = (part.numpy() for part in (neurons, values, slope, level))
    n = u.shape[1]
    box = [(None, None)] * n if bounds is None else list(zip(*bounds, strict=True))

    def inside(w):
        return c + b @ w[:n] - np.linalg.norm(np.maximum(s + u @ w[:n], 0.0) + 1e-12, p)

    rules = [{"type": "ineq", "fun": inside}]
    first, extra = np.full(n, 1e-3), {"l2": 0, "linf": 1, "l1": n}[norm]
    if extra:
        rules.append({"type": "ineq", "fun": lambda w: w[n:] - w[:n]})
        rules.append({"type": "ineq", "fun": lambda w: w[n:] + w[:n]})
    aim = (lambda w: w @ w) if norm == "l2" else (lambda w: w[n:].sum())
    found = minimize(
        aim,
        np.concatenate([first, np.ones(extra)]),
        bounds=box + [(0, None)] * extra,
        constraints=rules,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert inside(found.x) > -1e-6
    return np.linalg.norm(found.x[:n], ORDERS[norm])


@pytest.mark.parametrize("boxed", [False, True], ids=["free", "box"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 6.0])
def test_the_solution_is_that_of_scipy(p, norm, boxed, generator):
    for _ in range(3):
        neurons, values, slope = (
            torch.randn(*shape, generator=generator, dtype=torch.float64)
            for shape in ((5, 3), (5,), (3,))
        )
        gap = 0.5 * torch.linalg.vector_norm(torch.relu(values), p) + 0.2
        level = torch.linalg.vector_norm(torch.relu(values), p) - gap
        slope = 3.0 * slope / slope.norm()
        # Bounds that cut the solution of the free problem, and leave one.
        bounds = [-0.9 * np.ones(3), 0.9 * np.ones(3)] if boxed else None
        limits = tuple(torch.tensor(end)[None] for end in bounds) if boxed else None
        boundary = boundary_of(neurons, values, level, slope, p)
        start = torch.zeros(1, 3, dtype=torch.float64)
        d = smallest_to_convex(boundary, norm, limits, start, 40, 0.3)[0]
        size = torch.linalg.vector_norm(torch.relu(values + neurons @ d), p)
        excess = float(size - level - slope @ d)
        try:
            best = by_scipy(neurons, values, level, slope, p, norm, bounds)
        except AssertionError:
            assert excess > -1e-6  # nothing is below the line
            continue
        assert excess < 1e-5
        assert float(torch.linalg.vector_norm(d, ORDERS[norm])) == pytest.approx(best, rel=1e-3)


def test_one_neuron_is_a_half_space(generator):
    """relu(1 + <u, d>) <= 1/2 at d = -u / (2 ||u||^2)."""
    u = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    boundary = boundary_of(u, one, 0.5 * one[0], torch.zeros(4).double(), 1.0)
    start = torch.zeros(1, 4, dtype=torch.float64)
    d = smallest_to_convex(boundary, "l2", None, start, 30, 0.1)
    torch.testing.assert_close(d, -0.5 * u / (u @ u.T), rtol=1e-5, atol=1e-6)
