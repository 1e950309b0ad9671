"""Wide networks that are certified through smaller ones: sound, and each point by itself."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import Ball, random_search
from extremal.certify import EFFORTS, radius
from extremal.certify.reduced_networks import reduced_versions
from extremal.models import Explicit, PReLUNet, Preparation
from tests.certify.breaking import breaks
from tests.certify.networks import labels

DIM, WIDTH = 10, 160


def clustered(p, generator, *, bias=0.0):
    """Five clusters of neurons, and many small random ones; reduces to a few of them."""
    centres = torch.randn(5, DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(WIDTH, DIM, generator=generator, dtype=torch.float64)
    member = torch.arange(WIDTH) % 5
    neurons = centres[member] + 1e-6 * noise
    small = torch.arange(WIDTH) >= WIDTH // 2
    neurons[small] = 1e-4 * noise[small]
    votes = torch.where(member < 3, 1.0, -1.2).double() / WIDTH
    return PReLUNet(
        DIM,
        WIDTH,
        p,
        bias=bias != 0.0,
        init=Explicit(neurons, votes[None], None, torch.full((1,), bias)),
        dtype=torch.float64,
        generator=generator,
    )


def far_out(generator):
    """f = 1 + 100 relu(-x_0)^2 - (160 small neurons), which are dropped, though they decide.

    At x_0 > 0 the large neuron is silent, and f changes sign where the small ones sum to 1.
    """
    around = torch.randn(WIDTH, DIM, generator=generator, dtype=torch.float64)
    around[:, 0] = 0.0
    around[:, 1] = around[:, 1].abs() + 3.0
    around /= torch.linalg.vector_norm(around, dim=1, keepdim=True)
    neurons = torch.cat([-torch.eye(DIM, dtype=torch.float64)[:1], around])
    votes = torch.cat([torch.tensor([100.0]), torch.full((WIDTH,), -0.04 / WIDTH)])
    return PReLUNet(
        DIM,
        WIDTH + 1,
        2.0,
        bias=True,
        init=Explicit(neurons, votes[None], None, torch.ones(1)),
        dtype=torch.float64,
        generator=generator,
    )


def points_far_out(generator):
    """Points with x_0 > 0, which all have f near 1."""
    x = 0.3 * torch.randn(20, DIM, generator=generator, dtype=torch.float64)
    x[:, 0] = x[:, 0].abs() + 1.0
    return x, torch.ones(20)


def scaled_points(net, generator, low, high):
    """20 points of norms from `low` to `high`, and their labels."""
    x = torch.randn(20, DIM, generator=generator, dtype=torch.float64)
    x *= torch.logspace(low, high, 20, dtype=torch.float64)[:, None] / x.norm(dim=1, keepdim=True)
    return x, labels(net, x)


@pytest.mark.parametrize(("p", "bias"), [(1.0, 0.0), (2.0, 1e-3), (4.5, 0.01)])
def test_wide_networks_are_sound(p, bias, generator):
    net = clustered(p, generator, bias=bias)
    assert reduced_versions(net)[0].form.directions.shape[0] <= WIDTH // 4
    x, y = scaled_points(net, generator, -1.0, 1.0)
    for norm in ("l2", "linf", "l1"):
        radii = radius(net, x, y, norm=norm, effort="fast")
        assert int((radii > 0).sum()) >= 18
        assert not bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())
    radii = radius(net, x[::5], y[::5])
    assert not bool(breaks(net, x[::5], y[::5], radii, smallest=True, generator=generator).any())


def test_neurons_that_were_dropped_still_count(generator):
    """At norm 1 they change f by less than a thousandth of its terms, farther out they decide."""
    net = far_out(generator)
    assert reduced_versions(net)[0].form.directions.shape[0] == 1
    x, y = points_far_out(generator)
    for norm in ("l2", "linf", "l1"):
        radii = radius(net, x, y, norm=norm, effort="fast")
        assert bool((radii > 0).all())
        assert not bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())


@pytest.mark.parametrize("effort", ["fast", "tight"])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_a_certificate_does_not_depend_on_the_other_points(p, effort, generator):
    """One at a time and together, though each has the reduced network that its norm asks for."""
    net = clustered(p, generator)
    assert len(reduced_versions(net)) > 1
    x, y = scaled_points(net, generator, -1.5, 1.4)
    some = slice(None, None, 2 if effort == "fast" else 6)
    x, y = x[some], y[some]
    together = radius(net, x, y, effort=effort)
    alone = [radius(net, x[i : i + 1], y[i : i + 1], effort=effort) for i in range(len(x))]
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-12, atol=0)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_more_effort_and_more_neurons_cost_nothing(norm, generator):
    """Ten clusters as ten neurons and as 200: about the same radii, and "tight" is never less."""
    base = torch.eye(10, 40, dtype=torch.float64)
    sign = torch.tensor([1.0] * 5 + [-1.0] * 5, dtype=torch.float64)
    noise = 1e-7 * torch.randn(200, 40, dtype=torch.float64, generator=generator)
    nets = [
        PReLUNet(
            40,
            len(neurons),
            3.0,
            init=Explicit(neurons, votes[None]),
            dtype=torch.float64,
            generator=generator,
        )
        for neurons, votes in ((base, sign), (base.repeat(20, 1) + noise, sign.repeat(20) / 20))
    ]
    x = base + 0.01 * torch.randn(10, 40, dtype=torch.float64, generator=generator)
    few, many = (
        [radius(net, x, sign.long(), norm=norm, effort=e) for e in EFFORTS] for net in nets
    )
    for fast, tight in (few, many):
        assert bool((tight >= fast * (1 - 1e-9)).all())
    for small, large in zip(few, many, strict=True):
        torch.testing.assert_close(large, small, rtol=5e-3, atol=0.0)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("normalize", [0.0, 0.5, 1.0])
def test_reduced_versions_of_prepared_networks_are_sound(outputs, normalize, generator):
    """A centre, a scale, normalised inputs, several outputs, in all norms."""
    centers = torch.randn(6, 5, dtype=torch.float64, generator=generator)
    neurons = centers.repeat(20, 1)
    neurons = neurons + 1e-6 * torch.randn(120, 5, dtype=torch.float64, generator=generator)
    votes = torch.randn(outputs, 6, dtype=torch.float64, generator=generator).repeat(1, 20) / 20
    scale = 0.5 + float(torch.rand((), dtype=torch.float64, generator=generator))
    center = torch.randn(5, dtype=torch.float64, generator=generator)
    net = PReLUNet(
        5,
        120,
        2.0,
        outputs,
        preparation=Preparation(scale, center, normalize),
        init=Explicit(neurons, votes),
        dtype=torch.float64,
        generator=generator,
    )
    assert len(reduced_versions(net)) > 1
    x = 2.0 * torch.randn(20, 5, dtype=torch.float64, generator=generator)
    out = net(x)
    y = torch.where(out > 0, 1, -1) if outputs == 1 else out.argmax(1)
    for norm in ("l2", "linf", "l1"):
        held = radius(net, x, y, norm=norm, effort="fast")
        assert bool((held > 0).any())
        found = random_search(
            net, x, y, ball=Ball(norm, 0.999 * held), steps=75, generator=generator
        )
        assert not bool((found.success & (held > 0)).any())
