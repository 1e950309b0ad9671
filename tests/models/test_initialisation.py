"""Initialisations: their scales, bounds and balance, and who owns given weights."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import kstest

from extremal.models import Balanced, Explicit, Gaussian, Kaiming, PReLUNet

DIM, WIDTH, OUTPUTS = 40, 100, 3


def draw(init, outputs=OUTPUTS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return init.draw(DIM, WIDTH, outputs, generator=generator)


@pytest.mark.parametrize("init", [Gaussian(1e-7), Balanced(1e-3), Kaiming()], ids=repr)
def test_draws_have_their_shapes_and_follow_the_generator(init):
    first, again, other = draw(init), draw(init), draw(init, seed=1)
    for name, shape in (("neurons", (WIDTH, DIM)), ("votes", (OUTPUTS, WIDTH))):
        assert tuple(getattr(first, name).shape) == shape
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))
    assert (first.hidden_bias.shape, first.bias.shape) == ((WIDTH,), (OUTPUTS,))


def test_gaussian_weights_have_the_given_deviation():
    drawn = draw(Gaussian(1e-7))
    for part in (drawn.neurons, drawn.votes, drawn.hidden_bias):
        assert kstest((part.flatten() / 1e-7).numpy(), "norm").pvalue > 0.01
    assert bool((drawn.bias == 0).all())


@pytest.mark.parametrize("outputs", [1, OUTPUTS])
def test_balanced_votes_are_as_long_as_their_neurons(outputs):
    drawn = draw(Balanced(1e-3), outputs)
    lengths = drawn.neurons.norm(dim=1)
    torch.testing.assert_close(drawn.votes.norm(dim=0), lengths, rtol=1e-14, atol=0)
    assert float(lengths.max()) <= 1e-3
    assert kstest(((1e3 * DIM**0.5 * drawn.neurons + 1) / 2).flatten().numpy(), "uniform")[1] > 0.01
    positive = int((drawn.votes > 0).sum())  # of 100 (or 300) fair signs: four deviations
    assert abs(positive - 50 * outputs) <= 20 * outputs**0.5
    assert bool((drawn.hidden_bias == 0).all() & (drawn.bias == 0).all())


def test_kaiming_weights_are_uniform_within_their_bounds():
    drawn = draw(Kaiming())
    for part, bound in (
        (drawn.neurons, (6 / WIDTH) ** 0.5),
        (drawn.votes, WIDTH**-0.5),
        (drawn.hidden_bias, DIM**-0.5),
    ):
        assert kstest(((part / bound + 1) / 2).flatten().numpy(), "uniform").pvalue > 0.01
    assert float(drawn.bias.abs().max()) <= WIDTH**-0.5


def test_given_weights_are_copied_and_biases_default_to_zero(generator):
    neurons, votes = torch.ones(4, 3, dtype=torch.float64), torch.ones(2, 4, dtype=torch.float64)
    net = PReLUNet(
        3,
        4,
        outputs=2,
        bias=True,
        hidden_bias=True,
        init=Explicit(neurons, votes),
        dtype=torch.float64,
        generator=generator,
    )
    assert torch.equal(net.neurons, neurons)
    assert torch.equal(net.votes, votes)
    assert not net.hidden_bias.any()
    assert not net.bias.any()
    net.neurons.data.zero_()
    net.votes.data.zero_()
    assert bool((neurons == 1).all() & (votes == 1).all())
