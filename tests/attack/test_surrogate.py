"""The network that searches look at: it must not be blind where its own neurons are silent."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import (
    Ball,
    apgd,
    boundary,
    foolbox_attack,
    linear_steps,
    minimal,
    pgd,
    radii_pgd,
    random_search,
    ray_attack,
    run,
    shortest,
)
from extremal.attack.surrogate import surrogate_network
from extremal.models import Explicit, PReLUNet, Preparation, margin_gradient

DIM, SMALL = 4, 1e-9


def network(p=1.0, bias=None, outputs=1, **settings):
    """relu(x_1)^p + 1e-9 (relu(x_2)^p - relu(x_3)^p): a search of few neurons sees the first."""
    votes = torch.tensor([[1.0, SMALL, -SMALL]])
    if outputs == 2:
        votes = torch.cat([-0.5 * votes, 0.5 * votes])
    start = Explicit(torch.eye(DIM)[:3], votes, None, bias)
    made = PReLUNet(
        DIM,
        3,
        p,
        outputs,
        bias=bias is not None,
        init=start,
        dtype=torch.float64,
        generator=torch.Generator(),
        **settings,
    )
    assert made.effective(1e-7).width == 1
    return made


def points():
    """x_1 < 0, and x_2 > x_3: right by 1e-9 alone, with the boundary at (x_2 - x_3)/sqrt(2)."""
    x = torch.tensor([[-1.0, 0.5, 0.2, 0.3], [-2.0, 0.9, 0.5, 0.0]], dtype=torch.float64)
    return x, torch.tensor([1, 1])


def seed():
    return torch.Generator().manual_seed(0)


BALL = Ball("l2", 0.35)
RAY = torch.tensor([0.0, -1.0, 1.0, 0.0], dtype=torch.float64)
ATTACKS = {
    "pgd": lambda net, x, y: pgd(net, x, y, ball=BALL, steps=50, step=0.05),
    "pgd in a box": lambda net, x, y: pgd(
        net, x, y, ball=Ball("l2", 0.35, (-2.0, 1.0)), steps=50, step=0.05
    ),
    "radii_pgd": lambda net, x, y: radii_pgd(net, x, y, radii=[0.1, 0.35], steps=50, step=0.05),
    "apgd": lambda net, x, y: apgd(net, x, y, ball=BALL, steps=30, generator=seed()),
    "random_search": lambda net, x, y: random_search(
        net, x, y, ball=BALL, steps=300, generator=seed()
    ),
    "along": lambda net, x, y: ray_attack(net, x, y, RAY, BALL),
    "boundary": lambda net, x, y: boundary(net, x, y, steps=30, generator=seed()),
    "linear_steps": lambda net, x, y: linear_steps(net, x, y, ball=BALL),
    "run": lambda net, x, y: run(net, x, y, radius=0.35, generator=seed()),
    "shortest": shortest,
    "minimal": lambda net, x, y: minimal(net, x, y, generator=seed()),
    "foolbox": lambda net, x, y: foolbox_attack(
        net, x, y, attack="L2DeepFoolAttack", norm="l2", radius=0.35, generator=seed()
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_points_that_only_dropped_neurons_see_are_broken(name):
    x, y = points()
    result = ATTACKS[name](network(), x, y)
    assert result.success.tolist() == [True, True]
    exact = (x[:, 1] - x[:, 2]) / 2**0.5
    assert bool((result.radius >= exact * (1 - 1e-9)).all())
    if name in ("shortest", "minimal", "boundary"):
        torch.testing.assert_close(result.radius, exact, rtol=1e-3, atol=0)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_a_copy_is_the_whole_network_where_it_would_be_constant(p, outputs, generator):
    """And the reduced one elsewhere: outputs and gradients of both kinds of points in a batch."""
    bias = torch.linspace(0.0, 0.3, outputs)
    middle = Preparation(2.0, torch.full((DIM,), 0.1))
    net = network(p, bias, outputs, preparation=middle)
    x = torch.randn(40, DIM, generator=generator, dtype=torch.float64)
    twin = surrogate_network(net, x)
    y = torch.ones(40, dtype=torch.int64)
    value, gradient = margin_gradient(twin, x, y)
    wanted, slope = margin_gradient(net, x, y)
    silent = x[:, 0] < 0.1
    assert 10 < int(silent.sum()) < 30
    assert torch.equal(value[silent], wanted[silent])
    torch.testing.assert_close(gradient[silent], slope[silent], rtol=1e-12, atol=0)
    assert int((gradient[silent] != 0).any(1).sum()) >= 5
    few = net.effective(1e-7)
    torch.testing.assert_close(value[~silent], margin_gradient(few, x, y)[0][~silent])


def test_a_copy_that_drops_nothing_is_a_plain_network():
    """Merged neurons of one direction, and a zero one, leave no blind spot."""
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    start = Explicit(rows, torch.tensor([[1.0, 1.0, 1.0]]))
    net = PReLUNet(2, 3, 1.0, init=start, generator=torch.Generator())
    twin = surrogate_network(net, torch.zeros(1, 2))
    assert isinstance(twin, PReLUNet)
    assert twin.width == 1
