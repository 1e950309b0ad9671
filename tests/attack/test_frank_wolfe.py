"""Full linear steps, and the reduction to the neurons' span that they work in."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import Ball, linear_steps
from extremal.attack.surrogate import reduced_problem
from extremal.models import margin
from tests.attack.balls import NORMS
from tests.certify.networks import Kind, labels, make, right_points, two_sided
from tests.certify.oracles import by_rays
from tests.certify.two_neurons import two_neurons

REDUCED = [
    Kind(9, 4, 1.0, 1),
    Kind(12, 5, 3.0, 3, bias=True, center=True),
    Kind(10, 3, 2.0, 2, normalize="p", bias=True, scale="large", center=True),
    Kind(11, 4, 1.5, 4, hidden_bias=True, grouped="signed", normalize=1.0),
]
SMALL = [Kind(2, 6, 1.0, 3, bias=True), Kind(3, 8, 3.0, 1, bias=True)]
WHOLE = [Kind(3, 8, 2.0, 1), Kind(5, 9, 2.0, 1, scale="small")]


@pytest.mark.parametrize("kind", REDUCED, ids=str)
def test_the_span_keeps_margins_norms_and_gradients(kind, generator):
    """Coordinates of the neurons' span, and one more for the rest of a point where that matters."""
    net = make(kind, generator)
    x, y = right_points(net, kind, 12, generator)
    task = reduced_problem(net, x, y, Ball("l2", 0.5))
    assert task.basis is not None
    assert task.x.shape[1] == kind.width + (task.beyond is not None)
    assert task.x.shape[1] < kind.dim
    assert (task.beyond is not None) == (kind.normalize != 0.0)
    delta = 0.3 * torch.randn(task.x.shape, generator=generator, dtype=torch.float64)
    lifted = task.lift(delta)
    size = torch.linalg.vector_norm(delta, dim=1)
    torch.testing.assert_close(torch.linalg.vector_norm(lifted, dim=1), size, rtol=1e-10, atol=0)
    inside = task.form.margins(task.x + delta, task.own)
    torch.testing.assert_close(inside, margin(net, x + lifted, y).detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_where_nothing_is_gained_points_stay_as_they_are(kind, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, 5, generator)
    task = reduced_problem(net, x, y, Ball("l2", 0.5))
    assert task.basis is None
    assert torch.equal(task.x, x)
    boxed = make(REDUCED[0], generator)
    x, y = right_points(boxed, REDUCED[0], 5, generator, box=True)
    assert reduced_problem(boxed, x, y, Ball("l2", 0.5, (-1.0, 1.0))).basis is None
    assert reduced_problem(boxed, x, y, Ball("linf", 0.5)).basis is None


def test_a_part_of_a_problem(generator):
    net = make(REDUCED[2], generator)
    x, y = right_points(net, REDUCED[2], 8, generator)
    radii = torch.linspace(0.1, 0.8, 8, dtype=torch.float64)
    task = reduced_problem(net, x, y, Ball("l2", radii))
    rows = torch.tensor([5, 2])
    part = task.take(rows)
    assert len(part) == 2
    delta = torch.randn(8, task.x.shape[1], generator=generator, dtype=torch.float64)
    torch.testing.assert_close(part.lift(delta[rows]), task.lift(delta)[rows])
    assert part.ball.radius.tolist() == radii[rows].tolist()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("norm", NORMS)
def test_two_neurons_break_just_beyond_the_exact_radius(norm, p, generator):
    """Where the boundary is met with both neurons active; and never before it, anywhere."""
    broken, total = 0, 0
    for dim in (2, 5, 20):
        net = two_sided(dim, p, generator)
        x = torch.randn(60, dim, generator=generator, dtype=torch.float64)
        x = x[net(x) != 0]
        y = labels(net, x)
        exact = two_neurons(net, x, y, norm=norm)
        before = linear_steps(net, x, y, ball=Ball(norm, 0.999 * exact))
        assert not bool(before.success.any())
        both = (x @ net.neurons.T).amin(1) > 0
        after = linear_steps(net, x, y, ball=Ball(norm, 1.01 * exact))
        broken, total = broken + int(after.success[both].sum()), total + int(both.sum())
    assert total >= 20
    assert broken >= 0.95 * total


@pytest.mark.parametrize("kind", SMALL, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_against_brute_force(kind, norm, generator):
    """Never before the least radius; at 1.1 of it, half of the points at least."""
    net = make(kind, generator)
    x, y = right_points(net, kind, 2, generator)
    least = torch.tensor(
        [by_rays(net, x[i], int(y[i]), norm, farthest=5.0) for i in range(len(x))]
    ).double()
    some = least.isfinite()
    x, y, least = x[some], y[some], least[some]
    assert not bool(linear_steps(net, x, y, ball=Ball(norm, 0.995 * least)).success.any())
    after = linear_steps(net, x, y, ball=Ball(norm, 1.1 * least)).success
    assert int(after.sum()) >= 0.5 * len(x)
