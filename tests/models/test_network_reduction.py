"""The reduced network stays within its own bound, which is tight where it can be."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import extremal as ex
from extremal.models import Explicit, Gaussian, PReLUNet, float64_copy, polar_form
from extremal.train.losses import trainable
from tests.models.helpers_networks import Config, make_net, make_points, with_weights

DIM, KINDS, COPIES = 4, 6, 4
PREPARED = Config(center=True, scale="small", normalize="p", outputs=3)
BIASED = Config(bias=True, hidden_bias=True, outputs=2)
FULL = Config(True, True, True, "large", 0.5, 3)


def repeated(config: Config, p: float, angle: float = 0.0) -> PReLUNet:
    """Six directions, four neurons each: multiples by powers of two, turned by about `angle`."""
    generator = torch.Generator().manual_seed(1)
    few = make_net(config, p, generator, DIM, KINDS)
    turn = angle * torch.randn(COPIES * KINDS, DIM, generator=generator, dtype=torch.float64)
    size = 2.0 ** torch.arange(COPIES).repeat_interleave(KINDS)
    votes = Gaussian(1.0).draw(1, COPIES * KINDS, few.outputs, generator=generator).votes
    parts = {"neurons": size[:, None] * (few.neurons.repeat(COPIES, 1) + turn), "votes": votes}
    if few.hidden_bias is not None:
        parts["hidden_bias"] = size * few.hidden_bias.repeat(COPIES)
    return with_weights(few, **parts)


def cancelling(config: Config, p: float) -> PReLUNet:
    """A network plus its own negative, but for the first neuron."""
    net = make_net(config, p, torch.Generator().manual_seed(2), DIM, KINDS)
    opposite = torch.cat([2.0 * net.votes[:, :1], -net.votes[:, 1:]], 1)
    return with_weights(
        net, neurons=net.neurons.repeat(2, 1), votes=torch.cat([net.votes, opposite], 1)
    )


def nearly_silent(p: float) -> PReLUNet:
    """Offsets of -0.9: on the unit ball each neuron does much less than its weights could."""
    net = make_net(Config(hidden_bias=True), p, torch.Generator().manual_seed(3), 2, 60)
    return with_weights(net, hidden_bias=-0.9 * net.neurons.norm(dim=1))


@cache
def trained(p: float) -> PReLUNet:
    generator = torch.Generator().manual_seed(0)
    data = ex.data.OrthonormalMixture(6, 2, 1, 0.2).sample(200, generator=generator)
    net = PReLUNet(6, 30, p, init=Gaussian(0.01), generator=generator)
    ex.train.sgd(net, data, lr=0.2, batch=50, steps=400, generator=generator)
    assert bool((ex.models.margin(net, data.x, data.y) > 1).all())
    return net


def random(config: Config, p: float) -> PReLUNet:
    return make_net(config, p, torch.Generator().manual_seed(4), DIM, 20)


NETS = {
    "random": lambda: random(Config(), 1.5),
    "random, prepared": lambda: random(PREPARED, 3.0),
    "random, all settings": lambda: random(FULL, 2.0),
    "repeated": lambda: repeated(Config(outputs=3), 1.0),
    "repeated, float32": lambda: repeated(replace(BIASED, dtype=torch.float32), 3.0),
    "turned": lambda: repeated(Config(), 3.0, angle=1e-4),
    "turned, biases": lambda: repeated(BIASED, 1.0, angle=1e-3),
    "turned, all settings": lambda: repeated(FULL, 4.5, angle=1e-4),
    "one direction, many offsets": lambda: with_weights(
        repeated(BIASED, 1.0), hidden_bias=torch.ones(COPIES * KINDS)
    ),
    "turned, float32": lambda: repeated(replace(PREPARED, dtype=torch.float32), 1.5, angle=1e-3),
    "cancelling": lambda: cancelling(Config(outputs=2), 3.0),
    "nearly silent": lambda: nearly_silent(3.0),
    "trained, p = 1": lambda: trained(1.0),
    "trained, p = 3": lambda: trained(3.0),
}


def effect(net: PReLUNet, reach: float = 1.0) -> float:
    """The most that f could be where prepared inputs have norm `reach`."""
    form = polar_form(net)
    return float((form.weights.abs() * (reach + form.all_offsets).relu() ** net.p).sum(1).max())


def largest_difference(net: PReLUNet, small: PReLUNet, radius: float, center: Tensor) -> float:
    """max |f - f'| over a ball, by gradient ascent from random points and neurons' directions."""
    one, other = float64_copy(net), float64_copy(small)
    generator = torch.Generator().manual_seed(5)
    starts = torch.cat([make_points(40, generator, net.dim), polar_form(net).directions])
    delta = radius * normalize(starts, dim=1)
    delta[:10] *= torch.rand(10, 1, generator=generator, dtype=torch.float64)
    best = 0.0
    for step in torch.logspace(-0.3, -2, 20).tolist():
        x = (center + delta).requires_grad_(True)
        gaps = (one(x) - other(x)).abs().reshape(len(x), -1).amax(1)
        assert bool(torch.isfinite(gaps).all())
        best = max(best, float(gaps.detach().max()))
        (slope,) = torch.autograd.grad(gaps.sum(), x)
        delta = delta + step * radius * normalize(slope, dim=1, eps=1e-300)
        delta = delta * (radius / delta.norm(dim=1, keepdim=True)).clamp(max=1.0)
    return best


@pytest.mark.parametrize("tolerance", [1e-9, 1e-3, 0.1])
@pytest.mark.parametrize("kind", NETS)
def test_no_point_exceeds_the_bound(kind, tolerance):
    net = NETS[kind]()
    small = net.effective(tolerance)
    away = torch.linspace(-1.0, 1.0, net.dim, dtype=torch.float64)
    for radius, center in ((1.0, 0 * away), (3.0, 0 * away), (0.5, away)):
        reach = net.preparation.reach(radius, center)
        found = largest_difference(net, small, radius, center)
        rounding = 1e-13 * effect(net, reach)
        assert found <= small.reduction.bound(radius, center) + rounding
    assert small.reduction.bound(1.0) == small.reduction.bound(1.0, 0 * away)


@pytest.mark.parametrize("tolerance", [0.0, 1e-9, 1e-3, 0.1, 0.5])
@pytest.mark.parametrize("kind", NETS)
def test_bound_on_the_prepared_unit_ball_is_as_promised(kind, tolerance):
    net = NETS[kind]()
    small = net.effective(tolerance)
    bound = small.reduction.bound(1.0 / net.preparation.scale, net.preparation.center)
    form = polar_form(net)
    most = form.weights.abs().sum(1).max() * (1 + form.all_offsets.abs().max()) ** net.p
    rounding = 4 * net.p * torch.finfo(net.neurons.dtype).eps * float(most)
    assert bound <= tolerance * effect(net) + rounding
    assert small.width <= net.width
    assert tolerance < 0.5 or small.width < net.width


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("config", [Config(), BIASED, FULL])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_exact_copies_are_merged(p, config, dtype):
    net = repeated(replace(config, dtype=dtype), p)
    assert net.effective(1e-9).width == KINDS
    assert repeated(config, p, angle=1e-2).effective(1e-9).width == COPIES * KINDS


def test_zero_neurons_of_a_biased_relu_network_become_the_output_bias(generator):
    net = make_net(BIASED, 1.0, generator)
    net.neurons.data[:2] = 0.0
    net.hidden_bias.data[:2] = torch.tensor([0.7, -0.7])
    x = make_points(20, generator)
    small = net.effective()
    assert small.width == net.width - 2
    torch.testing.assert_close(small(x), net(x), rtol=1e-12, atol=1e-12)
    assert make_net(BIASED, 3.0, generator).effective(0.0).width == net.width


def test_network_of_zeros_keeps_one_neuron(generator):
    zero = Explicit(torch.zeros(4, 3), torch.ones(1, 4))
    small = PReLUNet(3, 4, 3.0, init=zero, generator=generator).effective()
    assert (small.width, small.reduction.bound(5.0)) == (1, 0.0)
    assert not small(torch.ones(2, 3)).any()


def small_net(p, neurons, votes, biases, dtype=torch.float64) -> PReLUNet:
    init = Explicit(torch.tensor(neurons), torch.tensor([votes]), torch.tensor(biases))
    settings = {"hidden_bias": True, "dtype": dtype, "generator": torch.Generator()}
    return PReLUNet(len(neurons[0]), len(neurons), p, init=init, **settings)


AXES = [[1.0, 0.0], [0.0, 1.0]]
PAIR = [[1.0, 1e-3], [1.0, -1e-3]]
# Each has one kind of change only, at a size that some point of the ball shows in full.
TIGHT = {
    "dropped": (small_net(3.0, AXES, [1.0, 1e-3], [0.0, 0.0]), 0.1),
    "dropped, offset": (small_net(3.0, AXES, [1.0, 1e-3], [0.0, 0.5]), 0.1),
    "turned": (small_net(1.0, PAIR, [1.0, -1.0], [0.0, 0.0]), 0.1),
    "shifted": (small_net(3.0, [[1.0], [1.0]], [1.0, -1.0], [1e-3, -1e-3]), 0.1),
    "rounded": (small_net(2.0, [[0.3]], [0.7], [0.0], torch.float32), 0.0),
    "constant rounded": (
        small_net(1.0, [[0.0], [1.0]], [0.1, 1.0], [0.1, 0.0], torch.float32),
        0.0,
    ),
}


@pytest.mark.parametrize("radius", [1.0, 2.0])
@pytest.mark.parametrize("kind", TIGHT)
def test_bound_is_attained(kind, radius):
    net, tolerance = TIGHT[kind]
    small = net.effective(tolerance)
    bound = small.reduction.bound(radius)
    found = largest_difference(net, small, radius, torch.zeros(net.dim, dtype=torch.float64))
    assert bound > 0
    assert 0.95 * bound <= found <= bound * (1 + 1e-6)


@pytest.mark.parametrize("kind", NETS)
def test_training_it_is_refused_but_inputs_have_gradients(kind):
    net = NETS[kind]()
    small = net.effective(0.1)
    assert not any(part.requires_grad for part in small.parameters())
    assert all(part.requires_grad for part in net.parameters())
    with pytest.raises(ValueError, match="net must have a parameter that is not frozen"):
        trainable(small)
    x = torch.ones(2, net.dim, dtype=net.neurons.dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(small(x).sum(), x)
    toward = torch.ones(2, net.outputs, dtype=x.dtype)
    torch.testing.assert_close(slope, small.input_gradient(x.detach(), toward)[1])
