"""Small initialisations: only the logarithm of their scale matters, as a delay."""

from __future__ import annotations

import math

import pytest
import torch

from extremal import measure
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import Balanced, Gaussian, PReLUNet
from extremal.train import Until, gradient_flow

SCALES = (1e-7, 1e-30, 1e-60)
# The growth of the fastest direction without noise, 3 of 5 clusters in one class: the class's
# average for p = 1, sum over k of (1/K) (1/sqrt(K_1)) = sqrt(K_1)/K, and a centre for p = 3, 1/K.
GROWTH = {1.0: math.sqrt(3.0) / 5.0, 3.0: 1.0 / 5.0}


def network(p: float, init, width: int = 40) -> PReLUNet:
    generator = torch.Generator().manual_seed(0)
    return PReLUNet(30, width, p, init=init, dtype=torch.float64, generator=generator)


def onset(net: PReLUNet, data, method: str) -> tuple[float, int]:
    """When the loss has fallen by a tenth, and the right-hand sides until then."""
    run = gradient_flow(net, data, until=Until(loss=0.9), method=method)
    assert run.info["converged"]
    assert run.info["method"] == method
    return run.info["reached"], run.info["right_hand_sides"]


@pytest.mark.parametrize("p", [1.0, 3.0])
@pytest.mark.parametrize("method", ["general", "mixture"])
def test_a_smaller_start_only_delays(p, method):
    # |c| grows like scale^2 exp(2 g t): a factor of the scale costs its logarithm over g.
    data = OrthonormalMixture(30, 3, 2, 0.0).simplified()
    times, sides = zip(
        *(onset(network(p, Gaussian(scale)), data, method) for scale in SCALES), strict=True
    )
    for i, j in ((0, 1), (1, 2)):
        delay = math.log(SCALES[i] / SCALES[j]) / GROWTH[p]
        assert times[j] - times[i] == pytest.approx(delay, rel=0.01)
    # Aligned neurons cost nothing more, however long they have to grow.
    assert sides[2] < 1.5 * sides[1]
    assert sides[2] < 2.5 * sides[0]


def fastest(data: Dataset, p: float) -> float:
    """The growth of the fastest direction of a sample: its means, shares and noise enter.

    For p = 1 it is along the class's weighted mean, for p = 3 along a cluster's mean of length m:
    E relu(m + s xi)^3 = m^3 + 3 m s^2 where s is small, times the cluster's share.
    """
    count, mean = data.group.bincount().double(), torch.zeros(5, data.dim, dtype=torch.float64)
    mean.index_add_(0, data.group, data.x).div_(count[:, None])
    share = count / len(data)
    if p == 1.0:
        return max(float((share[:, None] * mean)[k].sum(0).norm()) for k in (slice(3), slice(3, 5)))
    noise = float((data.x - mean[data.group]).square().mean())
    length = mean.norm(dim=1)
    return float((share * (length**3 + 3.0 * length * noise)).max())


@pytest.mark.parametrize(("p", "method"), [(1.0, "mixture"), (3.0, "mixture"), (3.0, "general")])
def test_with_noise_too(p, method):
    mix = OrthonormalMixture(30, 3, 2, 0.1)
    data = mix.sample(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times, sides = zip(
        *(onset(network(p, Gaussian(scale), 120), data, method) for scale in SCALES), strict=True
    )
    for i, j in ((0, 1), (1, 2)):
        delay = math.log(SCALES[i] / SCALES[j]) / fastest(data, p)
        assert times[j] - times[i] == pytest.approx(delay, rel=0.01)
    assert sides[2] < 1.5 * sides[1]
    assert sides[2] < 3.0 * sides[0]


@pytest.mark.parametrize("method", ["general", "mixture"])
def test_the_end_of_a_tiny_start_is_that_of_any_other(method):
    mix = OrthonormalMixture(30, 3, 2, 0.1)
    data = mix.sample(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = network(3.0, Gaussian(1e-60))
    run = gradient_flow(net, data, until=1500.0, method=method)
    assert measure.accuracy(net, data) == 1.0
    assert torch.isfinite(net.neurons).all()
    phases = run.info["phases"]
    assert 0.0 < phases["alignment ends"] <= phases["fitting starts"] < 1500.0


@pytest.mark.parametrize("method", ["general", "mixture"])
def test_a_balanced_start_is_delayed_exactly(method):
    # With |v| = ||w|| the angles start alike at every scale: the same flow, later.
    data = OrthonormalMixture(30, 3, 2, 0.0).simplified()
    times = [onset(network(3.0, Balanced(scale)), data, method)[0] for scale in SCALES]
    delay = math.log(SCALES[1] / SCALES[2]) / GROWTH[3.0]
    assert times[2] - times[1] == pytest.approx(delay, rel=1e-3)
