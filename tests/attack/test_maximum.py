"""Steepest directions, linear maxima and random points of balls and boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import kstest

from extremal.attack import Ball
from tests.attack.balls import BOXES, NORMS, feasible, make_ball, make_points

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


@pytest.mark.parametrize("norm", NORMS)
def test_samples_without_a_box_are_uniform(norm):
    """(||d||/r)^dim is uniform on [0, 1], and coordinates have the variances of a uniform ball."""
    count, dim = 4000, 5
    x = torch.zeros(count, dim, dtype=torch.float64)
    g = torch.Generator().manual_seed(3)
    d = Ball(norm, 2.0).sample(x, generator=g)
    share = (Ball(norm, 2.0).norms(d) / 2.0) ** dim
    assert kstest(share.numpy(), "uniform").pvalue > 1e-3
    variance = {  # of a coordinate, radius 1
        "l2": 1 / (dim + 2),
        "linf": 1 / 3,
        "l1": 2 / ((dim + 1) * (dim + 2)),
    }[norm]
    np.testing.assert_allclose(d.var(0).numpy() / 4.0, variance, rtol=0.1)
    assert bool((d.mean(0).abs() < 5 * 2.0 * (variance / count) ** 0.5).all())


def test_linf_samples_with_a_box_are_uniform_in_what_is_left():
    x = torch.full((4000, 1), 0.9, dtype=torch.float64)
    g = torch.Generator().manual_seed(4)
    d = Ball("linf", 0.5, (0.0, 1.0)).sample(x, generator=g)
    assert kstest(((d + 0.5) / 0.6).squeeze(1).numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("norm", NORMS)
def test_samples_are_inside_and_repeat(norm, box, generator):
    x = make_points(box, 30, 8, generator)
    ball = make_ball(norm, box, 30, 8)
    draws = [ball.sample(x, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert feasible(ball, draws[0], x)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_without_blocked_leaves_out_what_the_box_holds():
    x = torch.tensor([[0.0, 1.0, 0.5, 1.0]], dtype=torch.float64)
    ball = Ball("l1", 1.0, (0.0, 1.0))
    delta = torch.tensor([[0.0, 0.0, 0.5, -0.2]], dtype=torch.float64)
    gradient = torch.tensor([[-3.0, 2.0, 4.0, 5.0]], dtype=torch.float64)
    wanted = torch.tensor([[0.0, 0.0, 0.0, 5.0]], dtype=torch.float64)
    assert torch.equal(ball.without_blocked(gradient, delta, x), wanted)
    assert torch.equal(ball.without_blocked(-gradient, delta, x)[0, :3], -gradient[0, :3])
    assert Ball("l1", 1.0).without_blocked(gradient, delta, x) is gradient


def test_without_blocked_counts_room_left_by_rounding_as_none():
    """A projection may stop a few float32 spacings short of the face; a steepest l1 step that goes
    on pushing there would stand still for ever."""
    x = torch.full((1, 2), 0.5)
    ball = Ball("l1", 0.7, (0.0, 1.0))
    delta = torch.tensor([[0.5 * (1 - 5e-7), 0.2]])
    gradient = torch.tensor([[2.0, 1.0]])
    assert torch.equal(ball.without_blocked(gradient, delta, x), torch.tensor([[0.0, 1.0]]))
