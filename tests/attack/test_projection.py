"""Projections against a generic convex solver, a root finder and their optimality condition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, NonlinearConstraint, brentq, minimize

from extremal.attack import Ball
from extremal.attack.projection import falling_order
from tests.attack.balls import BOXES, NORMS, feasible, make_ball, make_points

EVERY = [(norm, box) for norm in NORMS for box in BOXES]


def solve(delta, norm, radius, low, high):
    """argmin of ||d - delta|| by SLSQP; l1 through d = u - v with u, v >= 0."""
    dim = len(delta)
    bounds = list(zip(low, high, strict=True))
    settings = {"method": "SLSQP", "options": {"ftol": 1e-16, "maxiter": 2000}}
    if norm == "linf":
        bounds = [(max(a, -radius), min(b, radius)) for a, b in bounds]
        settings["constraints"] = []
    elif norm == "l2":
        ball = NonlinearConstraint(lambda d: radius**2 - d @ d, 0, np.inf, jac=lambda d: -2 * d)
        settings["constraints"] = [ball]
    else:
        parts = [(0.0, max(b, 0.0)) for _, b in bounds] + [(0.0, max(-a, 0.0)) for a, _ in bounds]
        ball = LinearConstraint(np.ones((1, 2 * dim)), -np.inf, radius)

        def value(w):
            return 0.5 * np.sum((w[:dim] - w[dim:] - delta) ** 2)

        def slope(w):
            rest = w[:dim] - w[dim:] - delta
            return np.concatenate([rest, -rest])

        found = minimize(
            value, np.zeros(2 * dim), jac=slope, bounds=parts, constraints=[ball], **settings
        )
        return found.x[:dim] - found.x[dim:]
    found = minimize(
        lambda d: 0.5 * np.sum((d - delta) ** 2),
        np.zeros(dim),
        jac=lambda d: d - delta,
        bounds=bounds,
        **settings,
    )
    return found.x


def ends(ball, x):
    bounds = ball.bounds(x)
    if bounds is None:
        return torch.full_like(x, -1e3).numpy(), torch.full_like(x, 1e3).numpy()
    return bounds[0].numpy(), bounds[1].numpy()


@pytest.mark.parametrize("scale", [0.05, 0.7, 5.0], ids=["inside", "near", "outside"])
@pytest.mark.parametrize(("norm", "box"), EVERY)
def test_agrees_with_a_convex_solver(norm, box, scale, generator):
    count, dim = 8, 4
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    delta = scale * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    found = ball.project(delta, x)
    assert feasible(ball, found, x)
    low, high = ends(ball, x)
    for i in range(count):
        wanted = solve(delta[i].numpy(), norm, float(ball.radius[i]), low[i], high[i])
        np.testing.assert_allclose(found[i].numpy(), wanted, atol=2e-7)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_agrees_with_the_root_of_the_multiplier(norm, box, generator):
    """d = clip(t delta) or the clipped soft-threshold, with t or tau by scipy's root finder."""
    count, dim = 12, 60
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    delta = 2.0 * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    delta[:, ::7] = 0.0
    delta[:, 1::7] = delta[:, 2:3]  # ties
    found = ball.project(delta, x).numpy()
    low, high = ends(ball, x)
    active = 0
    for i, given in enumerate(delta.numpy()):

        def point(s, given=given, i=i):
            soft = np.sign(given) * np.maximum(np.abs(given) - s, 0.0)
            return np.clip(soft if norm == "l1" else given / (1 + s), low[i], high[i])

        def excess(s, i=i, point=point):
            return np.linalg.norm(point(s), 1 if norm == "l1" else 2) - float(ball.radius[i])

        s = brentq(excess, 0.0, 1e4, xtol=1e-14, rtol=1e-14) if excess(0.0) > 0 else 0.0
        active += s > 0
        np.testing.assert_allclose(found[i], point(s), atol=1e-10)
    assert active >= count // 2


@pytest.mark.parametrize(("norm", "box"), EVERY)
def test_variational_inequality(norm, box, generator):
    """<delta - P, d - P> <= 0 for every feasible d characterises the projection."""
    count, dim = 6, 30
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    delta = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    p = ball.project(delta, x)
    worst = -torch.inf
    for _ in range(200):
        d = ball.sample(x, generator=generator)
        assert feasible(ball, d, x)
        worst = max(worst, float(((delta - p) * (d - p)).sum(1).max()))
    # The point of the set that is farthest along delta - p must not be beyond p either.
    far = ball.linear_maximum(delta - p, x)
    assert worst <= 1e-12
    assert float(((delta - p) * (far - p)).sum(1).max()) <= 1e-12


@pytest.mark.parametrize(("norm", "box"), EVERY)
def test_inside_is_kept_and_boundary_is_fixed(norm, box, generator):
    count, dim = 6, 10
    x = make_points(box, count, dim, generator)
    ball = make_ball(norm, box, count, dim)
    inside = 0.5 * ball.sample(x, generator=generator)
    assert torch.equal(ball.project(inside, x), inside)
    outside = 10 * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    once = ball.project(outside, x)
    torch.testing.assert_close(ball.project(once, x), once, rtol=0, atol=1e-14)


def test_closed_forms():
    x = torch.zeros(1, 3, dtype=torch.float64)
    delta = torch.tensor([[3.0, -4.0, 0.0]], dtype=torch.float64)
    near = {"rtol": 0.0, "atol": 1e-14}
    wanted = torch.tensor([[0.6, -0.8, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(Ball("l2", 1.0).project(delta, x), wanted, **near)
    wanted = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(Ball("linf", 1.0).project(delta, x), wanted, **near)
    wanted = torch.tensor([[0.5, -1.5, 0.0]], dtype=torch.float64)  # tau = 2.5
    torch.testing.assert_close(Ball("l1", 2.0).project(delta, x), wanted, **near)
    # The second coordinate is held at -0.5 by the box, and the first takes what is left.
    box = (-0.5, 9.0)
    wanted = torch.tensor([[0.75**0.5, -0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(Ball("l2", 1.0, box).project(delta, x), wanted, **near)
    wanted = torch.tensor([[1.5, -0.5, 0.0]], dtype=torch.float64)  # tau = 1.5
    torch.testing.assert_close(Ball("l1", 2.0, box).project(delta, x), wanted, **near)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("box", BOXES)
def test_radius_zero_and_zero_perturbation(norm, box, generator):
    x = make_points(box, 3, 5, generator)
    zero = torch.zeros_like(x)
    ball = make_ball(norm, box, 3, 5)
    assert torch.equal(ball.project(zero, x), zero)
    nothing = Ball(norm, 0.0, ball.box)
    assert torch.equal(nothing.project(zero + 1.0, x).abs(), zero)


@pytest.mark.parametrize(("norm", "box"), EVERY)
def test_float32_is_close_and_never_outside(norm, box, generator):
    count, dim = 50, 300
    x = make_points(box, count, dim, generator).float()
    ball = make_ball(norm, box, count, dim)
    if box == "tensors":  # the box's ends round to float32; points must be inside those
        x = torch.clamp(x, *(end.float() for end in ball.box))
    delta = 2 * torch.randn(count, dim, generator=generator)
    found = ball.project(delta, x)
    assert found.dtype == torch.float32
    assert bool((ball.norms(found) <= ball.radii(x)).all())
    limits = ball.limits(x)
    ends32 = None if limits is None else tuple(end.double().expand(dim) for end in limits)
    exact = Ball(norm, ball.radius, ends32)
    wanted = exact.project(delta.double(), x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("norm", "box"), EVERY)
def test_landed_points_are_inside_exactly(norm, box, dtype, generator):
    """A radius far below x is where rounding x + d to nearest leaves the ball."""
    count, dim = 200, 50
    x = make_points(box, count, dim, generator).to(dtype)
    ball = make_ball(norm, box, count, dim)
    if box == "tensors":
        x = torch.clamp(x, *ball.limits(x))
    small = Ball(norm, 1e-4 * ball.radius, ball.box)
    delta = small.project(torch.randn(x.shape, generator=generator, dtype=dtype), x)
    point = small.rounded_points(delta, x)
    nearest = small.norms((x + delta).double() - x.double())
    landed = small.norms(point.double() - x.double())
    assert bool((landed <= small.radii(x)).all())
    assert bool((landed >= 0.99 * nearest).all())
    if dtype == torch.float32 and box == "none":
        assert bool((nearest > small.radii(x)).any()), "the test must meet the case it is about"
    if ball.box is not None:
        low, high = ball.limits(x)
        assert bool(((point >= low) & (point <= high)).all())


def test_l1_flat_segment_survives_rounding(generator):
    """One room that equals the radius: the large coordinate fills it, the small one gets nothing.

    s(tau) is flat at exactly the radius between the two, and its rounding falls on either side.
    """
    count = 2000
    share = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    room = 0.1 + share[:, 0]
    delta = torch.stack([5.0 + share[:, 1], 0.1 + share[:, 2]], 1)
    x = torch.stack([2.0 - room, torch.zeros(count, dtype=torch.float64)], 1)
    room = 2.0 - x[:, 0]
    found = Ball("l1", room, (-9.0, 2.0)).project(delta, x)
    wanted = torch.stack([room, torch.zeros_like(room)], 1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)


def test_landing_on_a_face_of_the_box_stays_in_it(generator):
    """high - x is larger than high, so that it rounds by more than the spacing of floats there."""
    high = torch.full((50,), 0.3)
    x = -torch.rand(200, 50, generator=generator)
    ball = Ball("linf", 5.0, (high - 2.0, high))
    delta = ball.linear_maximum(torch.ones_like(x), x)
    assert bool((x + delta > high).any()), "the test must meet the case it is about"
    point = ball.rounded_points(delta, x)
    assert bool((point <= high).all())
    torch.testing.assert_close(point, high.expand_as(x), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_numbers_is_stable(dtype, generator):
    numbers = torch.rand(50, 40, dtype=dtype, generator=generator)
    numbers[:, ::3] = (4 * numbers[:, ::3]).round() / 4  # many are equal, zeros among them
    numbers[0], numbers[1, 5], numbers[2, 7] = -0.0, 1e-42, 3e38
    whole = numbers.argsort(dim=1, descending=True, stable=True)
    for count in (1, 7, 39, 40):
        assert torch.equal(falling_order(numbers, count), whole[:, :count])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("end", [1e160, torch.finfo(torch.float64).max / 4])
def test_a_box_that_is_as_good_as_none(norm, end, generator):
    delta = torch.randn(5, 4, dtype=torch.float64, generator=generator)
    x = torch.zeros_like(delta)
    for method in ("project", "linear_maximum"):
        boxed = getattr(Ball(norm, 1.0, (-end, end)), method)(delta, x)
        assert torch.allclose(boxed, getattr(Ball(norm, 1.0), method)(delta, x), rtol=1e-12)
