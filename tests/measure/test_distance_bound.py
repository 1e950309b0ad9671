"""The proven upper bound: above brute force, tight where it should be, and its parts."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.measure import distance, supremum
from extremal.measure.classifier_distance import distance_between as bounds
from extremal.measure.classifier_distance.distance_between import largest_on_circle
from extremal.measure.classifier_distance.distance_search import best_scale
from extremal.measure.classifier_distance.network_difference import (
    NeuronSum,
    as_sum,
    gather_neurons,
)
from tests.measure.pairs import COVERS, axes, make, random_net, random_pair, seeded

POWERS = (1.0, 1.3, 2.0, 3.0, 4.5)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("where", ["circle", "sphere"])
@pytest.mark.parametrize("by_patterns", [True, False])
def test_above_brute_force(where, p, by_patterns, monkeypatch):
    if not by_patterns:
        monkeypatch.setattr(bounds, "_MOST_SWITCHED_NEURONS", 0)
    cover = COVERS[where]
    for seed in range(6):
        generator = seeded(seed)
        dim = cover.shape[1]
        if seed % 2:
            net, reference = random_pair(dim, (p, p), seed)
        else:
            net = random_net(7, dim, p, generator)
            reference = random_net(3, dim, p, generator)
        f, other = as_sum(net).scaled(1.7), as_sum(reference)
        wanted = float((f.value(cover) - other.value(cover)).abs().max())
        assert bounds.difference_upper_bound(f, other) >= wanted * (1.0 - 1e-12)
        assert bounds.difference_upper_bound(other, f) == pytest.approx(
            bounds.difference_upper_bound(f, other), rel=1e-9
        )


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_tight_for_one_pair_of_neurons_in_each_plane(p):
    # Four planes, in each a neuron and one turned by some hundredths.
    eye = torch.eye(8, dtype=torch.float64)
    angle = torch.tensor([[0.05], [0.02], [0.04], [0.01]], dtype=torch.float64)
    turned = angle.cos() * eye[:4] + angle.sin() * eye[4:]
    votes = torch.tensor([1.0, -1.0, 1.1, -0.9], dtype=torch.float64)
    net, reference = make(turned, votes, p), make(eye[:4], votes.sign(), p)
    found = distance(net, reference, generator=seeded())
    assert found.value * (1.0 - 1e-9) <= found.upper < found.value * (1.0 + 0.02)


@pytest.mark.parametrize("count", [1, 3])
def test_exact_for_p_1_and_few_neurons(count):
    generator = seeded(count)
    for _ in range(5):
        net = random_net(count, 5, 1.0, generator)
        reference = random_net(count, 5, 1.0, generator)
        found = supremum(net, reference, scale=1.0, generator=generator)
        assert found.upper == pytest.approx(found.value, rel=1e-5)


@pytest.mark.parametrize("p", POWERS)
def test_the_same_network_is_at_most_nothing_apart(p):
    net = random_net(6, 4, p, seeded(2))
    f = as_sum(net)
    order = torch.randperm(6, generator=seeded())
    assert (
        bounds.difference_upper_bound(f, NeuronSum(f.directions[order], f.weights[order], p)) < 1e-6
    )


def test_nothing_is_offered_for_different_powers():
    found = distance(axes([1.0], 3, 1.0), axes([1.0], 3, 3.0), generator=seeded())
    assert math.isnan(found.upper)


@pytest.mark.parametrize("p", POWERS)
def test_remainders_of_gathered_neurons(p):
    generator = seeded(7)
    heads = as_sum(random_net(3, 4, p, generator))
    pick = torch.arange(40) % 3
    noise = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    u = heads.directions[pick] + 0.3 * noise
    size = torch.rand(40, generator=generator, dtype=torch.float64)
    weights = size * heads.weights[pick].sign()
    members = NeuronSum(u / u.norm(dim=1, keepdim=True), weights, p)
    found = gather_neurons(members, heads)
    x = torch.randn(4000, 4, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
    left_out = members.value(x) - found.neurons.value(x)
    unit = found.off / found.off.norm(dim=1, keepdim=True)
    each = (x @ unit.T).abs() ** min(p, 2.0) * found.heights
    assert bool((left_out <= torch.relu(each).sum(1) + 1e-12).all())
    assert bool((left_out >= -torch.relu(-each).sum(1) - 1e-12).all())
    assert float(left_out.abs().max()) > 0.05 * float(each.abs().sum(1).max())


@pytest.mark.parametrize("p", POWERS)
def test_highest_difference_on_a_circle(p):
    generator = seeded(3)
    a, b = torch.rand(2, 50, generator=generator, dtype=torch.float64) + 0.1
    angle = math.pi * torch.rand(50, generator=generator, dtype=torch.float64)
    angle[:25] *= 0.05
    b[:10] = a[:10]
    t = 2.0 * math.pi * torch.arange(50_021, dtype=torch.float64) / 50_021
    first = a[:, None] * torch.relu(t.cos()) ** p
    seen = (first - b[:, None] * torch.relu((t - angle[:, None]).cos()) ** p).amax(1)
    found = largest_on_circle(a, b, angle, p)
    assert bool((found >= seen - 1e-12).all())
    assert bool((found <= 1.02 * seen + 2e-3).all())
    if p == 1.0:
        assert torch.allclose(found, seen, atol=2e-4)


def test_best_scale_is_the_vertex_of_a_convex_polygon():
    # max(|c - 1|, |2 c - 1|): lines 1 - c and 2 c - 1 cross at 2/3.
    a = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert best_scale(a, torch.ones(2, dtype=torch.float64)) == pytest.approx(2.0 / 3.0, rel=1e-15)
    generator = seeded(1)
    for _ in range(20):
        a, b = torch.randn(2, 30, generator=generator, dtype=torch.float64)
        grid = torch.linspace(1e-9, 3.0, 3001, dtype=torch.float64)
        worst = (grid[:, None] * a - b).abs().amax(1)
        found = best_scale(a, b)
        assert found > 0
        assert float((found * a - b).abs().max()) <= float(worst.min()) + 1e-12
