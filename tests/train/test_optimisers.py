"""Gradient steps folded into the products, against the gradient by itself and autograd loops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from extremal.models import Gaussian, PReLUNet
from extremal.train import Loss, gd, loss_and_gradient, sgd
from extremal.train.optimisers import fused_sgd_step
from tests.train.flow_problem import Twin, largest_difference, problem

FROZEN = ((), ("neurons",), ("votes",), ("neurons", "bias"), ("hidden_bias",))


def stepped(net: PReLUNet, data, loss: Loss, lr: float) -> tuple[float, PReLUNet]:
    """The loss, and a copy after theta <- theta - lr grad L(theta), gradient first."""
    new = copy.deepcopy(net)
    value, gradient = loss_and_gradient(net, data.x, data.y, loss)
    with torch.no_grad():
        for name, slope in gradient.items():
            new.get_parameter(name).sub_(lr * slope)
    return float(value), new


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda names: "-".join(names) or "none")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
def test_a_folded_step_is_the_gradient_step(p, outputs, reduction, frozen):
    net, data = problem(p, outputs=outputs, biases=True)
    with torch.no_grad():
        net.bias.copy_(torch.linspace(-0.3, 0.4, outputs))
    net.freeze(*frozen)
    loss = Loss("exp" if outputs == 1 else "cross-entropy", reduction)
    before = copy.deepcopy(net)
    value, wanted = stepped(net, data, loss, 0.07)
    assert float(fused_sgd_step(net, data.x, data.y, loss, 0.07)) == pytest.approx(value, rel=1e-14)
    assert largest_difference(net, wanted) < 1e-14
    for name, part in net.named_parameters():
        assert torch.equal(part, before.get_parameter(name)) == (name in frozen)


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("size", [1e-20, 1e-30])
def test_tiny_float32_weights_are_moved(p, size):
    # Their squares underflow in float32; a step multiplies weights by a number of order one.
    _, data = problem(p, dtype=torch.float32)
    settings = {"init": Gaussian(size), "generator": torch.Generator().manual_seed(0)}
    net = PReLUNet(3, 5, p, dtype=torch.float32, **settings)
    wide = copy.deepcopy(net).double()
    _, wanted = stepped(wide, data.to(torch.float64), Loss("exp"), 0.5)
    fused_sgd_step(net, data.x, data.y, Loss("exp"), 0.5)
    for name, part in net.named_parameters():
        aim = wanted.get_parameter(name).detach()
        gap = (part.detach().double() - aim).abs().max() / aim.abs().max()
        assert float(gap) < 1e-5
        assert float((aim - wide.get_parameter(name)).detach().abs().max()) > 0.05 * size


def test_a_neuron_of_zeros_stays_and_harms_nothing():
    net, data = problem(3.0, biases=True)
    with torch.no_grad():
        net.neurons[2] = 0.0
        net.hidden_bias[2] = 0.0
    _, wanted = stepped(net, data, Loss("exp"), 0.1)
    fused_sgd_step(net, data.x, data.y, Loss("exp"), 0.1)
    assert largest_difference(net, wanted) < 1e-14
    assert not bool(net.neurons[2].any())


@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("outputs", [1, 3])
def test_gd_is_a_loop_of_autograd(p, outputs):
    net, data = problem(p, outputs=outputs, biases=True)
    twin, loss = Twin(net), Loss("logistic" if outputs == 1 else "cross-entropy")
    for _ in range(20):
        twin.zero_grad()
        loss.value(twin(data.x), data.y).backward()
        with torch.no_grad():
            for part in twin.parameters():
                part.sub_(0.1 * part.grad)
    gd(net, data, loss=loss, lr=0.1, steps=20)
    assert largest_difference(net, twin) < 1e-12


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_sgd_is_a_loop_of_autograd_over_the_same_batches(p):
    net, data = problem(p, outputs=3, biases=True)
    twin, generator = Twin(net), torch.Generator().manual_seed(9)
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(4):  # epochs of 4 + 4 + 3 points
        for index in torch.randperm(len(data), generator=generator).split(4):
            optimiser.zero_grad()
            nn.functional.cross_entropy(twin(data.x[index]), data.y[index]).backward()
            optimiser.step()
    settings = {"lr": 0.1, "batch": 4, "steps": 12}
    generator = torch.Generator().manual_seed(9)
    sgd(net, data, loss="cross-entropy", generator=generator, **settings)
    assert largest_difference(net, twin) < 1e-12
