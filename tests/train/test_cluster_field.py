"""The fast flow on known clusters, against closed forms and the plain flow."""

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from extremal import data, measure, models, train
from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.neuron_dynamics import from_polar, to_polar


def network(dim, width, p, init, generator, dtype=torch.float64):
    return models.PReLUNet(dim, width, p, init=init, dtype=dtype, generator=generator)


def twins(dim, width, p, init, seed=0):
    return [network(dim, width, p, init, torch.Generator().manual_seed(seed)) for _ in range(2)]


@pytest.mark.parametrize(
    "init",
    [models.Gaussian(1e-7), models.Gaussian(1.0), models.Gaussian(1e-60), models.Balanced(1e-5)],
)
def test_polar_coordinates_come_back(init, generator):
    net = network(3, 60, 3.0, init, generator)
    neurons, votes = net.neurons.detach().clone(), net.votes.detach().clone()
    directions, angles, theta = to_polar(net)
    product = votes[0] * neurons.norm(dim=1)
    assert torch.allclose(angles.contribution(theta) / product, torch.ones(60).double(), rtol=1e-9)
    from_polar(net, directions, angles, theta)
    assert torch.allclose(net.neurons, neurons, rtol=1e-9, atol=0)
    assert torch.allclose(net.votes, votes, rtol=1e-9, atol=0)
    if isinstance(init, models.Gaussian):
        assert {0, 1} == set(angles.kind.tolist())  # in 3 dimensions both kinds occur


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_moments_are_those_of_a_rectified_gaussian(p, generator):
    mix = data.OrthonormalMixture(5, 2, 1, 0.6)
    directions = torch.eye(5, dtype=torch.float64)[3:]
    clusters, _ = ClusterField.of(mix.sample(200, generator=generator), p, directions, 1e-3)
    for m in (-0.5, 0.0, 0.3, 1.0):
        low, high = (float(part) for part in clusters.moments(torch.tensor(m, dtype=torch.float64)))
        for power, found in ((p - 1.0, low), (p, high)):
            at = -m / clusters.noise
            expected = quad(
                lambda t, r=power, m=m: (m + clusters.noise * t) ** r * norm.pdf(t), at, at + 30
            )[0]
            assert found == pytest.approx(expected, abs=1e-6 if p == 1.5 else 1e-8)


@pytest.mark.parametrize("p", [2.0, 2.5, 3.0])
def test_without_noise_it_is_the_flow_of_the_centres(p):
    mix = data.OrthonormalMixture(8, 3, 2, 0.0)
    points = mix.simplified()
    fast, plain = twins(8, 12, p, models.Balanced(1e-3))
    train.gradient_flow(fast, points, until=150.0, method="mixture", tolerance=1e-6)
    train.gradient_flow(plain, points, until=150.0, method="general", tolerance=1e-9)
    assert torch.allclose(fast(points.x), plain(points.x), rtol=1e-3, atol=1e-6)
    heavy = measure.contributions(plain) > 1e-3
    assert torch.allclose(fast.neurons[heavy], plain.neurons[heavy], atol=2e-3)


@pytest.mark.parametrize(("p", "until", "share"), [(1.0, 300.0, 0.02), (3.0, 600.0, 0.02)])
def test_with_noise_it_is_near_the_flow_of_the_sample(p, until, share, generator):
    mix = data.OrthonormalMixture(30, 3, 2, 0.1)
    points = mix.sample(500, generator=generator, dtype=torch.float64)
    fast, plain = twins(30, 20, p, models.Gaussian(1e-5))
    train.gradient_flow(fast, points, until=until, method="mixture")
    train.gradient_flow(plain, points, until=until, method="general", tolerance=9e-5)
    test = mix.sample(200, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        gap = (fast(test.x) - plain(test.x)).abs().max() / plain(test.x).abs().max()
    assert float(gap) < share


def test_every_centre_is_found_and_the_late_winners_are_kept(generator):
    mix = data.OrthonormalMixture(100, 4, 3, 0.1)
    points = mix.sample(1000, generator=generator)
    net = network(100, 200, 3.0, models.Gaussian(1e-7), generator, torch.float32)
    flow = train.gradient_flow(net, points, until=3000.0, method="mixture")
    assert measure.following(net, mix.centers).unfollowed == ()
    assert measure.accuracy(net, points) == 1.0
    assert flow.info["directions_left"] < 30
    assert 0.0 < flow.info["phases"]["alignment ends"] < flow.info["phases"]["fitting starts"]
    assert flow.info["change"] < 0.01
    true = train.total_loss(net, points, train.Loss("exp"))
    assert float(flow.values["loss"][-1]) == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_a_large_start_skips_the_alignment(p, generator):
    mix = data.OrthonormalMixture(10, 2, 2, 0.1)
    points = mix.sample(200, generator=generator, dtype=torch.float64)
    fast, plain = twins(10, 15, p, models.Gaussian(0.3))
    flow = train.gradient_flow(fast, points, until=30.0, method="mixture")
    train.gradient_flow(plain, points, until=30.0, method="general", tolerance=1e-5)
    assert flow.info["phases"]["alignment ends"] == 0.0
    assert torch.allclose(fast(points.x), plain(points.x), rtol=0.05, atol=0.05)


def test_what_is_conserved_and_what_a_sum_changes(generator):
    mix = data.OrthonormalMixture(20, 2, 2, 0.1)
    points = mix.sample(200, generator=generator, dtype=torch.float64)
    mean, summed = twins(20, 30, 3.0, models.Gaussian(1e-4))
    before = measure.balancedness(mean)
    train.gradient_flow(mean, points, until=400.0, method="mixture")
    loss = train.Loss("exp", "sum")
    train.gradient_flow(summed, points, loss=loss, until=2.0, method="mixture")
    assert torch.allclose(measure.balancedness(mean), before, atol=1e-10)
    assert torch.allclose(mean(points.x), summed(points.x), rtol=1e-2, atol=1e-3)


def test_records_and_the_logistic_loss(generator):
    mix = data.OrthonormalMixture(20, 2, 2, 0.1)
    points = mix.sample(200, generator=generator, dtype=torch.float64)
    net = network(20, 30, 3.0, models.Gaussian(1e-4), generator)
    record = train.Record(at=(50.0, 300.0, 900.0), snapshots=True)
    loss = train.Loss("logistic")
    flow = train.gradient_flow(
        net, points, loss=loss, until=1500.0, method="mixture", record=record
    )
    assert flow.times.tolist() == [0.0, 50.0, 300.0, 900.0, 1500.0]
    assert torch.all(flow.values["loss"][1:] <= flow.values["loss"][:-1] + 1e-6)
    for index in range(len(flow)):
        true = train.total_loss(flow.at(index, net), points, loss)
        assert float(flow.values["loss"][index]) == pytest.approx(true, rel=0.02)


def test_what_it_cannot_follow_is_refused(generator):
    mix = data.OrthonormalMixture(6, 2, 2, 0.1)
    points = mix.sample(50, generator=generator, dtype=torch.float64)
    good = network(6, 4, 1.0, models.Gaussian(1e-3), generator)
    unknown = data.Dataset(points.x, points.y)
    mixed = data.Dataset(points.x, points.y, group=torch.zeros(50, dtype=torch.int64))
    biased = models.PReLUNet(6, 4, hidden_bias=True, dtype=torch.float64, generator=generator)
    frozen = network(6, 4, 1.0, models.Gaussian(1e-3), generator).freeze("votes")
    cases = [
        (good, unknown, "train.group"),
        (good, mixed, "train.group must have one label"),
        (biased, points, "net must be a one-output PReLUNet"),
        (frozen, points, "net must be a one-output PReLUNet"),
    ]
    for net, points_given, message in cases:
        with pytest.raises(ValueError, match=message):
            train.gradient_flow(net, points_given, until=1.0, method="mixture")
