"""The distance up to scale: closed forms, brute force on covers, and the paper's algorithm."""

from __future__ import annotations

import math

import pytest
import torch

import extremal.measure.classifier_distance.distance_search as search_module
from extremal.measure import Distance, Supremum, distance, supremum
from extremal.models import PReLUNet, Preparation
from tests.measure.pairs import COVERS, TURN, axes, brute, make, random_net, random_pair, seeded

METHODS = ("search", "paper")


def check_witness(found: Distance | Supremum, net: PReLUNet, reference: PReLUNet) -> None:
    x = found.witness.unsqueeze(0)
    gap = (found.scale * net(x) - reference(x)).abs().item()
    assert float(x.norm()) == pytest.approx(1.0, abs=1e-12)
    assert found.value == pytest.approx(gap, abs=1e-12)
    assert found.scale > 0


@pytest.mark.parametrize("p", [1.0, 2.5])
@pytest.mark.parametrize("scale", [1.0, 40.0, 1e-14])
def test_a_network_has_no_distance_to_itself(p, scale):
    generator = seeded()
    reference = random_net(6, 4, p, generator)
    order = torch.randperm(6, generator=generator)
    net = make(5.0 * reference.neurons[order], 0.2 * scale * reference.votes[0, order], p)
    found = distance(net, reference, generator=generator, starts=20)
    assert found.value < 1e-6
    assert found.scale * scale == pytest.approx(1.0, rel=1e-6)
    assert found.converged


@pytest.mark.parametrize("dim", [2, 3, 30])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_between_two_weights(p, dim):
    # (c - 2) relu(x_1)^p + (c - 1) relu(x_2)^p: for c in (1, 2) the largest of 2 - c and c - 1.
    found = distance(axes([1.0, 1.0], dim, p), axes([2.0, 1.0], dim, p), generator=seeded())
    assert found.value == pytest.approx(0.5, rel=2e-4)
    assert found.scale == pytest.approx(1.5, rel=2e-4)
    assert found.lower == pytest.approx(0.5, rel=2e-4)


@pytest.mark.parametrize(
    ("dim", "value", "scale"), [(1, 0.0, 1.0), (2, 0.25, 0.75), (9, 0.25, 0.75)]
)
def test_off_the_span_there_is_a_ball(dim, value, scale):
    # c t - t^3 on [0, 1] is a third of Chebyshev's polynomial at best: 1/4 at t = 1/2 and t = 1.
    # In one dimension the sphere is {-1, 1}, and the functions agree on it.
    net, reference = axes([1.0], dim, 1.0), axes([1.0], dim, 3.0)
    found = distance(net, reference, generator=seeded())
    assert found.value == pytest.approx(value, rel=2e-4, abs=1e-9)
    assert found.scale == pytest.approx(scale, rel=2e-4)
    check_witness(found, net, reference)


# Every network is large and is explored with fewer neurons: gathered ones, or merged ones.
WAYS = {
    "as it is": {},
    "gathered": {"_MANY_NEURONS": 3},
    "merged": {"_MANY_NEURONS": 1, "_REDUCTION_SHARE": 0.2},
}


POWERS = [(1.0, 1.0), (3.0, 3.0), (1.0, 3.0), (1.5, 1.5), (2.0, 2.0), (3.0, 1.0)]
CASES = [(way, pair) for way in WAYS for pair in (POWERS if way == "as it is" else POWERS[:3])]


@pytest.mark.parametrize(("way", "powers"), CASES)
@pytest.mark.parametrize("where", COVERS)
def test_distance_against_brute_force(where, powers, way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(search_module, name, value)
    cover = COVERS[where]
    for seed in (0,) if way == "as it is" and powers in POWERS[3:] else (3,):
        pair = random_pair(2 if where == "disc" else cover.shape[1], powers, seed)
        if where == "disc":
            pair = [make(n.neurons @ TURN[:2], n.votes[0], n.p) for n in pair]
        net, reference = pair
        wanted = brute(net, reference, cover)
        found = distance(net, reference, generator=seeded(), starts=40)
        assert found.converged
        # A cover has all but the very top of the difference, and the search must miss nothing.
        assert 0.99 * found.value < wanted < found.value * (1.0 + 1e-3)
        assert 0.9999 * found.value < found.lower <= found.value
        if powers[0] == powers[1]:
            assert found.upper >= wanted
        else:
            assert math.isnan(found.upper)
        check_witness(found, net, reference)


@pytest.mark.parametrize("method", METHODS)
def test_a_network_of_the_opposite_sign_is_best_scaled_to_nothing(method):
    net = random_net(4, 3, 2.0, seeded(6))
    opposite = make(net.neurons, -net.votes[0], 2.0)
    found = distance(net, opposite, generator=seeded(), method=method, starts=20, steps=300)
    with torch.no_grad():
        size = float(opposite(COVERS["sphere"]).abs().max())
    assert 0 < found.scale < 1e-12
    assert found.value == pytest.approx(size, rel=5e-3)


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_gives_the_same_distance(method):
    net, reference = random_pair(5, (2.0, 3.0), 8)
    settings = {"method": method, "starts": 5, "steps": 10}
    runs = [distance(net, reference, generator=seeded(s), **settings) for s in (1, 1, 2)]
    assert runs[0].value == runs[1].value
    assert runs[0].scale == runs[1].scale
    assert torch.equal(runs[0].witness, runs[1].witness)
    assert not torch.equal(runs[0].witness, runs[2].witness)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("where", COVERS)
def test_supremum_against_brute_force(where, p):
    cover = COVERS[where]
    net, reference = random_pair(cover.shape[1], (p, p), 5)
    for scale in (0.3, 3.0, 11.0):
        found = supremum(net, reference, scale=scale, generator=seeded(), starts=40)
        with torch.no_grad():
            wanted = float((scale * net(cover) - reference(cover)).abs().max())
        full = where != "disc"  # that cover is not the whole sphere of its space
        assert wanted * (1.0 - 1e-9) <= found.value
        assert not full or found.value < 1.01 * wanted
        assert found.upper >= found.value
        assert found.scale == scale
        check_witness(found, net, reference)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_supremum_is_above_random_points_and_random_ascents(p):
    net, reference = random_net(30, 12, p, seeded(2)), random_net(8, 12, p, seeded(3))
    found = supremum(net, reference, scale=0.7, generator=seeded())
    x = torch.randn(3000, 12, generator=seeded(4), dtype=torch.float64)
    for _ in range(200):
        x = (x / x.norm(dim=1, keepdim=True)).detach().requires_grad_()
        gap = (0.7 * net(x) - reference(x)).abs()
        slope = torch.autograd.grad(gap.sum(), x)[0]
        x = x + 0.02 * slope / slope.norm(dim=1, keepdim=True)
    assert found.value >= float(gap.detach().max()) * (1.0 - 1e-6)


def test_distance_is_the_least_supremum():
    net, reference = random_pair(4, (2.0, 2.0), 7)
    found = distance(net, reference, generator=seeded())
    at = [
        supremum(net, reference, scale=factor * found.scale, generator=seeded()).value
        for factor in (0.8, 0.98, 1.0, 1.02, 1.25)
    ]
    assert at[2] == pytest.approx(found.value, rel=1e-5)
    assert min(at) >= found.lower * (1.0 - 1e-9)
    assert at[0] > at[1] > at[2] < at[3] < at[4]


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_rotations_and_scales_change_nothing_but_the_scale(p):
    net, reference = random_pair(4, (p, p), 3)
    turned = [make(n.neurons @ TURN, n.votes[0], p) for n in (net, reference)]
    larger = make(0.2 * net.neurons, 40.0 * net.votes[0], p)  # 8 times the function
    found = distance(net, reference, generator=seeded())
    rotated, scaled = (
        distance(*pair, generator=seeded()) for pair in (turned, [larger, reference])
    )
    for same, factor in ((rotated, 1.0), (scaled, 8.0)):
        assert same.value == pytest.approx(found.value, rel=2e-5)
        assert same.scale * factor == pytest.approx(found.scale, rel=1e-3)
        assert same.upper == pytest.approx(found.upper, rel=2e-3)
    x = (rotated.witness @ TURN.T).unsqueeze(0)
    gap = float((found.scale * net(x) - reference(x)).detach().abs())
    assert gap == pytest.approx(found.value, rel=1e-3)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_a_wide_network_of_a_few_bundles(p):
    # 300 neurons in four narrow bundles: explored as four neurons, judged with all of them.
    generator = seeded(4)
    centers = random_net(4, 40, p, generator)
    noise = torch.randn(300, 40, generator=generator, dtype=torch.float64)
    neurons = centers.neurons[torch.arange(300) % 4] + 1e-4 * noise
    size = torch.rand(300, generator=generator, dtype=torch.float64)
    net = make(neurons, size * centers.votes[0, torch.arange(300) % 4].sign(), p)
    reference = make(centers.neurons, 0.5 * centers.votes[0].sign(), p)
    found = distance(net, reference, generator=seeded())
    check_witness(found, net, reference)
    assert found.lower <= found.value <= found.upper < 1.35 * found.value
    printed = {"method": "paper", "starts": 30, "steps": 300}
    theirs = distance(net, reference, generator=seeded(), **printed)
    ours = supremum(net, reference, scale=theirs.scale, generator=seeded())
    assert theirs.value <= ours.value * (1.0 + 1e-9)
    assert found.value <= ours.value <= ours.upper


def test_networks_that_are_zero():
    nothing = make(torch.zeros(2, 3), torch.ones(2), 2.0)
    one = axes([1.0], 3, 2.0)
    assert distance(nothing, nothing, generator=seeded()).value == 0.0
    found = distance(nothing, one, generator=seeded())
    assert found.value == pytest.approx(1.0, rel=1e-6)
    assert found.upper == pytest.approx(1.0, rel=1e-6)
    assert distance(one, nothing, generator=seeded()).value < 1e-12


def plain(dim: int = 3, outputs: int = 1, **others: object) -> PReLUNet:
    return PReLUNet(dim, 2, 2.0, outputs, generator=seeded(), **others)


BAD = {
    "bias": (plain(bias=True), plain(), {}, "net must be a one-output PReLUNet"),
    "hidden bias": (plain(), plain(hidden_bias=True), {}, "reference must be a one-output"),
    "scale": (plain(preparation=Preparation(scale=2.0)), plain(), {}, "net must be"),
    "center": (plain(preparation=Preparation(center=torch.ones(3))), plain(), {}, "net must be"),
    "normalize": (plain(), plain(preparation=Preparation.for_power(2)), {}, "reference must be"),
    "outputs": (plain(outputs=3), plain(), {}, "net must be a one-output"),
    "a module": (torch.nn.Linear(3, 1), plain(), {}, "net must be .*got Linear"),
    "dim": (plain(), plain(4), {}, "reference must have dim 3 like the network, got 4"),
    "method": (plain(), plain(), {"method": "grid"}, "method must be one of 'search', 'paper'"),
    "generator": (plain(), plain(), {"generator": 3}, "generator must be a torch.Generator"),
    "fit": (
        plain(),
        plain(),
        {"fit": 3, "method": "paper"},
        "fit must be a Dataset or None, got i",
    ),
    "fit, unused": (plain(), plain(), {"fit": torch.ones(2, 3)}, "fit must be .* got Tensor"),
    "starts": (plain(), plain(), {"starts": 0}, "starts must be an integer >= 1"),
    "steps": (plain(), plain(), {"steps": -1}, "steps must be an integer >= 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    net, reference, settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        distance(net, reference, **({"generator": seeded()} | settings))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), "1"])
def test_bad_scale(scale):
    with pytest.raises(ValueError, match="scale must be a finite number > 0"):
        supremum(plain(), plain(), scale=scale, generator=seeded())
