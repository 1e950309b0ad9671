"""Attacks within certified radii would notice a step that claims two percent too much.

A mutation replaces one step of the certificates by one that claims a little more; cases are those
in which the certificates are exact without it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from extremal.certify import linear_bounds, neuron_clusters, parabolas, radius, trust_region
from extremal.certify.l2_problem import Perturbation, margin_value, no_perturbation
from extremal.certify.reduced_networks import ReducedNetwork
from extremal.models import Explicit, PReLUNet, relu_power_with_slope
from tests.certify.breaking import breaks, from_too_far, times
from tests.certify.networks import labels, two_sided
from tests.certify.test_reduced_networks import far_out, points_far_out
from tests.certify.two_neurons import two_neurons

D = torch.float64


def two_neurons_tight(p, generator):
    """Points at which both neurons of a network of two are active, and the exact radii."""
    net = two_sided(2, p, generator)
    x = torch.randn(80, 2, generator=generator, dtype=D)
    x = x[((x @ net.neurons.T).amin(1) > 0) & (net(x) != 0)][:4]
    y = labels(net, x)
    return net, x, y, two_neurons(net, x, y)


def one_neuron(p, dim=1):
    """f = 1 - relu(<x, u>)^p, u all positive: linear bounds are exact along u, and at a corner."""
    u = torch.ones(1, dim, dtype=D) / dim**0.5
    init = Explicit(u, -torch.ones(1, 1, dtype=D), None, torch.ones(1, dtype=D))
    generator = torch.Generator().manual_seed(0)
    net = PReLUNet(dim, 1, p, bias=True, init=init, dtype=D, generator=generator)
    x = torch.linspace(-0.5, 0.8, 12, dtype=D)[:, None] * u
    return net, x, torch.ones(12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_a_dual_value_two_percent_too_high(p, monkeypatch, generator):
    """Of what the parabola falls by."""
    net, x, y, exact = two_neurons_tight(p, generator)
    assert not bool((from_too_far(net, x, y) > exact).any())
    plain = trust_region.dual

    def raised(pairs, q, mu):
        found = plain(pairs, q, mu)
        fall = torch.where(found.bound.isfinite(), q.constant - found.bound, 0.0)
        return replace(found, bound=found.bound + 0.02 * fall)

    monkeypatch.setattr(trust_region, "dual", raised)
    radii = from_too_far(net, x, y)
    assert bool((radii > exact).any())
    assert bool(breaks(net, x, y, radii, smallest=True, generator=generator).any())


def test_a_parabola_above_that_is_one_below(monkeypatch, generator):
    """The wrong direction altogether, which radii do show."""
    net, x, y, exact = two_neurons_tight(3.0, generator)
    monkeypatch.setattr(parabolas, "opening_above", parabolas.opening_below)
    radii = from_too_far(net, x, y)
    assert bool(breaks(net, x, y, radii, smallest=True, generator=generator).any())
    assert bool((radii > exact).any())


def test_the_far_slice_that_is_skipped_shows_in_radii(monkeypatch, generator):
    net, x, y, exact = two_neurons_tight(2.0, generator)
    monkeypatch.setattr(trust_region, "SLICE_ENDS", trust_region.SLICE_ENDS[:-1])
    radii = from_too_far(net, x, y)
    assert bool((radii > exact).any())
    assert bool(breaks(net, x, y, radii, smallest=True, generator=generator).any())


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_no_slack_for_a_network_in_place_of_another(norm, monkeypatch, generator):
    net = far_out(generator)
    x, y = points_far_out(generator)
    monkeypatch.setattr(ReducedNetwork, "slack", lambda self, reach: torch.zeros_like(reach))
    radii = radius(net, x, y, norm=norm, effort="fast")
    assert bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_a_gain_of_clusters_two_percent_too_small_shows_in_radii(p, monkeypatch, generator):
    """Orthonormal neurons, for which the closed form is exact."""
    init = Explicit(torch.eye(2, dtype=D), torch.tensor([[1.0, -1.0]], dtype=D))
    net = PReLUNet(2, 2, p, init=init, dtype=D, generator=generator)
    x = torch.tensor([[1.0, 0.2], [2.0, 0.5]], dtype=D)
    y = torch.ones(2)
    assert not bool(breaks(net, x, y, radius(net, x, y, effort="fast"), generator=generator).any())
    plain = neuron_clusters._gains
    monkeypatch.setattr(neuron_clusters, "_gains", lambda *a: (0.98 * plain(*a)[0], *plain(*a)[1:]))
    radii = radius(net, x, y, effort="fast")
    assert bool(breaks(net, x, y, radii, smallest=True, generator=generator).all())


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_a_worth_of_silence_two_percent_too_large_shows_in_radii(p, monkeypatch, generator):
    """Orthonormal neurons, of which the one against is silent at the points: exact, too."""
    init = Explicit(torch.eye(2, dtype=D), torch.tensor([[1.0, -1.0]], dtype=D))
    net = PReLUNet(2, 2, p, init=init, dtype=D, generator=generator)
    x, y = torch.tensor([[1.0, -0.3], [2.0, -0.5]], dtype=D), torch.ones(2)
    assert not bool(breaks(net, x, y, radius(net, x, y, effort="fast"), generator=generator).any())
    plain = neuron_clusters._gains
    monkeypatch.setattr(neuron_clusters, "_gains", lambda *a: (*plain(*a)[:2], 1.02 * plain(*a)[2]))
    radii = radius(net, x, y, effort="fast")
    assert bool(breaks(net, x, y, radii, smallest=True, generator=generator).all())


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_a_tangent_of_a_neuron_where_a_chord_is_due(p, monkeypatch, generator):
    net, x, y = one_neuron(p)

    def tangents(pairs, move):
        slope = relu_power_with_slope(pairs.preactivations, pairs.p)[1]
        zero = torch.zeros_like(pairs.constant_gap)
        gradient = Perturbation.from_weights(pairs, pairs.weight_gap * slope, zero)
        fall = pairs.radius * gradient.squared_length.clamp(min=0.0).sqrt()
        return margin_value(pairs, no_perturbation(pairs)) - fall

    monkeypatch.setattr("extremal.certify.l2_radius.linear_bound", tangents)
    monkeypatch.setattr("extremal.certify.l2_radius.bisected_radii.__defaults__", (tangents,))
    radii = radius(net, x, y, effort="fast")
    assert bool(breaks(net, x, y, radii, generator=generator).any())


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_a_chord_two_percent_too_low(norm, p, monkeypatch, generator):
    """In the ball's and in the box's linear bounds."""
    net, x, y = one_neuron(p, 1 if norm == "l2" else 3)
    radii = radius(net, x, y, norm=norm, effort="fast")
    assert not bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())
    low = times(linear_bounds.relu_power, 0.98**p)
    monkeypatch.setattr(linear_bounds, "relu_power", low)
    radii = radius(net, x, y, norm=norm, effort="fast")
    assert bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())
