"""What certificates must not depend on: units, batches, order; and what has no radius at all."""

from __future__ import annotations

import torch

from extremal.certify import certificate, radius
from extremal.models import Preparation
from tests.certify.breaking import breaks
from tests.certify.networks import Kind, labels, make, right_points

NORMS = ("l2", "linf", "l1")


def test_large_and_small_units(generator):
    """Radii have the units of the data: x -> 1e6 x with scale 1e-6 multiplies them by 1e6."""
    kind = Kind(4, 9, 2.0, 3, bias=True)
    net = make(kind, generator)
    x, y = right_points(net, kind, 5, generator)
    for norm, effort in (("l2", "tight"), ("linf", "fast"), ("l1", "fast")):
        plain = radius(net, x, y, norm=norm, effort=effort)
        for unit in (1e-6, 1e6):
            net.preparation = Preparation(scale=1.0 / unit)
            scaled = radius(net, unit * x, y, norm=norm, effort=effort)
            torch.testing.assert_close(scaled, unit * plain, rtol=0.02, atol=0)
        net.preparation = Preparation()


def test_a_certificate_does_not_depend_on_batches_or_order(generator):
    kind = Kind(5, 12, 3.0, 4, bias=True)
    net = make(kind, generator)
    x, y = right_points(net, kind, 6, generator)
    for norm, effort in (("l2", "tight"), ("linf", "fast")):
        settings = {"norm": norm, "effort": effort}
        whole = radius(net, x, y, **settings)
        parts = radius(net, x, y, batch=3, **settings)
        torch.testing.assert_close(parts, whole, rtol=0.02, atol=0)
        back = radius(net, x.flip(0), y.flip(0), **settings).flip(0)
        torch.testing.assert_close(back, whole, rtol=0.02, atol=0)
        assert torch.equal(radius(net, x, y, **settings), whole)  # deterministic, to the bit


def test_labels_that_are_wrong_have_no_radius(generator):
    kind = Kind(4, 9, 2.0, 3, bias=True)
    net = make(kind, generator)
    x, y = right_points(net, kind, 10, generator)
    for norm in NORMS:
        found = certificate(net, x, (y + 1) % 3, norm=norm)
        assert found.radius.tolist() == [0.0] * 10
        assert found.method.tolist() == [-1] * 10


def test_the_box_helps(generator):
    """Points in a corner of the box: a certificate in it is larger, and still holds."""
    kind = Kind(6, 10, 2.0, 2, bias=True)
    net = make(kind, generator)
    x, _ = right_points(net, kind, 30, generator, box=True)
    x = torch.where(x > 0, 1.0, -1.0).double()
    y = labels(net, x)
    inside = radius(net, x, y, norm="linf", box=(-1.0, 1.0), effort="fast")
    free = radius(net, x, y, norm="linf", effort="fast")
    assert bool((inside >= free * (1 - 1e-3)).all())
    assert float((inside > 1.2 * free).double().mean()) > 0.5
    ball = {"norm": "linf", "box": (-1.0, 1.0), "generator": generator}
    assert not bool(breaks(net, x, y, inside, smallest=True, **ball).any())
