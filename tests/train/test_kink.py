"""For p = 1 the slope of relu at 0 itself, 0 here, does not matter on generic data."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from extremal.models import power
from extremal.train import gd, gradient_flow
from tests.train.twin import largest_difference, problem

USERS = ("models.prelu", "train.samples", "train.fitting", "train.fused")


@pytest.fixture
def slope_one(monkeypatch):
    """Puts the slope 1 at exactly 0, wherever it is used; counts the zeros it met."""
    zeros = []

    def other(s: Tensor, p: float) -> tuple[Tensor, Tensor]:
        value, slope = power.relu_power_with_slope(s, p)
        zeros.append(int((s == 0).sum()))
        return value, torch.where(s == 0, 1.0, slope) if p == 1.0 else slope

    def use() -> list[int]:
        for name in USERS:
            monkeypatch.setattr(f"extremal.{name}.relu_power_with_slope", other)
        return zeros

    return use


def test_the_slope_is_taken_as_zero(slope_one):
    s = torch.tensor([-1.0, 0.0, 2.0])
    assert power.relu_power_with_slope(s, 1.0)[1].tolist() == [0.0, 0.0, 1.0]
    net, data = problem(1.0)
    with torch.no_grad():
        net.neurons[0] = 0.0  # a neuron at the kink of every sample does feel it
    before = net.neurons.detach().clone()
    gd(net, data, lr=0.1, steps=1)
    assert torch.equal(net.neurons[0], before[0])
    slope_one()
    gd(net, data, lr=0.1, steps=1)
    assert not torch.equal(net.neurons[0], before[0])


@pytest.mark.parametrize("settings", [{"tolerance": 1e-6}, {"tolerance": 1e-3}], ids=str)
def test_generic_data_do_not_feel_the_slope_at_zero(settings, slope_one):
    (net, data), (other, _) = problem(1.0), problem(1.0)
    gradient_flow(net, data, until=1.0, **settings)
    zeros = slope_one()
    gradient_flow(other, data, until=1.0, **settings)
    assert zeros
    assert sum(zeros) == 0
    assert largest_difference(net, other) < 1e-6


def test_nor_does_the_end_after_sliding_along_kinks(slope_one):
    (net, data), (other, _) = problem(1.0, seed=4), problem(1.0, seed=4)
    gradient_flow(net, data, until=0.4, tolerance=1e-5)
    slope_one()
    gradient_flow(other, data, until=0.4, tolerance=1e-5)
    with torch.no_grad():
        gap = (net(data.x) - other(data.x)).abs().max()
    assert float(gap) < 2e-3
