"""Inversion of representations whose inverse images are known."""

import math

import pytest
import torch
from torch import nn

from extremal.measure import invert
from extremal.models import Gaussian, PReLUNet, Representation


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def linear(matrix):
    layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, dtype=matrix.dtype)
    with torch.no_grad():
        layer.weight.copy_(matrix)
    return layer


X = torch.rand(4, 6, generator=generator(1), dtype=torch.float64)


def test_a_map_without_kernel_gives_the_point_itself():
    matrix = torch.eye(6, dtype=torch.float64) + 0.2 * torch.ones(6, 6, dtype=torch.float64)
    found = invert(linear(matrix), X, steps=400, box=(0.0, 1.0), generator=generator())
    assert bool(found.converged.all())
    torch.testing.assert_close(found.x, X, atol=1e-2, rtol=0)


def test_what_the_map_does_not_see_stays_noise():
    seen = torch.eye(6, dtype=torch.float64)[:2]
    found = invert(linear(seen), X, steps=300, box=(0.0, 1.0), generator=generator(2))
    torch.testing.assert_close(found.x[:, :2], X[:, :2], atol=5e-3, rtol=0)
    noise = torch.rand(4, 6, generator=generator(2), dtype=torch.float64)
    assert torch.equal(found.x[:, 2:], noise[:, 2:])


def test_the_report_is_of_the_points_returned():
    matrix = torch.randn(3, 6, generator=generator(5), dtype=torch.float64)
    found = invert(linear(matrix), X, steps=50, tolerance=1e-3, generator=generator())
    wanted = X @ matrix.T
    gap = (found.x @ matrix.T - wanted).norm(dim=1) / wanted.norm(dim=1)
    torch.testing.assert_close(found.gap, gap)
    assert torch.equal(found.converged, gap <= 1e-3)
    noise = torch.randn(4, 6, generator=generator(), dtype=torch.float64)
    start = (noise @ matrix.T - wanted).norm(dim=1) / wanted.norm(dim=1)
    torch.testing.assert_close(found.start, start)
    assert found.steps[0] == 0
    assert found.steps[-1] == 50
    assert bool((found.path.diff(dim=0) <= 0).all())
    torch.testing.assert_close(found.path[-1], found.gap)
    assert f"{float(gap.max()):.3g} (largest)" in found.report()


def test_a_search_that_is_too_short_does_not_converge_and_stays_in_the_box():
    found = invert(
        linear(torch.eye(6, dtype=torch.float64)),
        X,
        steps=2,
        box=(0.0, 1.0),
        generator=generator(),
    )
    assert not bool(found.converged.any())
    assert bool(((found.x >= 0.0) & (found.x <= 1.0)).all())


def test_a_point_does_not_depend_on_the_others():
    """The first one, since the others would start elsewhere if they were alone."""
    matrix = torch.randn(3, 6, generator=generator(5), dtype=torch.float64)
    both = invert(linear(matrix), X, steps=30, box=(0.0, 1.0), generator=generator())
    alone = invert(linear(matrix), X[:1], steps=30, box=(0.0, 1.0), generator=generator())
    torch.testing.assert_close(both.x[:1], alone.x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be"),
        ({"lr": 0.0}, "lr must be"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"box": (1.0, 0.0)}, "box must have low < high"),
        ({"box": (0.0, math.nan)}, "box must be a finite number"),
        ({"box": 1.0}, r"box must be a pair \(low, high\)"),
        ({"box": (0.0, 0.5, 1.0)}, r"box must be a pair \(low, high\)"),
        ({"box": (0.5, 1.0)}, "box must contain every coordinate of x"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        invert(linear(torch.eye(6, dtype=torch.float64)), X, generator=generator(), **settings)


def test_points_of_another_size_are_named():
    net = PReLUNet(7, 3, 1.0, 2, init=Gaussian(1.0), generator=generator())
    with pytest.raises(ValueError, match=r"x must be a floating-point tensor of shape \(n, 7\)"):
        invert(Representation(net), X, generator=generator())
