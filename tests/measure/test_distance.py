"""The distance up to scale: closed forms, brute force on covers, and the paper's algorithm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from extremal.data import OrthonormalMixture
from extremal.measure import Distance, distance, distances
from extremal.measure.distances import _ascend, _Sum
from extremal.models import PReLUNet, Preparation, average_classifier, polar
from tests.measure.pairs import COVERS, TURN, axes, brute, make, random_net, random_pair, seeded

METHODS = ("search", "paper")


def check_witness(found: Distance, net: PReLUNet, reference: PReLUNet) -> None:
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


@pytest.mark.parametrize("explored_with_fewer", [False, True])
@pytest.mark.parametrize("powers", [(1.0, 1.0), (3.0, 3.0), (1.0, 3.0), (3.0, 1.0)])
@pytest.mark.parametrize("where", COVERS)
def test_distance_against_brute_force(where, powers, explored_with_fewer, monkeypatch):
    if explored_with_fewer:
        monkeypatch.setattr(distances, "_LARGE", 1)
        monkeypatch.setattr(distances, "_COARSE", 0.2)
    cover = COVERS[where]
    for seed in (0, 3):
        pair = random_pair(2 if where == "disc" else cover.shape[1], powers, seed)
        if where == "disc":
            pair = [make(n.neurons @ TURN[:2], n.votes[0], n.p) for n in pair]
        net, reference = pair
        wanted = brute(net, reference, cover)
        found = distance(net, reference, generator=seeded(), starts=40)
        assert found.converged
        # A cover has all but the very top of the difference, and the search must miss nothing.
        assert 0.99 * found.value < wanted < found.value * (1.0 + 1e-3)
        assert found.value >= found.lower - 1e-6
        assert found.lower > 0.999 * found.value
        check_witness(found, net, reference)


@pytest.mark.parametrize("powers", [(1.0, 1.0), (3.0, 3.0), (1.0, 3.0)])
@pytest.mark.parametrize("where", ["circle", "sphere"])
def test_paper_s_algorithm(where, powers):
    cover = COVERS[where]
    net, reference = random_pair(cover.shape[1], powers, 3)
    budget = {"method": "paper", "starts": 30, "steps": 400, "fit_points": 4000}
    paper = distance(net, reference, generator=seeded(), **budget)
    check_witness(paper, net, reference)
    with torch.no_grad():
        a, b = net(cover), reference(cover)
    fitted = float((a * b).sum() / (a * a).sum())  # the cover is uniform as well
    assert paper.scale == pytest.approx(fitted, rel=0.05)
    assert paper.value == pytest.approx(float((paper.scale * a - b).abs().max()), rel=5e-3)
    assert math.isnan(paper.lower)
    # Our search at its scale finds at least as much, and another scale may do better.
    f, other = (_Sum(*sides(n), n.p) for n in (net, reference))
    starts = cover[:: len(cover) // 100]
    ours = _ascend(f, other, paper.scale, starts, 100, ball=False)
    top = float((paper.scale * f.value(ours) - other.value(ours)).abs().max())
    assert top >= paper.value * (1.0 - 1e-6)
    assert distance(net, reference, generator=seeded()).value < top * 0.999


def sides(net: PReLUNet) -> tuple[Tensor, Tensor]:
    part = polar(net)
    return part.directions, part.contributions[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_network_of_the_opposite_sign_is_best_scaled_to_nothing(method):
    net = random_net(4, 3, 2.0, seeded(6))
    opposite = make(net.neurons, -net.votes[0], 2.0)
    found = distance(net, opposite, generator=seeded(), method=method, starts=20, steps=300)
    with torch.no_grad():
        size = float(opposite(COVERS["sphere"]).abs().max())
    assert 0 < found.scale < 1e-12
    assert found.value == pytest.approx(size, rel=5e-3)


def test_paper_s_algorithm_fits_on_given_points():
    mixture = OrthonormalMixture(6, 2, 1, 0.1)
    data = mixture.sample(50, generator=seeded(), dtype=torch.float64)
    reference = average_classifier(mixture)
    net = random_net(5, 6, 1.0, seeded(2))
    chosen = {"method": "paper", "starts": 3, "steps": 3, "fit": data}
    found = distance(net, reference, generator=seeded(), **chosen)
    with torch.no_grad():
        a, b = net(data.x), reference(data.x)
    wanted = torch.linalg.lstsq(a.unsqueeze(1), b.unsqueeze(1)).solution.item()
    assert found.scale == pytest.approx(max(wanted, 1e-300), rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_gives_the_same_distance(method):
    net, reference = random_pair(5, (2.0, 3.0), 8)
    settings = {"method": method, "starts": 5, "steps": 10}
    runs = [distance(net, reference, generator=seeded(s), **settings) for s in (1, 1, 2)]
    assert runs[0].value == runs[1].value
    assert runs[0].scale == runs[1].scale
    assert torch.equal(runs[0].witness, runs[1].witness)
    assert not torch.equal(runs[0].witness, runs[2].witness)


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
