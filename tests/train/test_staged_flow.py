"""The flow in stages converges to the flow of the weights, whatever the start."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from extremal.data import Dataset, OrthonormalMixture
from extremal.measure import balancedness
from extremal.models import Balanced, Explicit, Gaussian, PReLUNet
from extremal.train import Record, gradient_flow
from extremal.train.flow.neuron_dynamics import to_polar

STARTS = {
    "gaussian": (6, Gaussian(0.03)),
    "many |v| > ||w||": (3, Gaussian(0.03)),
    "balanced": (6, Balanced(0.03)),
}
TOLERANCES = (1e-2, 1e-3, 1e-4)


def points(dim: int, count: int = 60) -> Dataset:
    """Unit vectors whose classes no line separates."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    y = torch.where(x[:, 0] + 0.5 * x[:, 1] * x[:, 2] > 0, 1, -1)
    return Dataset(torch.nn.functional.normalize(x, dim=1), y)


def network(dim: int, p: float, init, width: int = 20) -> PReLUNet:
    generator = torch.Generator().manual_seed(0)
    return PReLUNet(dim, width, p, init=init, dtype=torch.float64, generator=generator)


def values(net: PReLUNet, data: Dataset) -> Tensor:
    with torch.no_grad():
        return net(data.x)


@functools.cache
def reference(p: float, dim: int, init, until: float) -> PReLUNet:
    net = network(dim, p, init)
    tolerance = 1e-6 if p < 2.0 else 1e-7
    gradient_flow(net, points(dim), until=until, method="general", tolerance=tolerance)
    return net


def error(p: float, dim: int, init, until: float, tolerance: float) -> float:
    """The largest error of f on the data, relative to the largest |f|."""
    net, data = network(dim, p, init), points(dim)
    gradient_flow(net, data, until=until, method="general", tolerance=tolerance)
    wanted = values(reference(p, dim, init, until), data)
    return float((values(net, data) - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_the_stages_converge_to_the_flow(p, start):
    dim, init = STARTS[start]
    kinds = to_polar(network(dim, p, init))[1].kind
    assert start != "many |v| > ||w||" or int((kinds == 1).sum()) >= 3
    assert start != "balanced" or bool((kinds == 2).all())
    found = [error(p, dim, init, 25.0, tolerance) for tolerance in TOLERANCES]
    assert all(one < tolerance for one, tolerance in zip(found, TOLERANCES, strict=True))
    assert found[2] < 0.3 * found[0]


@pytest.mark.parametrize("dim", [3, 6])
def test_neurons_themselves_come_back(dim):
    init, data = Gaussian(0.03), points(dim)
    net = network(dim, 2.0, init)
    before = balancedness(net)
    gradient_flow(net, data, until=25.0, method="general", tolerance=1e-4)
    wanted = reference(2.0, dim, init, 25.0)
    for name, part in net.named_parameters():
        torch.testing.assert_close(part, wanted.get_parameter(name), rtol=0.0, atol=1e-3)
    torch.testing.assert_close(balancedness(net), before, rtol=1e-6, atol=1e-9)


def test_a_part_of_the_samples_with_corrections_converges_too(monkeypatch):
    p, init, until = 3.0, Gaussian(1e-5), 160.0
    whole = error(p, 6, init, until, 1e-3)
    monkeypatch.setattr("extremal.train.flow.sample_field._SUBSAMPLE_SIZE", 10)  # of 60
    found = [error(p, 6, init, until, tolerance) for tolerance in TOLERANCES]
    assert found[1] != whole  # the part was used
    assert found[2] < 0.03
    assert found[2] < 0.5 * found[0]


@pytest.mark.parametrize("method", ["general", "mixture"])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_loss_falls(p, method):
    mix = OrthonormalMixture(10, 2, 2, 0.1)
    sample = mix.sample(150, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = network(10, p, Gaussian(1e-2), 20)
    until, tolerance = (30.0, 1e-2) if p == 1.0 else (100.0, 1e-3)
    record = Record.log_spaced(1.0, 0.9 * until, 40)
    settings = {"method": method, "tolerance": tolerance, "record": record}
    run = gradient_flow(net, sample, until=until, **settings)
    losses = run.values["loss"]
    slack = 1e-6 if method == "general" else 0.01  # where samples take over from clusters
    assert bool((losses[1:] <= losses[:-1] * (1.0 + slack)).all())
    assert float(losses[-1]) < 0.3


@pytest.mark.parametrize("method", ["general", "mixture"])
@pytest.mark.parametrize("p", [2.0, 3.0])
def test_order_and_axes_do_not_matter(p, method):
    generator = torch.Generator().manual_seed(2)
    mix = OrthonormalMixture(8, 2, 2, 0.1)
    sample = mix.sample(100, generator=generator, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    order = torch.randperm(30, generator=generator)
    net = network(8, p, Gaussian(1e-3), 30)
    init = Explicit(net.neurons.detach()[order] @ turn.T, net.votes.detach()[:, order])
    other = network(8, p, init, 30)
    moved = Dataset(sample.x @ turn.T, sample.y, group=sample.group)
    gradient_flow(net, sample, until=100.0, method=method)
    gradient_flow(other, moved, until=100.0, method=method)
    scale = float(values(net, sample).abs().max())
    assert scale > 1.0
    # Sums in another order round differently, so that a step may be chosen otherwise.
    torch.testing.assert_close(
        values(other, moved), values(net, sample), rtol=0.0, atol=3e-3 * scale
    )
    gap = other.neurons @ turn - net.neurons[order]
    assert float(gap.detach().norm(dim=1).max()) < 0.02 * scale
