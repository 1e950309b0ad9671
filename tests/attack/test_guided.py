"""Attacks led by a representation, where the nearest point is known."""

import pytest
import torch
from torch import nn

from extremal.attack import Ball, guided


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Scaled(nn.Module):
    """x -> x weights: a diagonal linear map, whose nearest point in a box of pixels is a clip."""

    def __init__(self, weights):
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, x):
        return x * self.weights


X, Z = (torch.rand(5, 8, generator=generator(seed)) for seed in (1, 2))
GUIDE = Scaled(torch.linspace(0.5, 2.0, 8))


def test_linf_with_a_box_is_a_clip():
    radius = 0.2
    found = guided(GUIDE, X, Z, ball=Ball("linf", radius, (0.0, 1.0)), steps=200)
    nearest = X + (Z - X).clamp(-radius, radius)
    torch.testing.assert_close(found.x_adv, nearest, atol=4e-3, rtol=0)
    gap = (GUIDE.double()(nearest.double() - Z.double())).norm(dim=1)
    torch.testing.assert_close(found.gap, gap, atol=5e-3, rtol=0)


def test_l2_goes_straight():
    radius = 0.3
    found = guided(Scaled(torch.ones(8)), X, Z, ball=Ball("l2", radius), steps=100)
    way = Z - X
    nearest = X + radius * way / way.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.x_adv, nearest, atol=2e-3, rtol=0)


def test_a_point_within_reach_is_reached_and_gaps_are_those_of_the_points():
    near = X + 0.05 * (Z - X)
    found = guided(GUIDE, X, near, ball=Ball("linf", 0.2, (0.0, 1.0)), steps=200)
    assert bool((found.gap < 0.1 * found.start).all())
    for points, gap in ((X, found.start), (found.x_adv, found.gap)):
        wanted = (GUIDE.double()(points.double()) - GUIDE.double()(near.double())).norm(dim=1)
        torch.testing.assert_close(gap, wanted)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_nothing_leaves_the_ball_or_the_box_or_gets_worse(norm):
    ball = Ball(norm, 0.3, (0.0, 1.0))
    found = guided(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), X, Z, ball=ball, steps=7)
    assert bool((ball.norms(found.x_adv.double() - X.double()) <= 0.3 * (1 + 1e-6)).all())
    assert bool(((found.x_adv >= 0) & (found.x_adv <= 1)).all())
    assert bool((found.gap <= found.start * (1 + 1e-6)).all())


def test_at_radius_zero_nothing_moves():
    assert torch.equal(guided(GUIDE, X, Z, ball=Ball("linf", 0.0)).x_adv, X)


def test_bad_input_is_named():
    ball = Ball("linf", 0.1)
    with pytest.raises(ValueError, match=r"wanted must be a floating-point tensor of shape \(5, "):
        guided(GUIDE, X, Z[:2], ball=ball)
    with pytest.raises(ValueError, match="steps must be"):
        guided(GUIDE, X, Z, ball=ball, steps=0)
    with pytest.raises(ValueError, match="ball must be a Ball"):
        guided(GUIDE, X, Z, ball=0.1)
