"""What a pReLU network keeps: homogeneity, symmetries, zero neurons, the centre, tiny weights."""

from __future__ import annotations

import pytest
import torch

from tests.models.helpers_networks import (
    POWERS,
    TRIPLES,
    Config,
    make_net,
    make_points,
    points_off_kinks,
    with_weights,
)


def agree(found, expected, rtol=1e-12):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("p", POWERS)
def test_two_homogeneous_in_the_parameters_without_biases(p, generator):
    for config in [c for c in TRIPLES if not (c.bias or c.hidden_bias)]:
        net, x = make_net(config, p, generator), make_points(6, generator)
        scaled = with_weights(net, neurons=3.0 * net.neurons, votes=3.0 * net.votes)
        agree(scaled(x), 9.0 * net(x))


@pytest.mark.parametrize("p", POWERS)
def test_order_and_rescaling_of_neurons_do_not_matter(p, generator):
    for config in TRIPLES:
        net, x = make_net(config, p, generator), make_points(6, generator)
        order = torch.randperm(net.width, generator=generator)
        factor = torch.rand(net.width, generator=generator, dtype=torch.float64) + 0.1
        parts = {
            "neurons": (factor[:, None] * net.neurons)[order],
            "votes": (net.votes / factor)[:, order],
        }
        if net.hidden_bias is not None:
            parts["hidden_bias"] = (factor * net.hidden_bias)[order]
        agree(with_weights(net, **parts)(x), net(x))


@pytest.mark.parametrize("p", POWERS)
def test_zero_neuron_adds_nothing_and_has_no_gradient(p, generator):
    for config in TRIPLES:
        net, x = make_net(config, p, generator), make_points(6, generator)
        rest = {"neurons": net.neurons[1:], "votes": net.votes[:, 1:]}
        b = torch.zeros(())
        if net.hidden_bias is not None:
            rest["hidden_bias"] = net.hidden_bias[1:]
            net.hidden_bias.data[0] = b = torch.tensor(0.7)
        net.neurons.data[0] = 0.0
        plain = b if p == 1.0 else 0.0  # relu(b) of a ReLU network, else the quotient's zero
        expected = with_weights(net, **rest)(x) + plain * net.votes[:, 0].squeeze(0)
        agree(net(x), expected)
        assert bool((net.hidden(x)[:, 0] == plain).all())
        by_hand = net.parameter_gradient(x, torch.ones_like(expected))
        net(x).sum().backward()
        for name, part in net.named_parameters():
            agree(getattr(by_hand, name), part.grad)
            own = part.grad[0] if name in ("neurons", "hidden_bias") else part.grad[..., 0]
            if name != "bias" and float(plain) == 0.0:
                assert bool((own == 0).all()), (config, name)
        assert bool(torch.isfinite(net.input_gradient(x, torch.ones_like(expected))[1]).all())


@pytest.mark.parametrize("p", POWERS)
def test_centre_is_mapped_to_zero_with_finite_gradients(p, generator):
    for config in [c for c in TRIPLES if c.normalize != 0.0]:
        net = make_net(config, p, generator)
        center = net.preparation.center
        x = torch.zeros(1, net.dim, dtype=torch.float64) if center is None else center[None].clone()
        if net.hidden_bias is None:
            assert bool((net.hidden(x) == 0).all())
        by_hand = net.parameter_gradient(x, torch.ones_like(net(x)))
        net(x.requires_grad_(True)).sum().backward()
        _, gradient = net.input_gradient(x.detach(), torch.ones_like(net(x)))
        found = [x.grad, gradient, by_hand.neurons, by_hand.votes, net.neurons.grad]
        assert all(bool(torch.isfinite(part).all()) for part in found)
        if config.normalize == 1.0:  # no derivative exists there; zero is the one that is taken
            assert bool((x.grad == 0).all() & (gradient == 0).all())


@pytest.mark.parametrize("hidden_bias", [False, True])
@pytest.mark.parametrize("p", POWERS)
def test_tiny_weights_work(p, hidden_bias, generator):
    big = make_net(Config(hidden_bias=hidden_bias), p, generator)
    x = points_off_kinks(big, 6, generator)
    scaled = {n: part.detach() for n, part in big.named_parameters() if n != "votes"}

    def shrunk(size, votes):
        return with_weights(
            big, votes=votes * big.votes, **{n: size * w for n, w in scaled.items()}
        )

    agree(shrunk(1e-60, 1e-60)(x) * 1e120, big(x))
    agree(shrunk(1e-60, 1e60)(x), big(x))
    for votes in (1.0, 1e30):
        small = shrunk(1e-30, votes).float()
        agree(small(x.float()) / (votes * 1e-30), big(x).float(), 2e-5)
        ones = torch.ones(len(x))
        found = small.parameter_gradient(x.float(), ones).neurons / votes
        agree(found, big.parameter_gradient(x, ones.double()).neurons.float(), 2e-5)
