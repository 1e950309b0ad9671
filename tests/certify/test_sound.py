"""No certified point is broken within its radius: random networks of every kind, 2700 points.

Each kind has 80 points with a fast certificate in l2, and 20 in linf or l1; half of the kinds are
in a box there. Some kinds have as many tight ones as the table says, every other of them begun too
far away.
"""

from __future__ import annotations

import pytest
import torch

from extremal.attack import shortest
from extremal.certify import certificate, radius
from tests.certify.breaking import breaks, from_too_far
from tests.certify.networks import Kind, make, right_points

KINDS = [
    (Kind(1, 1, 1.0), 20),
    (Kind(1, 6, 1.0, bias=True, hidden_bias=True), 20),
    (Kind(1, 4, 2.5, 2, bias=True, normalize=1.0), 0),
    (Kind(2, 3, 1.0, 2, bias=True, scale="small"), 10),
    (Kind(2, 2, 4.0, 1, bias=True), 15),
    (Kind(2, 10, 3.0, 3, bias=True, normalize="p", center=True), 0),
    (Kind(3, 20, 1.0, 3, bias=True, hidden_bias=True, scale="large"), 0),
    (Kind(3, 5, 1.1, 1, hidden_bias=True, normalize="p"), 8),
    (Kind(3, 7, 5.5, 2, hidden_bias=True, bias=True), 0),
    (Kind(4, 12, 1.5, 10, bias=True), 10),
    (Kind(4, 12, 1.5, 4, bias=True, normalize=1.0, grouped="signed"), 0),
    (Kind(5, 8, 1.99, 2, bias=True), 10),
    (Kind(5, 8, 1.99, 1, scale="small", center=True), 0),
    (Kind(6, 30, 2.0, 1, bias=True, normalize="p"), 6),
    (Kind(6, 9, 2.0, 3, normalize=1.0, scale="small"), 0),
    (Kind(6, 20, 1.25, 2), 0),
    (Kind(7, 15, 2.3, 6, grouped="yes", bias=True), 6),
    (Kind(8, 40, 2.5, 3, hidden_bias=True, normalize=1.0, bias=True), 0),
    (Kind(8, 4, 3.0, 2, center=True, scale="large"), 10),
    (Kind(10, 25, 3.0, 10, bias=True, normalize="p", center=True, scale="large"), 5),
    (Kind(10, 2, 6.0, 1), 0),
    (Kind(12, 60, 1.0, 3, bias=True), 0),
    (Kind(15, 30, 3.7, 1, hidden_bias=True, bias=True), 0),
    (Kind(20, 60, 4.0, 4, grouped="signed", bias=True, center=True), 0),
    (Kind(20, 20, 6.0, 2, normalize="p", bias=True, scale="small"), 0),
    (Kind(30, 10, 2.0, 5, scale="large"), 6),
]
TIGHT = [(kind, count) for kind, count in KINDS if count > 0]
FAST, OTHER = 80, 20
BOX = (-1.0, 1.0)


def tried(net, x, y, radii, generator, **ball) -> int:
    """How many points have a certificate, after all attacks on them have failed."""
    assert not bool(breaks(net, x, y, radii, generator=generator, **ball).any())
    return int((radii > 0).sum())


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS], ids=str)
def test_nothing_breaks_a_point_that_is_certified_fast(kind, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, FAST, generator)
    assert tried(net, x, y, radius(net, x, y, effort="fast"), generator) == FAST


@pytest.mark.parametrize(("kind", "count"), TIGHT, ids=str)
def test_nothing_breaks_a_point_that_is_certified_tightly(kind, count, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, count, generator)
    near = shortest(net, x, y)
    radii = from_too_far(net, x, y, every=2, near=near.x_adv)
    assert tried(net, x, y, radii, generator, smallest=near.radius) == count


@pytest.mark.parametrize(
    ("kind", "norm", "boxed"),
    [(kind, ("linf", "l1")[i % 2], i % 4 < 2) for i, (kind, _) in enumerate(KINDS)],
    ids=str,
)
def test_nothing_breaks_a_certified_point_in_other_norms(kind, norm, boxed, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, OTHER, generator, box=True)
    ends = torch.ones(kind.dim, dtype=torch.float64)
    box = (-ends, ends) if boxed else None
    found = certificate(net, x, y, norm=norm, box=box, effort="fast")
    assert found.boxed == boxed
    count = tried(net, x, y, found.radius, generator, norm=norm, box=box)
    # Hidden biases with normalised inputs have no linear bound.
    assert count == (0 if kind.hidden_bias and kind.normalize else OTHER)


@pytest.mark.parametrize(("kind", "norm"), [(KINDS[9][0], "l1"), (KINDS[18][0], "linf")], ids=str)
def test_nothing_breaks_a_point_that_is_certified_tightly_in_other_norms(kind, norm, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, 10, generator, box=True)
    radii = radius(net, x, y, norm=norm, box=BOX)
    assert tried(net, x, y, radii, generator, norm=norm, box=BOX, smallest=True) == 10


def test_that_is_thousands_of_points():
    """What the tests above require, summed."""
    assert len(KINDS) * FAST + sum(count for _, count in TIGHT) >= 2200
    assert (len(KINDS) - 2) * OTHER >= 480


@pytest.mark.parametrize(("normalize", "hidden_bias"), [(0.5, True), (1.0, False)])
def test_a_bad_attack_does_not_harm(normalize, hidden_bias, generator):
    """`attacked` is a hint: far, wrong or at the point itself, what comes out still holds."""
    kind = Kind(3, 5, 2.0, 1, bias=True, hidden_bias=hidden_bias, normalize=normalize)
    net = make(kind, generator)
    x, y = right_points(net, kind, 4, generator)
    hint = torch.cat([x[:2] + 100.0, x[2:]])
    assert bool((radius(net, x, y, attacked=hint) < shortest(net, x, y).radius).all())


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_neurons_that_are_zero_or_dead(p, generator):
    kind = Kind(3, 6, p, 1, bias=True, hidden_bias=True)
    net = make(kind, generator)
    with torch.no_grad():
        net.neurons[0] = 0.0
        net.hidden_bias[1] = -50.0
        net.votes[0, 2] = 0.0
    x, y = right_points(net, kind, 20, generator)
    for norm in ("l2", "linf", "l1"):
        radii = radius(net, x, y, norm=norm, effort="fast")
        assert tried(net, x, y, radii, generator, norm=norm) == len(x)
    assert tried(net, x[:4], y[:4], radius(net, x[:4], y[:4]), generator) == 4
