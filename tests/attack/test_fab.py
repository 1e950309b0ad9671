"""The minimal-radius attack against closed forms, an independent search, and foolbox."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.attack import Ball
from extremal.attack.adapters.foolbox import foolbox_attack
from extremal.attack.auto_pgd import apgd
from extremal.attack.fab import boundary, just_broken
from extremal.models import Kaiming, PReLUNet, Preparation
from tests.attack.balls import BOXES, NORMS, make_box, make_points
from tests.attack.networks import Several, linear

DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}


def bisected(ball_at, gradient, x, margins):
    """The least radius at which the linear maximum reaches the margin, (n,)."""
    low, high = torch.zeros_like(margins), torch.full_like(margins, 50.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        move = ball_at(middle).linear_maximum(gradient, x)
        hit = (move * gradient).sum(1) >= margins
        low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
    return high


@pytest.mark.parametrize("norm", NORMS)
def test_linear_distance(norm, generator):
    w = torch.randn(7, generator=generator, dtype=torch.float64)
    x = torch.randn(20, 7, generator=generator, dtype=torch.float64)
    net = linear(w, 0.2)
    f = net(x).detach()
    result = boundary(net, x, torch.where(f > 0, 1, -1), norm=norm, steps=10, generator=generator)
    distance = f.abs() / torch.linalg.vector_norm(w, DUAL[norm])
    torch.testing.assert_close(result.radius, distance, rtol=1e-6, atol=0)
    assert bool((result.radius >= distance * (1 - 1e-12)).all())


@pytest.mark.parametrize("box", ["numbers", "tensors"])
@pytest.mark.parametrize("norm", NORMS)
def test_linear_distance_in_a_box(norm, box, generator):
    """By bisection on the radius of `linear_maximum`; inf where the whole box is on one side."""
    x = make_points(box, 25, 9, generator)
    w = torch.randn(9, generator=generator, dtype=torch.float64)
    values = x @ w
    net = linear(w, -float(values.quantile(0.25)))
    f = net(x).detach()
    y = torch.where(f > 0, 1, -1)
    limits = make_box(box, 9)
    exact = bisected(lambda r: Ball(norm, r, limits), -y[:, None] * w, x, f.abs())
    exact = torch.where(exact > 49.0, torch.inf, exact)
    result = boundary(net, x, y, norm=norm, box=limits, steps=40, generator=generator)
    torch.testing.assert_close(result.radius, exact, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_targets_find_the_nearest_of_several_boundaries(norm, generator):
    """The distance is the least of (f_y - f_t) / ||w_y - w_t||_dual over t."""
    w = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    b = torch.randn(5, generator=generator, dtype=torch.float64)
    x = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    f = x @ w.T + b
    y = f.argmax(1)
    gap = f.gather(1, y[:, None]) - f
    size = torch.linalg.vector_norm(w[y][:, None] - w, DUAL[norm], dim=2)
    exact = torch.where(gap > 0, gap / size, torch.inf).amin(1)
    settings = {"norm": norm, "steps": 20, "generator": generator}
    every = boundary(Several(w, b), x, y, targets=4, **settings)
    torch.testing.assert_close(every.radius, exact, rtol=1e-5, atol=0)
    first = boundary(Several(w, b), x, y, **settings)
    assert bool((first.radius >= exact * (1 - 1e-9)).all())
    assert bool((first.radius > exact * 1.01).any())  # the runner-up is not always the nearest


def curved(generator, dtype=torch.float32):
    net = PReLUNet(
        10,
        30,
        3.0,
        4,
        preparation=Preparation(center=torch.full((10,), 0.5)),
        init=Kaiming(),
        generator=generator,
    )
    x = torch.rand(40, 10, generator=generator)
    y = net(x).detach().argmax(1)
    return net.to(dtype), x.to(dtype), y


@pytest.mark.parametrize("norm", NORMS)
def test_no_fixed_radius_attack_breaks_a_point_much_earlier(norm, generator):
    net, x, y = curved(generator)
    box = (0.0, 1.0)
    settings = {"targets": 3, "steps": 50, "generator": generator}
    result = boundary(net, x, y, norm=norm, box=box, **settings)
    assert result.accuracy == 0.0
    closer = Ball(norm, 0.97 * result.radius, box)
    earlier = apgd(net, x, y, ball=closer, objective="dlr", **settings)
    assert int(earlier.success.sum()) <= 2


@pytest.mark.parametrize(
    ("norm", "attack"), [("l1", "L1FMNAttack"), ("l2", "DDNAttack"), ("linf", "LInfFMNAttack")]
)
def test_not_farther_than_foolbox(norm, attack, generator):
    """On the mean, and hardly ever on one point."""
    net, x, y = curved(generator)
    settings = {"norm": norm, "box": (0.0, 1.0), "generator": generator}
    theirs = foolbox_attack(net, x, y, attack=attack, options={"steps": 100}, **settings)
    ours = boundary(net, x, y, targets=3, **settings)
    ratio = ours.radius / theirs.radius
    assert float(ratio.mean()) < 1.0
    assert float((ratio < 1.01).double().mean()) > 0.9


def test_nothing_to_find_is_infinite(generator):
    class Safe(nn.Module):
        def forward(self, x):
            return 1.0 + x.square().sum(1)

    x = torch.randn(5, 3, generator=generator)
    result = boundary(Safe(), x, torch.ones(5), steps=20, generator=generator)
    assert result.accuracy == 1.0
    assert bool(torch.isinf(result.radius).all())
    assert bool((result.margin < 1.5).all())  # it went downhill


class Wall(nn.Module):
    """Flat at 1 up to |x_1| = 2, where it falls to -1: no gradient anywhere."""

    def forward(self, x):
        return torch.where(x[:, 0].abs() < 2.0, 1.0, -1.0) + 0.0 * x[:, 0]


def test_a_known_broken_point_is_pulled_back_to_the_wall(generator):
    x, y = torch.zeros(2, 2, dtype=torch.float64), torch.ones(2)
    assert boundary(Wall(), x, y, steps=5, generator=generator).accuracy == 1.0
    start = torch.tensor([[5.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    result = boundary(Wall(), x, y, steps=5, start=start, generator=generator)
    assert result.radius.tolist() == pytest.approx([2.0, torch.inf], rel=1e-6)


def test_restarts_are_random_and_never_worse(generator):
    net, x, y = curved(generator)
    one, three = (
        boundary(
            net,
            x,
            y,
            norm="linf",
            steps=30,
            restarts=count,
            generator=torch.Generator().manual_seed(1),
        )
        for count in (1, 3)
    )
    assert bool((three.radius <= one.radius * (1 + 1e-6)).all())
    assert bool((three.radius < one.radius * 0.999).any())


def test_farthest_bounds_the_search(generator):
    """A nearly flat slope asks for a step of 1e6."""
    net = linear([1e-6], 1.0)
    x, y = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([1])
    assert boundary(net, x, y, farthest=1e5, steps=5, generator=generator).accuracy == 1.0
    result = boundary(net, x, y, farthest=2e6, steps=5, generator=generator)
    assert float(result.radius) == pytest.approx(1e6, rel=1e-6)


def test_slopes_that_underflow_and_nan_are_survived(generator):
    class Odd(nn.Module):
        def forward(self, x):
            return 1.0 + 1e-44 * x[:, 0] + torch.where(x[:, 1] > 3.0, torch.nan, 0.0)

    x = torch.zeros(2, 2)
    result = boundary(Odd(), x, torch.ones(2), steps=5, farthest=2.0, generator=generator)
    assert result.accuracy == 1.0


def test_just_broken_lengthens_by_what_float64_asks_for():
    x, y = torch.ones(3, 1), torch.ones(3)
    net = linear([1.0], -0.5)
    delta = torch.tensor([[-0.5], [-0.49999], [-0.3]])
    share = just_broken(net, x, y, delta, Ball("l2", 2.0)) / delta
    assert share.squeeze(1).tolist() == pytest.approx([1.0, 1.0001, 1.0], rel=1e-6)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("norm", NORMS)
def test_the_point_found_is_on_the_boundary(norm, box, generator):
    """Just inside of it the network is still right."""
    net, _, _ = curved(generator, torch.float64)
    x = make_points(box, 20, 10, generator)
    y = net(x).detach().argmax(1)
    result = boundary(net, x, y, norm=norm, box=make_box(box, 10), steps=30, generator=generator)
    broken = result.success
    assert int(broken.sum()) >= 10
    inside = x + (1 - 1e-5) * (result.x_adv - x)
    assert bool((net(inside).argmax(1) == y)[broken].all())
