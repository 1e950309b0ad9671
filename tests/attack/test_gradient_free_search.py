"""Random search: it needs no gradient, and comes near the optimum where there is one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.attack import Ball, pgd
from extremal.attack.auto_pgd import apgd
from extremal.attack.gradient_free_search import random_search
from extremal.data import separated_points
from extremal.models import DistanceRatio, Memoriser
from tests.attack.balls import NORMS
from tests.attack.networks import linear

DUAL = {"l1": torch.inf, "l2": 2.0, "linf": 1.0}


def separated(generator, count=15, dim=10):
    w = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = torch.rand(count, dim, generator=generator, dtype=torch.float64)
    net = linear(w, 0.1)
    f = net(x).detach()
    return net, w, x, torch.where(f > 0, 1, -1), f.abs()


@pytest.mark.parametrize("norm", NORMS)
def test_linear_network_breaks_near_its_distance(norm, generator):
    net, w, x, y, size = separated(generator)
    distance = size / torch.linalg.vector_norm(w, DUAL[norm])
    settings = {"steps": 800, "generator": generator}
    assert random_search(net, x, y, ball=Ball(norm, 1.2 * distance), **settings).accuracy == 0.0
    safe = random_search(net, x, y, ball=Ball(norm, 0.99 * distance), **settings)
    assert safe.accuracy == 1.0
    assert bool((safe.margin < 0.25 * size).all())


@pytest.mark.parametrize("norm", NORMS)
def test_box_is_used_to_its_ends(norm, generator):
    """The least value over ball and box is that of the linear maximum."""
    _, w, x, _, _ = separated(generator)
    ball = Ball(norm, {"l1": 1.5, "l2": 0.7, "linf": 0.3}[norm], (0.0, 1.0))
    far = linear(w, 100.0)  # nothing breaks: every point is taken as far as it goes
    result = random_search(far, x, torch.ones(15), ball=ball, steps=400, generator=generator)
    reach = far(x + ball.linear_maximum(-w.expand_as(x), x)).detach()
    fallen = far(x).detach() - result.margin
    assert bool((fallen > 0.8 * (far(x).detach() - reach)).all())


def test_a_plateau_of_margin_zero_is_not_left_at_its_edge():
    """At three times its radius a memoriser of 5 coordinates is 0 once 4 of them have moved.

    Rounding puts many of those points just above 0; with all 5 coordinates moved none is.
    """
    g = torch.Generator().manual_seed(0)
    data = separated_points(30, 5, separation=0.02, generator=g)
    size = DistanceRatio.of(data).separation
    ball = Ball("linf", 0.3 * size)
    net = Memoriser(data, 0.1 * size)
    found = random_search(net, data.x, data.y, ball=ball, steps=100, generator=g)
    assert found.accuracy == 0.0


@pytest.mark.parametrize("norm", NORMS)
def test_masked_gradients_are_found_out(norm, generator):
    """Outputs in steps have no gradient: PGD and APGD stand still, random search does not."""

    class Stairs(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return torch.floor(20.0 * self.net(x)) / 20.0 + 0.025

    net, w, x, y, size = separated(generator)
    ball = Ball(norm, 1.5 * (size + 0.1) / torch.linalg.vector_norm(w, DUAL[norm]))
    masked = Stairs(net)
    y = torch.where(masked(x).detach() > 0, 1, -1)
    assert pgd(masked, x, y, ball=ball, steps=20, step=0.1).accuracy == 1.0
    assert apgd(masked, x, y, ball=ball, generator=generator).accuracy == 1.0
    assert random_search(masked, x, y, ball=ball, steps=400, generator=generator).accuracy == 0.0


def test_looks_as_often_as_told_and_no_more_once_all_are_broken(generator):
    seen = []

    class Counts(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return x[:, 0]

    x = torch.ones(3, 2)
    random_search(Counts(), x, torch.ones(3), ball=Ball("l2", 0.5), steps=7, generator=generator)
    assert seen == [3] * (1 + 7 + 2)  # at first, seven trials, and twice to verify
    seen.clear()
    random_search(Counts(), x, torch.ones(3), ball=Ball("linf", 2.0), steps=99, generator=generator)
    assert len(seen) < 30
    assert min(seen[:-2]) < 3
