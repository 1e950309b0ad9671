"""Balls and boxes: random points, and coordinates that the box blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from extremal.attack import Ball
from tests.attack.balls import BOXES, NORMS, feasible, make_ball, make_points


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
