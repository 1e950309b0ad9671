"""Smallest perturbations of small networks and of tables as they come, against plain searches."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_breast_cancer

import extremal as ex
from extremal.attack import Ball, linear_steps, minimal, run, shortest
from extremal.attack.two_layer.convex_concave import MOST_FIRST_POINTS
from extremal.models import margin
from extremal.sklearn import PReLUClassifier
from tests.attack.balls import NORMS
from tests.certify.networks import Kind, make, right_points
from tests.certify.oracles import by_patterns

ORDERS = {"l1": 1, "l2": 2, "linf": torch.inf}
BOX = (-1.0, 1.0)


def by_search(net, x, y, norm, units, generator, box=None):
    """The least norm that 2000 random rays and 2000 neighbours of the best reach, for one point."""

    def broken(delta):
        points = x + delta if box is None else (x + delta).clamp(*box)
        return margin(net, points, y.expand(len(delta))) <= 0

    def moved(delta):
        return delta if box is None else (x + delta).clamp(*box) - x

    def nearer(delta):
        low, high = torch.zeros(len(delta), 1).double(), torch.ones(len(delta), 1).double()
        for _ in range(30):
            middle = 0.5 * (low + high)
            hit = broken(middle * delta).unsqueeze(1)
            low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
        delta = moved(high * delta)
        size = torch.linalg.vector_norm(delta, ORDERS[norm], dim=1)
        return delta[size.argmin()], float(size.min())

    ways = torch.randn(2000, len(x), generator=generator, dtype=torch.float64)
    kept = torch.rand(2000, 1, generator=generator) + 1.0 / len(x)
    ways = units * torch.where(torch.rand(2000, len(x), generator=generator) < kept, ways, 0.0)
    far = torch.cat([share * ways for share in (0.1, 0.3, 1.0, 3.0)])
    far = far[broken(far)]
    if len(far) == 0:
        return torch.inf
    best, size = nearer(far)
    for turn in range(20):
        near = torch.randn(100, len(x), generator=generator, dtype=torch.float64) * units
        near = best + near * (0.5 * 0.8**turn * size / near.norm(dim=1, keepdim=True))
        near = near * (size / torch.linalg.vector_norm(near, ORDERS[norm], dim=1)).unsqueeze(1)
        near = near[broken(near)]
        if len(near) > 0 and (found := nearer(near))[1] < size:
            best, size = found
    return size


KINDS = [
    Kind(8, 12, 1.0, 1, bias=True, hidden_bias=True),
    Kind(12, 18, 2.0, 3, hidden_bias=True, bias=True),
    Kind(6, 10, 3.0, 3, hidden_bias=True, bias=True, center=True, normalize="p"),
    Kind(6, 15, 3.0, 1),
    Kind(10, 8, 6.0, 2, bias=True, hidden_bias=True),
    Kind(5, 20, 1.5, 4, bias=True),
]


@pytest.mark.parametrize("box", [None, BOX], ids=["free", "box"])
@pytest.mark.parametrize("norm", NORMS)
def test_no_random_search_gets_nearer(norm, box, generator):
    for kind in KINDS:
        net = make(kind, generator)
        x, y = right_points(net, kind, 2, generator, box=box is not None)
        found = shortest(net, x, y, norm=norm, box=box).radius
        unit = torch.ones(kind.dim, dtype=torch.float64)
        for i in range(len(x)):
            size = by_search(net, x[i], y[i], norm, unit, generator, box)
            assert float(found[i]) <= size * (1 + 1e-3)


@pytest.mark.parametrize("box", [None, BOX], ids=["free", "box"])
@pytest.mark.parametrize("norm", NORMS)
def test_one_pattern_after_the_other_is_not_nearer(norm, box, generator):
    """p = 1 with biases, where enumeration is exact."""
    for kind in (Kind(5, 6, 1.0, 1, bias=True, hidden_bias=True), Kind(2, 6, 1.0, 3, bias=True)):
        net = make(kind, generator)
        x, y = right_points(net, kind, 2, generator, box=box is not None)
        found = shortest(net, x, y, norm=norm, box=box).radius
        for i in range(len(x)):
            exact = by_patterns(net, x[i], int(y[i]), norm, box)
            assert float(found[i]) <= exact * (1 + 1e-3)


@pytest.fixture(scope="module")
def table():
    """Breast cancer in its own units, and a head of p = 3."""
    x, y = load_breast_cancer(return_X_y=True)
    head = PReLUClassifier(p=3, width=60, epochs=15, random_state=0).fit(x[::2], y[::2])
    right = head.predict(x[1::2]) == y[1::2]
    return head, torch.from_numpy(x[1::2][right][:12]), torch.from_numpy(y[1::2][right][:12])


@pytest.mark.parametrize("norm", NORMS)
def test_units_of_features_hide_nothing(table, norm, generator):
    """A search in the features' own spreads, which beat what saw raw coordinates by up to 80."""
    head, x, y = table
    found = shortest(head.net_, x, y, norm=norm)
    sizes = [by_search(head.net_, x[i], y[i], norm, x.std(0), generator) for i in range(len(x))]
    assert bool((found.radius <= 1.001 * torch.tensor(sizes)).all())


def test_an_attack_at_one_radius_finds_what_the_smallest_do(table):
    head, x, y = table
    found = shortest(head.net_, x, y)
    ball = Ball("l2", found.radius * 1.001)
    steps = linear_steps(head.net_, x, y, ball=ball)
    assert not bool(steps.success.all())
    both = run(head.net_, x, y, radius=ball.radius, generator=torch.Generator())
    assert bool(both.success.all())
    assert bool((both.radius <= ball.radius).all())
    assert "shortest" in both.name
    some = run(head.net_, x, y, radius=ball.radius, smallest=False, generator=torch.Generator())
    assert torch.equal(some.success, steps.success)


def test_evaluations_of_small_networks_are_not_beaten_by_their_own_random_search(generator):
    for kind in KINDS[:3]:
        net = make(kind, generator)
        x, y = right_points(net, kind, 24, generator)
        for norm in ("l1", "l2"):
            found = ex.evaluate(
                net, ex.data.Dataset(x, y), norm=norm, certify=False, generator=generator
            )
            assert "random-search-wins" not in {warning.name for warning in found.warnings}
            assert "random-search" not in found.attack


def test_many_points_are_all_searched_if_some_get_shorter(generator):
    """More points than are searched at first: each radius is that of the point alone."""
    kind = KINDS[1]
    net = make(kind, generator)
    x, y = right_points(net, kind, 80, generator)
    assert len(x) > MOST_FIRST_POINTS
    together = minimal(net, x, y, generator=generator).radius
    some = torch.arange(0, len(x), 10)
    apart = minimal(net, x[some], y[some], generator=generator).radius
    torch.testing.assert_close(together[some], apart, rtol=1e-3, atol=0.0)
