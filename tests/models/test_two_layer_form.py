"""The one form of shallow networks: outputs, margins and gradients are those of the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.models import Grouped, as_two_layer_form, is_shallow, margin, margin_gradient
from tests.models.helpers_networks import (
    POWERS,
    TRIPLES,
    Config,
    make_net,
    make_points,
    points_off_kinks,
)


def labels_for(net, x, generator):
    count = net.outputs
    if count == 1:
        return 2 * torch.randint(0, 2, (len(x),), generator=generator) - 1
    return torch.randint(0, count, (len(x),), generator=generator)


@pytest.mark.parametrize("p", POWERS)
def test_outputs_and_margins_are_the_networks(p, generator):
    for config in TRIPLES:
        net = make_net(config, p, generator)
        x = make_points(20, generator)
        form = as_two_layer_form(net)
        out = net(x).detach()
        wanted = torch.stack([-out / 2, out / 2], 1) if net.outputs == 1 else out
        torch.testing.assert_close(form.outputs(x), wanted, rtol=1e-11, atol=1e-11)
        y = labels_for(net, x, generator)
        torch.testing.assert_close(
            form.margins(x, form.own(y)), margin(net, x, y).detach(), rtol=1e-10, atol=1e-11
        )


@pytest.mark.parametrize("p", POWERS)
def test_gradients_are_the_networks(p, generator):
    """Of the margin: the weights of the own output less those of the rival."""
    for config in TRIPLES[::2]:
        net = make_net(config, p, generator)
        x = points_off_kinks(net, 10, generator)
        form, y = as_two_layer_form(net), labels_for(net, x, generator)
        own = form.own(y)
        at = form.preparation.at(x)
        out, slope = form.powers(at)
        torch.testing.assert_close(out, form.outputs(x), rtol=1e-12, atol=1e-12)
        mine = out.masked_fill(~own, -torch.inf).argmax(1)
        rival = out.masked_fill(own, -torch.inf).argmax(1)
        found = form.gradient(at, slope, form.weights[mine] - form.weights[rival])
        torch.testing.assert_close(found, margin_gradient(net, x, y)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("signed", [False, True])
def test_grouped_networks(signed, generator):
    for p in POWERS:
        fine = make_net(Config(outputs=3, bias=True, center=True), p, generator)
        net = Grouped(fine, torch.tensor([1, 0, 1]), signed=signed)
        x = points_off_kinks(fine, 10, generator)
        y = torch.randint(0, 2, (10,), generator=generator)
        y = 2 * y - 1 if signed else y
        form = as_two_layer_form(net)
        own = form.own(y)
        value = margin(net, x, y).detach()
        torch.testing.assert_close(form.margins(x, own), value, rtol=1e-10, atol=1e-11)
        at = form.preparation.at(x)
        out, slope = form.powers(at)
        mine = out.masked_fill(~own, -torch.inf).argmax(1)
        rival = out.masked_fill(own, -torch.inf).argmax(1)
        found = form.gradient(at, slope, form.weights[mine] - form.weights[rival])
        torch.testing.assert_close(found, margin_gradient(net, x, y)[1], rtol=1e-9, atol=1e-10)


def test_a_constant_neuron_of_a_relu_network(generator):
    """w = 0 with a hidden bias counts for p = 1, and is nothing for p > 1."""
    for p in (1.0, 2.0):
        net = make_net(Config(hidden_bias=True, bias=True), p, generator)
        with torch.no_grad():
            net.neurons[0] = 0.0
            net.hidden_bias[0] = 2.0
        x = make_points(10, generator)
        torch.testing.assert_close(as_two_layer_form(net).outputs(x)[:, 1], net(x).detach() / 2)


def test_dtype_and_kind(generator):
    net = make_net(Config(center=True, hidden_bias=True, dtype=torch.float32), 2.0, generator)
    form = as_two_layer_form(net, torch.float32)
    x = make_points(10, generator).float()
    assert form.outputs(x).dtype == torch.float32
    torch.testing.assert_close(form.outputs(x)[:, 1], net(x).detach() / 2, rtol=1e-4, atol=1e-5)
    assert form.dim == net.dim
    assert torch.allclose(
        torch.linalg.vector_norm(as_two_layer_form(net).directions, dim=1), torch.ones(5).double()
    )
    assert is_shallow(net)
    assert not is_shallow(nn.Linear(3, 2))
    assert as_two_layer_form(nn.Linear(3, 2)) is None
