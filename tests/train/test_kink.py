"""For p = 1 the slope of relu at 0 itself, 0 here: where it does not matter, and where it does.

A neuron w = (1, 0), v = 1 starts on the kink of a second sample along the second axis. What decides
is where the velocities on the two sides of the kink lead.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models import Explicit, Gaussian, PReLUNet, activations
from extremal.train import gd, gradient_flow
from extremal.train.flow import coupled_stage
from tests.train.flow_problem import largest_difference, problem

USERS = (
    "models.prelu_net.relu_power_with_slope",
    "train.flow.sample_field.relu_power_with_slope",
    "train.flow.sample_field.relu_power_with_slope_",
    "train.optimisers.relu_power_with_slope",
)
THROUGH = ([[0.8, 0.6], [0.0, 1.0]], [1, 1])  # upwards on both sides
AGAINST = ([[0.8, 0.6], [0.0, 2.0]], [1, -1])  # towards the kink: it slides along it
ALONG = ([[0.8, 0.0], [0.0, 0.0]], [1, 1])  # what is left of the last one on its kink
APART = ([[0.8, -0.6], [0.0, 1.0]], [1, 1])  # away from the kink
ORTHOGONAL = ([[1.0, 0.0], [0.0, 1.0]], [1, 1])  # the first sample does not move it off


@pytest.fixture
def slope_one(monkeypatch):
    """Puts the slope 1 at exactly 0, wherever it is used; counts the zeros it met."""
    zeros = []

    def other(s: Tensor, p: float) -> tuple[Tensor, Tensor]:
        value, slope = activations.relu_power_with_slope(s, p)
        zeros.append(int((s == 0).sum()))
        return value, torch.where(s == 0, 1.0, slope) if p == 1.0 else slope

    def use() -> list[int]:
        for name in USERS:
            monkeypatch.setattr(f"extremal.{name}", other)
        return zeros

    return use


def flown(points, tolerance: float, height: float = 0.0) -> PReLUNet:
    """The neuron after flow time 1, from `height` above the kink of the second sample."""
    x, y = points
    w = torch.tensor([[1.0, height]], dtype=torch.float64)
    init = Explicit(w, torch.ones(1, 1, dtype=torch.float64))
    net = PReLUNet(2, 1, 1.0, init=init, dtype=torch.float64, generator=torch.Generator())
    data = Dataset(torch.tensor(x, dtype=torch.float64), torch.tensor(y))
    gradient_flow(net, data, until=1.0, method="general", tolerance=tolerance)
    return net


def test_the_slope_is_taken_as_zero_so_a_zero_neuron_rests(slope_one):
    s = torch.tensor([-1.0, 0.0, 2.0])
    assert activations.relu_power_with_slope(s, 1.0)[1].tolist() == [0.0, 0.0, 1.0]
    net, data = problem(1.0)
    with torch.no_grad():
        net.neurons[0] = 0.0  # at the kink of every sample
    before = net.neurons.detach().clone()
    gd(net, data, lr=0.1, steps=1)
    assert torch.equal(net.neurons[0], before[0])
    slope_one()
    gd(net, data, lr=0.1, steps=1)
    assert not torch.equal(net.neurons[0], before[0])


@pytest.mark.parametrize("tolerance", [1e-5, 1e-7, 1e-9])
def test_a_kink_that_is_crossed_does_not_matter(tolerance, slope_one):
    ours, below = flown(THROUGH, tolerance), flown(THROUGH, tolerance, -1e-12)
    zeros = slope_one()
    other = flown(THROUGH, tolerance)
    assert sum(zeros) > 0
    # The first slope differs; what is left of that shrinks with the steps that kinks allow.
    assert 0.0 < largest_difference(ours, other) < 0.1 * tolerance**0.5
    assert largest_difference(ours, below) < 1e-10


def test_nor_does_a_kink_that_is_slid_along(slope_one):
    exact = flown(ALONG, 1e-9)
    ours = flown(AGAINST, 1e-5)
    zeros = slope_one()
    other = flown(AGAINST, 1e-5)
    assert sum(zeros) > 0
    for net in (ours, other):
        assert largest_difference(net, exact) < 2.0 * 1e-5**0.5
    assert largest_difference(ours, other) > 0.0


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_stages_follow_a_slide_to_the_tolerance(tolerance):
    """Its ramp is followed to a tenth of its width or so, and not to the root of the tolerance."""
    assert largest_difference(flown(AGAINST, tolerance), flown(ALONG, 1e-9)) < 3.0 * tolerance


@pytest.mark.parametrize("points", [APART, ORTHOGONAL], ids=["leads apart", "never left"])
def test_it_decides_where_the_kink_is_left_to_either_side_or_never(points, slope_one):
    """Two solutions start there: on the weights, ours is that without the second sample's pull.

    The stages turn the axes, and rounding decides.
    """
    ours, above = flown(points, 1e-6), flown(points, 1e-6, 1e-12)
    slope_one()
    other = flown(points, 1e-6)
    assert ours.neurons[0, 1].item() < 1e-12
    assert other.neurons[0, 1].item() > 0.1
    assert largest_difference(other, above) < 1e-9


def test_late_slides_are_followed_in_stabilised_steps(monkeypatch):
    """Two blobs that overlap: neurons slide along kinks long after the loss has settled."""

    def followed() -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(0)
        y = 2 * torch.randint(0, 2, (120,), generator=generator) - 1
        x = 0.8 * torch.randn(120, 2, generator=generator, dtype=torch.float64)
        points = Dataset(x + torch.stack([y, 0 * y], 1), y)
        settings = {"init": Gaussian(1e-4), "dtype": torch.float64, "generator": generator}
        net = PReLUNet(2, 60, 1.0, **settings)
        info = gradient_flow(net, points, until=300.0).info
        return net(points.x).detach(), info["right_hand_sides"]

    stabilised, few = followed()
    monkeypatch.setattr(coupled_stage, "_LEAST_STIFF_STEPS", math.inf)
    explicit, many = followed()
    assert float((stabilised - explicit).abs().max() / explicit.abs().max()) < 1e-4
    assert few < 0.6 * many
