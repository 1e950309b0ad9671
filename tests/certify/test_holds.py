"""A check at one radius: sound, as strong as the largest radii, and exact at radius 0."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal import certify
from extremal.attack import shortest
from extremal.certify import holds, l2_radius, radius
from extremal.models import margin
from tests.certify.breaking import breaks
from tests.certify.networks import Kind, labels, make, right_points

KINDS = [
    Kind(1, 6, 1.0, bias=True, hidden_bias=True),
    Kind(2, 3, 1.0, 2, bias=True, scale="small"),
    Kind(4, 12, 1.5, 10, bias=True),
    Kind(6, 30, 2.0, 1, bias=True, normalize="p"),
    Kind(7, 15, 2.3, 6, grouped="yes", bias=True),
    Kind(10, 25, 3.0, 10, bias=True, normalize="p", center=True, scale="large"),
    Kind(8, 4, 3.0, 2, center=True, scale="large"),
    Kind(10, 80, 4.0, 3),
]
POINTS = 6


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_breaks_a_point_within_the_radius_that_it_holds(kind, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, POINTS, generator)
    attacked = shortest(net, x, y).radius
    for asked in attacked.quantile(torch.tensor([0.3, 0.7]).double()).tolist():
        held = holds(net, x, y, asked)
        radii = torch.where(held, asked, 0.0)
        assert not bool(breaks(net, x, y, radii, smallest=attacked, generator=generator).any())
        assert not bool((held & (attacked < asked)).any())
        assert not bool((holds(net, x, y, asked, effort="fast") & ~held).any())


@pytest.mark.parametrize("effort", ["fast", "tight"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_holds_what_the_largest_radii_hold(kind, effort, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, POINTS, generator)
    x, y = x[:2], y[:2]
    radii = radius(net, x, y, effort=effort)
    for row, asked in enumerate((0.99 * radii).tolist()):
        at = slice(row, row + 1)
        assert bool(holds(net, x[at], y[at], asked, effort=effort))


@pytest.mark.parametrize("box", [None, (-1.0, 1.0)])
@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_other_norms_and_the_box(norm, box, generator):
    kind = KINDS[5]
    net = make(kind, generator)
    x, y = right_points(net, kind, POINTS, generator, box=True)
    radii = radius(net, x, y, norm=norm, box=box)
    asked = float(radii.median()) * (1.0 - 1e-9)
    held = holds(net, x, y, asked, norm=norm, box=box)
    assert not bool(((radii >= asked) & ~held).any())
    some = torch.where(held, asked, 0.0)
    assert not bool(breaks(net, x, y, some, norm=norm, box=box, generator=generator).any())


def test_at_radius_zero_it_is_whether_a_point_is_right(generator):
    kind = KINDS[2]
    net = make(kind, generator)
    x = torch.randn(30, kind.dim, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (30,), generator=generator)
    y[:10] = labels(net, x[:10])
    assert torch.equal(holds(net, x, y, 0.0), margin(net, x, y) > 0)
    wrong = margin(net, x, y) <= 0
    assert bool(wrong.any())
    assert not bool(holds(net, x, y, 1e-9)[wrong].any())


def test_other_networks_hold_what_their_constants_prove(generator):
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    radii = radius(net, x, labels(net, x))
    asked = float(radii.median())
    assert torch.equal(holds(net, x, labels(net, x), asked), radii >= asked)


def test_parabolas_are_tried_once_and_not_where_an_attack_is_nearer(generator, monkeypatch):
    kind, tried = KINDS[5], []
    net = make(kind, generator)
    x, y = right_points(net, kind, POINTS, generator)
    attacked = shortest(net, x, y)
    asked = float(attacked.radius.median())

    def missing(task, rows, radii, plain=l2_radius._missing_margin):
        tried.append(len(rows))
        return plain(task, rows, radii)

    monkeypatch.setattr(l2_radius, "_missing_margin", missing)
    certify.holds(net, x, y, asked, attacked=attacked.x_adv)
    assert len(tried) == 1
    assert tried[0] <= int((attacked.radius > asked).sum())
