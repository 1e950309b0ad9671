"""Patch data, the network on it, its features and the window of adversarial training."""

import math

import pytest
import torch

from extremal import measure, theory
from extremal.data import Dataset, PatchData
from extremal.models import PatchCNN, SmoothedReLU
from tests.models.test_gradients import close, differences

double = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def patches(**changes):
    settings = {"alpha": (3.0, 4.0), "beta": (0.5, 1.0), "noise": 0.0} | changes
    return PatchData(3, 8, 2, 5, **settings)


def test_patches_hold_their_features_with_coefficients_in_the_intervals():
    source = patches()
    system = torch.cat([source.robust_features, source.dense_features])
    torch.testing.assert_close(system @ system.T, torch.eye(6, dtype=double), atol=1e-6, rtol=0)
    data = source.sample_each(4, generator=generator(), dtype=double)
    assert data.y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    parts = data.x.unflatten(1, (7, 8)) @ system.T  # (n, P, 2k)
    for n, y in enumerate(data.y.tolist()):
        strong, weak = parts[n, :2, y], parts[n, 2:, 3 + y]
        assert 3.0 <= float(strong.min()) <= float(strong.max()) <= 4.0
        assert 0.5 <= float(weak.min()) <= float(weak.max()) <= 1.0
        total = float(data.x[n].square().sum())
        assert total == pytest.approx(float(strong.square().sum() + weak.square().sum()), rel=1e-5)


def test_intervals_may_differ_by_class_and_noise_is_added():
    source = patches(alpha=[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)])
    data = source.sample(50, generator=generator(), dtype=double)
    first = data.x.unflatten(1, (7, 8))[:, 0, :3].amax(1)
    torch.testing.assert_close(first, 1.0 + data.y.double())
    noisy = patches(noise=0.2).sample_each(40, generator=generator(), dtype=double).x
    quiet = noisy.unflatten(1, (7, 8))[..., 6:]  # where no feature is
    assert float(quiet.std()) == pytest.approx(0.2, rel=0.05)


def test_the_model_independent_attack_stays_in_the_ball_and_turns_the_feature():
    source = patches()
    data = source.sample_each(5, generator=generator(), dtype=double)
    inside = source.perturbed_by_features(data, 0.4)
    assert float((inside.x - data.x).abs().max()) == pytest.approx(0.4)
    replaced = source.perturbed_by_features(data, 0.4, kind="replaced").x.unflatten(1, (7, 8))[
        :, 2:
    ]
    own = (replaced * source.dense_features[data.y].unsqueeze(1)).sum(2)
    other = (replaced * source.dense_features[(data.y + 1) % 3].unsqueeze(1)).sum(2)
    torch.testing.assert_close(own, torch.zeros_like(own), atol=1e-12, rtol=0)
    torch.testing.assert_close(other, torch.full_like(other, 0.4))
    torch.testing.assert_close(inside.x[:, :16], data.x[:, :16])  # robust patches are left alone


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0, 2.5])
def test_the_smoothed_relu_and_its_slope(q):
    net = SmoothedReLU(q, 2.0)
    z = torch.tensor([-1.0, 0.5, 2.0, 5.0], dtype=double, requires_grad=True)
    out = net(z)
    at = 2.0 / q
    wanted = torch.tensor([0.0, 0.5**q / (q * 2.0 ** (q - 1)), at, at + 3.0], dtype=double)
    torch.testing.assert_close(out, wanted)
    (slope,) = torch.autograd.grad(out.sum(), z)
    torch.testing.assert_close(slope, torch.tensor([0.0, 0.25 ** (q - 1), 1.0, 1.0], dtype=double))


def test_the_network_sums_over_filters_and_patches():
    net = PatchCNN(3, 4, 5, q=3.0, rho=0.7, std=0.5, dtype=double, generator=generator())
    x = torch.randn(2, 30, generator=generator(1), dtype=double)
    wanted = torch.zeros(2, 3, dtype=double)
    for n in range(2):
        for i in range(3):
            for r in range(4):
                for p in range(6):
                    inner = net.filters[i, r] @ x[n, 5 * p : 5 * p + 5]
                    wanted[n, i] += net.activation(inner).detach()
    torch.testing.assert_close(net(x).detach(), wanted)
    point = x[:1].clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(net(point)[0, 1], point)
    close(slope[0], differences(lambda: float(net(x[:1])[0, 1]), x[0]))


def test_correlations_are_the_largest_of_each_class():
    source = patches()
    net = PatchCNN(3, 2, 8, dtype=double, generator=generator())
    with torch.no_grad():
        net.filters.zero_()
        net.filters[1, 0] = 2.0 * source.robust_features[1]
        net.filters[1, 1] = 0.5 * source.dense_features[1] + source.robust_features[0]
    found = measure.patch_features(net, source)
    assert found.robust.tolist() == [0.0, 2.0, 0.0]
    assert found.dense.tolist() == [0.0, 0.5, 0.0]


def test_the_window_of_the_known_setting_and_its_three_edges():
    inside = theory.patch_window(1, 25, 4.0, 1.0, 0.6, 2.0)
    assert inside.inside
    assert inside.denser == pytest.approx(25 / 16)
    assert inside.breakable == pytest.approx(1.2)
    assert inside.learnable == pytest.approx(3.4**2 / (26 * 0.36))
    assert not theory.patch_window(1, 15, 4.0, 1.0, 0.6, 2.0).inside
    assert not theory.patch_window(1, 25, 4.0, 1.0, 0.5, 2.0).inside
    assert not theory.patch_window(1, 25, 4.0, 1.0, 0.7, 2.0).inside
    assert theory.patch_window(1, 25, 1.0, 1.0, 2.0, 2.0).learnable == 0.0


def test_a_quotient_of_one_is_the_edge_and_not_inside():
    assert not theory.patch_window(1, 25, 4.0, 1.0, 0.6, 2.0).edge
    for settings in ((1, 25, 5.0, 1.0, 0.6, 2.0), (1, 25, 4.0, 1.0, 0.5, 2.0)):
        window = theory.patch_window(*settings)
        assert window.edge
        assert not window.inside
    assert theory.patch_window(1, 24, 6.0, 1.0, 1.0, 2.0).quotients == (24 / 36, 2.0, 1.0)


def assumed(source, radius=0.6, q=2.0):
    return theory.patch_assumptions(
        source.robust, source.dense, source.alpha, source.beta, radius, q
    )


def test_assumptions_are_of_the_worst_that_may_be_drawn():
    source = patches(alpha=[(3.0, 4.0), (2.0, 5.0), (3.0, 3.0)], beta=(0.5, 1.0))
    found = assumed(source)
    assert found.stronger == pytest.approx(2.0 / 1.0)
    assert (found.denser, found.best_tau) == (2.5, 0.0)
    assert found.tau_limit == pytest.approx(math.log(2.5) / math.log(5.0 / 0.5))
    second = found.windows[1]
    assert second.denser == pytest.approx(5 * 0.5**2 / (2 * 5.0**2))
    assert second.breakable == pytest.approx(1.2)
    assert second.learnable == pytest.approx(2 * 1.4**2 / (7 * 0.36))
    assert not found.hold


def test_no_point_that_is_drawn_is_worse_than_assumed():
    source = patches(alpha=[(3.0, 4.0), (2.0, 5.0), (3.0, 3.0)], beta=(0.5, 1.0))
    data, found = source.sample_each(20, generator=generator(), dtype=double), assumed(source, 0.4)
    parts = data.x.unflatten(1, (7, 8)).amax(2)  # the coefficients, since there is no noise
    strong, weak = parts[:, :2], parts[:, 2:]
    assert float(strong.min() / weak.max()) >= found.stronger
    for tau in (0.0, 0.5, 2.0):
        quotient = (weak**tau).sum(1) / (strong**tau).sum(1)
        assert (tau < found.tau_limit) <= bool((quotient > 1).all())
        assert float(quotient.max()) <= found.denser + 1e-9
    for y, window in enumerate(found.windows):
        own = data.y == y
        square = weak[own].square().sum(1) / strong[own].square().sum(1)
        assert float(square.min()) >= window.denser
        assert 0.8 / float(weak[own].max()) >= window.breakable


def test_assumptions_at_their_limits():
    """One strength each: the window is that of the means; weak robust features are never denser."""
    single = patches(alpha=(4.0, 4.0), beta=(1.0, 1.0))
    window = theory.patch_window(2, 5, 4.0, 1.0, 0.6, 2.0)
    assert assumed(single).windows == (window,) * 3
    turned = assumed(patches(alpha=(1.0, 2.0), beta=(3.0, 4.0)))
    assert turned.stronger == 0.25
    assert turned.best_tau == turned.tau_limit == math.inf
    sparse = PatchData(3, 8, 5, 5, alpha=(4.0, 4.0), beta=(1.0, 1.0), noise=0.0)
    assert assumed(sparse).tau_limit == 0.0
    held = PatchData(3, 8, 1, 25, alpha=(4.0, 4.0), beta=(1.0, 1.0), noise=0.0)
    assert assumed(held).hold
    assert "above 1 for tau below 2.32" in assumed(held).report()


def test_the_setting_of_figure_3_is_at_the_edge_for_its_strongest_weak_patches():
    """What docs/adversarial-training.md says of it."""
    source = PatchData(3, 10, 1, 25, alpha=(3.6, 4.4), beta=(0.9, 1.1), noise=0.05)
    found = assumed(source, 0.55)
    lines = found.report().splitlines()
    assert lines[0] == "stronger: alpha is at least 3.27 beta"
    assert lines[1] == "denser: 25 at tau = 0, above 1 for tau below 2.03"
    assert lines[2].endswith(": denser at tau = q 1.05, breakable 1, learnable 1.18")
    assert all(window.edge for window in found.windows)
    assert min(min(window.quotients) for window in assumed(source, 0.6).windows) < 1.0


def moved(**changes):
    data = patches().sample_each(2, generator=generator())
    settings = {"data": data, "radius": 0.1} | changes
    return patches().perturbed_by_features(settings.pop("data"), settings.pop("radius"), **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: PatchData(3, 5, 1, 1, alpha=(1, 1), beta=(1, 1), noise=0.0),
            "dim must be at least",
        ),
        (lambda: PatchData(1, 5, 1, 1, alpha=(1, 1), beta=(1, 1), noise=0.0), "classes must"),
        (lambda: patches(alpha=(2.0, 1.0)), "alpha must"),
        (lambda: patches(alpha=[(1.0, 2.0)]), "alpha must"),
        (lambda: patches(beta=(0.0, 1.0)), "beta must"),
        (lambda: patches(beta="wide"), "beta must"),
        (lambda: patches(beta=(math.nan, 1.0)), "beta must"),
        (lambda: patches(noise=-1.0), "noise must"),
        (lambda: patches().sample_each(0, generator=generator()), "count must"),
        (lambda: moved(radius=-1.0), "radius must"),
        (lambda: moved(kind="all"), "kind must"),
        (lambda: moved(data=Dataset(torch.zeros(2, 9), torch.tensor([0, 1]))), "data must"),
        (
            lambda: moved(data=Dataset(torch.zeros(2, 56), torch.tensor([1, -1]))),
            "data must have labels 0..2",
        ),
        (lambda: SmoothedReLU(0.5, 1.0), "q must"),
        (lambda: SmoothedReLU(2.0, 0.0), "rho must"),
        (lambda: PatchCNN(3, 0, 4, generator=generator()), "width must"),
        (lambda: PatchCNN(3, 1, 4, std=0.0, generator=generator()), "std must"),
        (lambda: PatchCNN(3, 1, 4, generator=generator())(torch.zeros(2, 7)), "x must"),
        (
            lambda: measure.patch_features(PatchCNN(2, 1, 8, generator=generator()), patches()),
            "source must have 2 classes",
        ),
        (lambda: theory.patch_window(0, 1, 1.0, 1.0, 1.0, 2.0), "robust"),
        (lambda: theory.patch_window(1, 1, 1.0, 1.0, 0.0, 2.0), "radius"),
        (lambda: theory.patch_assumptions(1, 1, torch.ones(3), torch.ones(1, 2), 1, 2), "alpha"),
        (
            lambda: theory.patch_assumptions(1, 1, torch.ones(2, 2), torch.ones(3, 2), 1, 2),
            "beta must have 2 classes",
        ),
        (
            lambda: theory.patch_assumptions(1, 1, -torch.ones(2, 2), torch.ones(2, 2), 1, 2),
            "alpha must have 0 < low <= high",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("q", [1.0, 2.0, 2.5])
def test_gradients_by_hand_are_those_of_autograd(q):
    net = PatchCNN(3, 4, 8, q=q, rho=0.7, std=0.5, dtype=double, generator=generator())
    x = patches().sample_each(3, generator=generator(), dtype=double).x.requires_grad_(True)
    weight = torch.randn(9, 3, generator=generator(2), dtype=double)
    out = net(x)
    (wanted,) = torch.autograd.grad((weight * out).sum(), x)
    for given in (weight, lambda seen: weight):
        found, gradient = net.input_gradient(x.detach(), given)
        torch.testing.assert_close(found, out.detach())
        torch.testing.assert_close(gradient, wanted)
