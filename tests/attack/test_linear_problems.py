"""Steepest directions, linear maxima and smallest moves in balls and boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from extremal.attack import Ball
from extremal.attack.linear_problems import smallest_move
from tests.attack.balls import BOXES, NORMS, feasible, make_ball, make_box, make_points
from tests.certify.oracles import least_norm

DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}
ORDER = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", NORMS)
def test_steepest_reaches_the_dual_norm(norm, dtype, generator):
    g = torch.randn(20, 7, generator=generator, dtype=dtype)
    g[3] = 0.0
    g[4] *= 1e-30  # its squares underflow in float32
    d = Ball(norm, 1.0).steepest(g)
    size = torch.linalg.vector_norm(d, ORDER[norm], dim=1)
    assert torch.equal(d[3], torch.zeros(7, dtype=dtype))
    alive = torch.arange(20) != 3
    torch.testing.assert_close(size[alive], torch.ones(19, dtype=dtype))
    dual = torch.linalg.vector_norm(g.double(), DUAL[norm], dim=1)
    torch.testing.assert_close((g.double() * d.double()).sum(1), dual, rtol=1e-5, atol=0)


def test_steepest_l1_shares_ties():
    g = torch.tensor([[2.0, -2.0, 1.0], [0.0, -3.0, 1.0]])
    wanted = torch.tensor([[0.5, -0.5, 0.0], [0.0, -1.0, 0.0]])
    assert torch.equal(Ball("l1", 1.0).steepest(g), wanted)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_linear_maximum_against_linprog(norm, box, generator):
    count, dim = 10, 9
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    g = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    g[:, 2] = 0.0
    d = ball.linear_maximum(g, x)
    assert feasible(ball, d, x)
    assert not d[:, 2].any()
    bounds = ball.bounds(x)
    for i in range(count):
        radius = float(ball.radius[i])
        if bounds is None:
            low, high = np.full(dim, -radius), np.full(dim, radius)
        else:
            low = np.maximum(bounds[0][i].numpy(), -radius)
            high = np.minimum(bounds[1][i].numpy(), radius)
        c = g[i].numpy()
        if norm == "linf":
            found = linprog(-c, bounds=list(zip(low, high, strict=True)))
        else:  # d = u - v
            parts = [(0.0, top) for top in high] + [(0.0, -bottom) for bottom in low]
            every = np.ones((1, 2 * dim))
            found = linprog(np.concatenate([-c, c]), A_ub=every, b_ub=[radius], bounds=parts)
        np.testing.assert_allclose(float(g[i] @ d[i]), -found.fun, atol=1e-9)


@pytest.mark.parametrize("box", BOXES)
def test_linear_maximum_l2_satisfies_its_optimality_condition(box, generator):
    """With d_i free where it is off the box's faces: d_free = t g_free, and |t g_i| >= room."""
    count, dim = 12, 15
    x = make_points(box, count, dim, generator)
    ball = make_ball("l2", box, count, dim)
    g = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    d = ball.linear_maximum(g, x)
    assert feasible(ball, d, x)
    bounds = ball.bounds(x)
    tight = 0
    for i in range(count):
        if bounds is None:
            free = torch.ones(dim, dtype=torch.bool)
        else:
            room = torch.where(g[i] > 0, bounds[1][i], -bounds[0][i])
            free = d[i].abs() < room - 1e-12
            filled = not bool(free.any())
        if bounds is not None and filled:
            assert float(d[i].norm()) <= float(ball.radius[i])
            continue
        tight += 1
        ratio = d[i][free] / g[i][free]
        t = float(ratio.mean())
        np.testing.assert_allclose(ratio.numpy(), t, rtol=1e-10)
        np.testing.assert_allclose(float(d[i].norm()), float(ball.radius[i]), rtol=1e-12)
        assert bool((t * g[i][~free].abs() >= d[i][~free].abs() - 1e-12).all())
    assert tight >= count // 2


@pytest.mark.parametrize(("norm", "box"), [(norm, box) for norm in NORMS for box in BOXES])
def test_linear_maximum_beats_random_points(norm, box, generator):
    count, dim = 5, 3
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    g = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    best = (g * ball.linear_maximum(g, x)).sum(1)
    tried = torch.stack([(g * ball.sample(x, generator=generator)).sum(1) for _ in range(500)])
    assert bool((best >= tried.amax(0)).all())
    assert bool((best <= 1.5 * tried.amax(0) + 1e-3).all())  # three dimensions: a draw comes near


@pytest.mark.parametrize("norm", NORMS)
def test_linear_maximum_where_the_box_is_smaller_than_the_ball(norm, generator):
    x = make_points("numbers", 4, 6, generator)
    g = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    g[:, 1] = 0.0
    d = Ball(norm, 100.0, (0.0, 1.0)).linear_maximum(g, x)
    wanted = torch.where(g > 0, 1 - x, torch.where(g < 0, -x, 0.0))
    torch.testing.assert_close(d, wanted, rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("norm", NORMS)
def test_smallest_move_against_linear_and_quadratic_programs(norm, kind, generator):
    dim, count = 5, 25
    x = make_points(kind, count, dim, generator)
    gradient = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    gradient[::4, 0] = 0.0
    gradient[1::5] *= 1e-6
    box = make_box(kind, dim)
    bounds = None if box is None else tuple(torch.as_tensor(end).double() - x for end in box)
    most = (
        gradient.abs().sum(1)
        if box is None
        else (torch.maximum(gradient * bounds[0], gradient * bounds[1]).sum(1))
    )
    share = torch.rand(count, generator=generator, dtype=torch.float64)
    need = share * most
    d = smallest_move(gradient, need, norm, bounds)
    for i in range(count):
        g, h = (
            [gradient[i].numpy() / gradient[i].abs().max().numpy()],
            [need[i] / gradient[i].abs().max()],
        )
        if box is not None:
            g += [*np.eye(dim), *-np.eye(dim)]
            h += [*bounds[0][i].tolist(), *(-bounds[1][i]).tolist()]
        exact = least_norm(np.array(g), np.array(h, dtype=float), norm)
        size = np.linalg.norm(d[i].numpy(), float(ORDER[norm]))
        assert size == pytest.approx(exact, rel=1e-7, abs=1e-9)
        assert float(gradient[i] @ d[i]) >= float(need[i]) * (1 - 1e-10) - 1e-15
        if box is not None:
            assert bool(((d[i] >= bounds[0][i]) & (d[i] <= bounds[1][i])).all())


@pytest.mark.parametrize("norm", NORMS)
def test_what_cannot_be_reached_fills_the_box(norm, generator):
    gradient = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    bounds = (torch.full((8, 4), -0.3).double(), torch.full((8, 4), 0.7).double())
    d = smallest_move(gradient, torch.full((8,), 1e3).double(), norm, bounds)
    assert torch.equal(d, torch.where(gradient > 0, bounds[1], bounds[0]))


@pytest.mark.parametrize("norm", NORMS)
def test_smallest_move_is_zero_where_nothing_is_needed(norm, generator):
    gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    gradient[0] = 0.0
    need = torch.tensor([1.0, 0.0, -1.0, -5.0]).double()
    assert float(smallest_move(gradient, need, norm, None).abs().max()) == 0.0
