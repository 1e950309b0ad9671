"""Networks to compare: their names, their training, and the attacks on what they see."""

import copy

import pytest
import torch

from extremal import attack, measure
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import BracketViolation
from extremal.experiments import get
from extremal.experiments.papers.min_vidal_2025 import network_comparison_trial as comparison
from extremal.experiments.papers.min_vidal_2025.network_comparison_trial import (
    NETWORK_NAMES,
    narrowed,
    network,
    trained,
)
from extremal.models import bayes_classifier, subclass_classifier

MIXTURE = OrthonormalMixture(40, 2, 2, 0.1)
BASE = {
    "width": 6,
    "p": 3.0,
    "init_std": 0.3,
    "loss": "exp",
    "lr": 0.1,
    "batch": 20,
    "steps": 20,
    "recorded": 4,
}


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", NETWORK_NAMES)
def test_the_narrow_network_is_the_same_function(name):
    net = network(name, MIXTURE, BASE, generator())
    data = MIXTURE.sample(30, generator=generator())
    narrow, seen, basis = narrowed(net, data)
    assert basis.shape == (40, seen.x.shape[1])
    assert seen.x.shape[1] < 40
    assert getattr(narrow, "dim", seen.x.shape[1]) == seen.x.shape[1]
    torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1]), atol=1e-5, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(narrow(seen.x), net(data.x), atol=1e-4, rtol=1e-3)
        moved = torch.randn(seen.x.shape, generator=generator())
        torch.testing.assert_close(
            narrow(seen.x + moved), net(data.x + moved @ basis.T), atol=1e-4, rtol=1e-3
        )


def test_a_network_that_sees_everything_stays_as_it_is():
    net = network("relu", MIXTURE, BASE | {"width": 40}, generator())
    data = MIXTURE.sample(5, generator=generator())
    narrow, seen, _ = narrowed(net, data)
    assert narrow is net
    assert seen is data


def test_an_unknown_network_is_named():
    with pytest.raises(ValueError, match="network must be one of"):
        network("transformer", MIXTURE, BASE, generator())


def test_training_lowers_the_loss_and_bayes_needs_none():
    data = MIXTURE.sample(200, generator=generator())
    net, losses = trained(data, BASE | {"network": "tanh", "steps": 200}, generator())
    assert losses["loss"] < 0.5 * losses["loss_start"]
    assert losses["losses"][-1] == losses["loss"]
    assert losses["steps_taken"][-1] == 200
    assert measure.accuracy(net, data) > 0.9
    bayes, none = trained(data, BASE | {"network": "bayes"}, generator())
    assert none == {}
    assert measure.accuracy(bayes, data) == 1.0


def test_what_is_found_is_no_weaker_than_the_minimal_attack_and_breaks_the_network():
    data = MIXTURE.sample(200, generator=generator())
    net, _ = trained(data, BASE | {"network": "gelu", "steps": 300}, generator())
    few = data.take(slice(8))
    found = comparison.smallest(
        net, few, [0.0, 0.2, 0.4], steps=20, restarts=2, generator=generator()
    )
    plain = attack.minimal(net, few.x, few.y, steps=20, generator=generator())
    assert bool((found.radius <= plain.radius * 1.001).all())
    signs = copy.deepcopy(net).double()(found.x_adv.double()).flatten().sign()
    assert bool((signs != few.y)[found.success].all())
    assert bool(found.success.any())
    norms = (found.x_adv - few.x).double().norm(dim=1)
    assert bool((norms <= found.radius * (1 + 1e-4)).all())


def centres():
    """The mixture's centres themselves, as points."""
    return Dataset(MIXTURE.centers.float(), MIXTURE.labels, group=torch.arange(4), source=MIXTURE)


@pytest.mark.parametrize("name", ["bayes", "subclass"])
@pytest.mark.parametrize("minimal", [True, False])
def test_without_noise_the_radius_is_half_the_distance_of_centres(name, minimal, monkeypatch):
    """Also where the first attack finds nothing: those at the radii have to, and the boundary."""
    points = centres()
    make = {"bayes": bayes_classifier, "subclass": lambda mixture: subclass_classifier(mixture, 3)}
    net = make[name](MIXTURE).float()
    if not minimal:
        nothing = attack.verified(net, points.x, points.y, points.x, attack.Ball("l2", 1.0), "none")
        assert not bool(nothing.success.any())
        monkeypatch.setattr(comparison.attack, "minimal", lambda *args, **kwargs: nothing)
        monkeypatch.setattr(comparison, "narrowed", lambda net, data: (net, data, torch.eye(40)))
    radii = [0.1 * k for k in range(11)]
    found = comparison.smallest(
        net, points, radii, steps=20, restarts=1, generator=generator()
    ).radius
    torch.testing.assert_close(found, torch.full_like(found, 0.5**0.5), rtol=2e-3, atol=0)


def test_robust_accuracy_falls_with_the_radius_and_certificates_stay_below():
    params = dict(get("min-vidal-2025/figure-2").trials("smoke")[0].params)
    params |= {"network": "relu", "certified_points": 4, "steps": 200}  # all that are attacked
    numbers = comparison.trial(params, generator()).numbers
    curve = numbers["robust_accuracy"]
    assert curve == sorted(curve, reverse=True)
    assert numbers["half_radius_certified"] <= numbers["half_radius"] * (1 + 1e-6)
    assert numbers["half_radius_certified"] > 0
    pairs = zip(numbers["certified_accuracy"], numbers["attacked_few"], strict=True)
    assert all(low <= high for low, high in pairs)


def test_a_certificate_above_an_attack_is_an_error(monkeypatch):
    class Wrong:
        radius = torch.full((3,), 5.0, dtype=torch.float64)

    params = dict(get("min-vidal-2025/figure-2").trials("smoke")[0].params)
    params |= {"network": "relu", "certified_points": 3, "steps": 100}
    monkeypatch.setattr(comparison.certify, "certificate", lambda *args, **kwargs: Wrong())
    with pytest.raises(BracketViolation, match="relu"):
        comparison.trial(params, generator())
