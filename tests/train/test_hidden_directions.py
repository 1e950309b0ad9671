"""Directions with little of the data, that matter once the rest is fitted, are learned as well."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet
from extremal.train import gradient_flow
from extremal.train.flow import coupled_stage, fitting_stage, sample_field


def rare_group(count: int = 300, dim: int = 40) -> Dataset:
    """Four clusters, and two samples, half as long, in a direction that no other has."""
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(0, 4, (count,), generator=generator)
    noise = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    x = torch.eye(dim, dtype=torch.float64)[group] + 0.02 / dim**0.5 * noise
    y = torch.tensor([1, 1, -1, -1])[group]
    x[:2], y[:2] = 0.0, 1
    x[:2, -1] = 0.5
    return Dataset(x, y)


def lone_sample(count: int = 600, dim: int = 60) -> Dataset:
    """Four clusters, and one sample in a direction that no other has."""
    generator = torch.Generator().manual_seed(0)
    group = torch.multinomial(torch.ones(4), count, replacement=True, generator=generator)
    noise = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    x = torch.eye(dim, dtype=torch.float64)[group] + 0.1 / dim**0.5 * noise
    y = torch.tensor([1, 1, -1, -1])[group]
    x[0], y[0] = 0.0, 1
    x[0, -1] = 1.0
    return Dataset(x, y)


def unequal_units(count: int = 200, dim: int = 20) -> Dataset:
    """A coordinate that tells little is 30 times as large as the one that tells most."""
    generator = torch.Generator().manual_seed(0)
    y = 2 * torch.randint(0, 2, (count,), generator=generator) - 1
    x = 0.3 * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    x[:, 1] += 0.75 * y
    x[:, 0] = 10.0 * (y + torch.randn(count, generator=generator))
    return Dataset(x, y)


def off(data: Dataset, p: float, **settings) -> tuple[float, dict]:
    """How far the default flow is from the weights' own, over the largest |f|, and its info."""
    outputs, infos = [], []
    for tolerance in (None, 1e-5):
        init, generator = Gaussian(1e-3), torch.Generator().manual_seed(0)
        net = PReLUNet(data.dim, 20, p, init=init, dtype=torch.float64, generator=generator)
        infos.append(gradient_flow(net, data, tolerance=tolerance, **settings).info)
        outputs.append(net(data.x).detach())
    return float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max()), infos[0]


@pytest.mark.parametrize("last_stage", [False, True])
def test_a_subspace_grows_to_what_is_left_to_pull(last_stage, monkeypatch):
    monkeypatch.setattr(sample_field, "_CHEAP_PRODUCTS", 0)
    monkeypatch.setattr(sample_field, "_OUTLIER_RATIO", math.inf)
    if last_stage:
        monkeypatch.setattr(coupled_stage, "_FEW_PRODUCTS", 0)
    found, info = off(rare_group(), 2.0, until=8000.0)
    assert found < 1e-3
    assert info["subspace"] < 20
    assert info["residual"] > 0.01  # what was seen off the subspace before it grew


def test_without_that_the_rare_group_is_never_learned(monkeypatch):
    monkeypatch.setattr(sample_field, "_CHEAP_PRODUCTS", 0)
    monkeypatch.setattr(sample_field, "_OUTLIER_RATIO", math.inf)
    monkeypatch.setattr(coupled_stage.CoupledStage, "_widen", lambda *_: False)
    found, _ = off(rare_group(), 2.0, until=8000.0)
    assert found > 0.1


@pytest.mark.parametrize("outlier_ratio", [2.0, math.inf], ids=["at once", "by probes"])
def test_what_aligned_neurons_hardly_see_is_learned(outlier_ratio, monkeypatch):
    """From 1e-20 all neurons turn away from the sample long before the others are fitted."""
    monkeypatch.setattr(sample_field, "_CHEAP_PRODUCTS", 0)
    monkeypatch.setattr(sample_field, "_OUTLIER_RATIO", outlier_ratio)
    data, init, generator = lone_sample(), Gaussian(1e-20), torch.Generator().manual_seed(0)
    net = PReLUNet(60, 40, 1.5, init=init, dtype=torch.float64, generator=generator)
    info = gradient_flow(net, data, until=6e4).info
    assert float(net(data.x).detach()[0]) > 2.0
    assert info["subspace"] < 20


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_units_may_be_unequal(p):
    found, info = off(unequal_units(), p, until=3.0, loss="logistic")
    assert found < 1e-3
    assert info["subspace"] == 20  # where it is cheap, all directions


def test_a_sample_to_which_a_neuron_is_closed_never_pulls_it():
    """After alignment nearly all neurons are within a thousandth of the rare samples' kink."""
    found, _ = off(rare_group(), 1.0, until=8000.0)
    assert found < 3e-3


@pytest.mark.parametrize("watched", [True, False])
def test_the_last_stage_finds_what_its_subspace_lacks(watched, monkeypatch):
    """Its subspace begins with the directions of the neurons alone, without what pulls them."""
    group_flow, take_basis = fitting_stage.GroupFlow, fitting_stage.GroupFlow._take_basis

    def narrow(self, rows):
        count = len(self.first_theta)  # the rows end with the neurons' directions and pulls
        take_basis(self, rows if hasattr(self, "basis") else rows[-2 * count : -count])

    monkeypatch.setattr(coupled_stage, "_FEW_PRODUCTS", 0)
    monkeypatch.setattr(group_flow, "_take_basis", narrow)
    if not watched:
        monkeypatch.setattr(group_flow, "_widen_if_needed", lambda _: None)
    found, info = off(rare_group(), 2.0, until=8000.0)
    assert math.isfinite(info["gathered"])
    assert (found < 1e-3) if watched else (found > 0.05)
