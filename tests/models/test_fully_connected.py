"""Networks to compare with: straight formulas, finite differences, and the shallow network."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from extremal import attack, train
from extremal.certify import can_certify
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import (
    ACTIVATIONS,
    MLP,
    DeepPReLU,
    Gaussian,
    PowerReLU,
    PReLULayer,
    PReLUNet,
    Preparation,
    mlp,
)
from tests.models.helpers_networks import POWERS, make_points
from tests.models.test_gradients import close, differences

double = torch.float64
DIVISIONS = ("none", "input", "output")
FORMULAS = {
    "relu": lambda s: s * (s > 0),
    "tanh": lambda s: 1 - 2 / (torch.exp(2 * s) + 1),
    "leaky-relu": lambda s: torch.maximum(s, 0.01 * s),
    "gelu": lambda s: s * (1 + torch.erf(s / 2**0.5)) / 2,
}


def g(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def deep(p: float, widths=(4, 4), **settings) -> DeepPReLU:
    return DeepPReLU(3, widths, p, init=0.8, dtype=double, generator=g(), **settings)


def attack_on(net: nn.Module) -> None:
    """Attack points of the wrong dimension."""
    x = torch.ones(2, 5, dtype=double)
    attack.run(net, x, torch.tensor([1, -1]), radius=0.1, generator=g())


def straight(w: Tensor, x: Tensor, p: float) -> Tensor:
    """relu(<w_j, x_i>)^p / ||w_j||^(p-1), entry by entry."""
    rows = [[max(float(a @ b), 0.0) ** p / float(b @ b) ** ((p - 1) / 2) for b in w] for a in x]
    return torch.tensor(rows, dtype=double)


@pytest.mark.parametrize("p", POWERS)
def test_power_relu_is_the_power_of_the_positive_part(p):
    s = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=double, requires_grad=True)
    out = PowerReLU(p)(s)
    out.sum().backward()
    torch.testing.assert_close(out, torch.tensor([0.0, 0.0, 0.5**p, 3.0**p], dtype=double))
    torch.testing.assert_close(
        s.grad, torch.tensor([0.0, 0.0, p * 0.5 ** (p - 1), p * 3.0 ** (p - 1)], dtype=double)
    )


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("widths", [(), (4,), (4, 2, 5)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_mlp_is_its_formula(name, widths, outputs, generator):
    net = mlp(3, widths, name, outputs, dtype=double, generator=generator)
    x = make_points(6, generator)
    h = x
    parts = list(net.parameters())
    assert len(parts) == 2 * len(widths) + 2
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        h = FORMULAS[name](h @ weight.T + bias)
    expected = h @ parts[-2].T + parts[-1]
    torch.testing.assert_close(net(x), expected[:, 0] if outputs == 1 else expected)
    assert (net.dim, net.outputs) == (3, outputs)
    assert [len(part) for part in parts[1::2]] == [*widths, outputs]


def test_logistic_regression_by_gradient_descent_meets_its_optimality(generator):
    x = make_points(40, generator)
    y = torch.where(x[:, 0] + make_points(40, generator)[:, 0] > 0, 1, -1)
    net = mlp(3, (), dtype=double, generator=generator)
    train.gd(net, Dataset(x, y), loss="logistic", lr=1.0, steps=400)
    slope = y * torch.sigmoid(-y * net(x).detach())
    assert float((slope @ x).norm()) < 1e-6
    assert abs(float(slope.sum())) < 1e-6


def test_a_users_activation_is_made_anew_for_each_layer_and_trained(generator):
    class Bend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.size = nn.Parameter(torch.tensor(0.5))

        def forward(self, s: Tensor) -> Tensor:
            return s + self.size * torch.sin(s)

    net = mlp(3, (4, 4), Bend, bias=False, dtype=double, generator=generator)
    x = make_points(5, generator)
    a, one, b, two, c = net.parameters()
    assert one is not two
    assert one.dtype == double
    first = x @ a.T
    second = (first + 0.5 * torch.sin(first)) @ b.T
    expected = (second + 0.5 * torch.sin(second)) @ c.T
    torch.testing.assert_close(net(x), expected[:, 0])
    train.gd(net, Dataset(x, torch.tensor([1, -1, 1, 1, -1])), lr=0.1, steps=2)
    assert one.item() != 0.5
    cubic = mlp(3, (4,), partial(PowerReLU, 3), bias=False, dtype=double, generator=generator)
    w, v = cubic.parameters()
    torch.testing.assert_close(cubic(x), ((x @ w.T).clamp(min=0) ** 3 @ v.T)[:, 0])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_layers_of_an_mlp_are_a_chain_with_a_lipschitz_certificate(name, generator):
    net = mlp(3, (4, 4), name, generator=generator)
    assert type(net).forward is nn.Sequential.forward
    assert can_certify(net)
    assert not can_certify(mlp(3, (4,), lambda: PowerReLU(2), generator=generator))


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("normalize", DIVISIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_deep_prelu_is_its_formula(residual, normalize, p, generator):
    net = deep(p, (4, 4, 3), residual=residual, normalize=normalize, outputs=2, bias=True)
    nn.init.constant_(net.readout.bias, 0.3)
    x = make_points(6, generator)
    h = x
    for layer in net.layers:
        out = straight(layer.neurons.detach(), h, p)
        if normalize != "none":
            size = (out if normalize == "output" else h).square().sum(1, keepdim=True).sqrt()
            size = size if normalize == "output" else size ** (p - 1)
            out = torch.where(size > 0, out / size, 0.0)
        h = h + out if residual and out.shape[1] == h.shape[1] else out
    expected = h @ net.readout.weight.T + 0.3
    torch.testing.assert_close(net.hidden(x), h)
    torch.testing.assert_close(net(x), expected)


def test_residual_and_normalisation_change_the_network(generator):
    x = make_points(6, generator)
    outs = [
        deep(3.0, residual=residual, normalize=normalize)(x)
        for residual in (False, True)
        for normalize in DIVISIONS
    ]
    for i, one in enumerate(outs):
        for other in outs[:i]:
            assert (one - other).abs().max().item() > 1e-3
    torch.testing.assert_close(  # no two widths agree here: nothing to add
        deep(3.0, (4, 5), residual=True)(x), deep(3.0, (4, 5))(x), rtol=0, atol=0
    )


@pytest.mark.parametrize("p", POWERS)
def test_divided_by_their_inputs_layers_are_1_homogeneous(p, generator):
    """As a shallow network that is prepared for its p, to which one layer is equal."""
    x = make_points(6, generator)
    net = deep(p, (4, 4), normalize="input")
    torch.testing.assert_close(net(2.5 * x), 2.5 * net(x))
    one = deep(p, (4,), normalize="input")
    shallow = PReLUNet(
        *(3, 4, p),
        preparation=Preparation.for_power(p),
        init=Gaussian(0.8),
        dtype=double,
        generator=g(),
    )
    torch.testing.assert_close(one(x), shallow(x))


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize(
    "settings", [{}, {"residual": True}, *({"normalize": kind} for kind in ("input", "output"))]
)
def test_gradients_are_finite_differences(p, settings, generator):
    net = deep(p, outputs=2, bias=True, **settings)
    x = nn.functional.normalize(make_points(3, generator))  # long ones make differences inexact
    cotangent = torch.randn(3, 2, generator=generator, dtype=double)
    point = x.clone().requires_grad_(True)
    (net(point) * cotangent).sum().backward()
    for name, part, found in [
        ("x", x, point.grad),
        *((name, part, part.grad) for name, part in net.named_parameters()),
    ]:
        expected = differences(lambda: float((net(x) * cotangent).sum()), part)
        assert float(expected.norm()) > 1e-3, name
        assert close(found, expected), name


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("p", POWERS)
def test_one_layer_is_the_shallow_network(p, bias, outputs, generator):
    one = DeepPReLU(3, (5,), p, outputs, bias=bias, init=0.7, dtype=double, generator=g(1))
    net = PReLUNet(3, 5, p, outputs, bias=bias, init=Gaussian(0.7), dtype=double, generator=g(1))
    assert torch.equal(one.layers[0].neurons, net.neurons)
    assert torch.equal(one.readout.weight, net.votes)
    x = make_points(6, generator)
    cotangent = torch.randn(net(x).shape, generator=generator, dtype=double)
    points = [x.clone().requires_grad_(True) for _ in range(2)]
    for module, point in zip((one, net), points, strict=True):
        (module(point) * cotangent).sum().backward()
    tight = {"rtol": 1e-12, "atol": 1e-13}
    torch.testing.assert_close(one(x), net(x), **tight)
    torch.testing.assert_close(points[0].grad, points[1].grad, **tight)
    by_hand = net.parameter_gradient(x, cotangent)
    torch.testing.assert_close(one.layers[0].neurons.grad, by_hand.neurons, **tight)
    torch.testing.assert_close(one.readout.weight.grad, by_hand.votes, **tight)
    if bias:
        torch.testing.assert_close(one.readout.bias.grad, by_hand.bias, **tight)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("normalize", DIVISIONS)
def test_zero_neurons_and_zero_rows_give_zero_with_zero_gradients(normalize, p):
    net = deep(p, normalize=normalize)
    with torch.no_grad():
        net.layers[0].neurons[1] = 0.0
        net.layers[1].neurons.zero_()
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]], dtype=double, requires_grad=True)
    first = net.layers[0](x)
    assert first.max().item() > 0
    assert torch.equal(first[:, 1], torch.zeros(2, dtype=double))
    out = net(x)
    assert torch.equal(out, torch.zeros(2, dtype=double))
    (out.sum() + first.sum()).backward()
    assert bool(torch.isfinite(x.grad).all())
    assert float(net.layers[0].neurons.grad[1].abs().max()) == 0
    assert float(net.layers[1].neurons.grad.abs().max()) == 0


@pytest.mark.parametrize("size", [1e-25, 1e-30])
def test_small_weights_neither_underflow_nor_change_the_normalised_network(size):
    net = DeepPReLU(3, (4, 4), 3.0, normalize="output", init=1.0, generator=g(2))
    x = make_points(5, g(3)).float()
    expected = net(x).detach()
    with torch.no_grad():
        for layer in net.layers:
            layer.neurons.mul_(size)
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-5)
    assert float(expected.abs().max()) > 0.1


def test_the_generator_alone_decides_the_weights():
    makers = [
        lambda seed, **kind: mlp(3, (4, 2), generator=g(seed), **kind),
        lambda seed, **kind: DeepPReLU(3, (4, 2), 3.0, generator=g(seed), bias=True, **kind),
    ]
    before = torch.get_rng_state()
    for make in makers:
        for init in ("default", 0.1):
            one, two, other = make(1, init=init), make(1, init=init), make(2, init=init)
            wide = make(1, init=init, dtype=double)
            for a, b, c, d in zip(
                *(net.parameters() for net in (one, two, other, wide)), strict=True
            ):
                assert torch.equal(a, b)
                assert torch.equal(a, d.float())
                assert init == 0.1 or not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_initialisations_have_their_stated_law():
    net = mlp(100, (400,), init=0.3, generator=g())
    assert net[0].weight.std().item() == pytest.approx(0.3, rel=0.02)
    assert net[0].bias.abs().max().item() == 0
    net = mlp(100, (400,), generator=g())
    for part, bound in zip(net.parameters(), (0.1, 0.1, 0.05, 0.05), strict=True):
        assert part.abs().max().item() <= bound
    assert net[0].weight.abs().max().item() > 0.0999
    assert net[0].weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.02)
    assert net[0].bias.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)
    neurons = PReLULayer(100, 400, 3.0, generator=g()).neurons
    assert torch.equal(neurons, net[0].weight)


@pytest.mark.parametrize(
    "make",
    [
        partial(mlp, 10, (8, 8)),
        partial(mlp, 10, (8,), lambda: PowerReLU(2.5)),
        partial(DeepPReLU, 10, (8, 8), 2.0, residual=True, normalize="output"),
    ],
)
def test_training_and_attacks_take_them(make, generator):
    data = OrthonormalMixture(10, 2, 1, 0.1).sample(60, generator=generator)
    net = make(generator=generator)
    train.sgd(net, data, lr=0.2, batch=20, steps=200, generator=generator)
    few = data.take(slice(0, 8))
    found = [
        attack.run(net, few.x, few.y, radius=radius, steps=5, generator=generator)
        for radius in (1e-3, 2.0)
    ]
    assert [result.accuracy for result in found] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PowerReLU(0.5), "p must be a finite number >= 1, got 0.5"),
        (lambda: PReLULayer(2, 3, 0.9, generator=g()), "p must be a finite number >= 1, got 0.9"),
        (lambda: PReLULayer(0, 3, 2, generator=g()), "inputs must be an integer >= 1, got 0"),
        (lambda: deep(0.0), "p must be a finite number >= 1, got 0.0"),
        (lambda: deep(2.0, residual="no"), "residual must be True or False, got str"),
        (lambda: attack_on(deep(2.0)), "x must be a floating-point tensor of shape (n, 3)"),
        (
            lambda: attack_on(mlp(3, (4,), generator=g())),
            "x must be a floating-point tensor of shape (n, 3)",
        ),
        (lambda: deep(2.0, normalize=True), "normalize must be one of 'none', 'input', 'output'"),
        (lambda: deep(2.0, ()), "widths must have at least one hidden width, got ()"),
        (lambda: deep(2.0, (4, 0)), "widths[1] must be an integer >= 1, got 0"),
        (lambda: mlp(3, (0,), generator=g()), "widths[0] must be an integer >= 1, got 0"),
        (lambda: mlp(3, 4, generator=g()), "widths must be a sequence of hidden widths"),
        (lambda: mlp(0, (4,), generator=g()), "dim must be an integer >= 1, got 0"),
        (lambda: mlp(3, (4,), "swish", generator=g()), "or make a module, such as nn.SiLU, got 's"),
        (
            lambda: mlp(3, (4,), nn.ReLU(), generator=g()),
            "activation must be one of 'relu', 'tanh'",
        ),
        (lambda: mlp(3, (4,), lambda: 1, generator=g()), "activation() must be a torch.nn.Module"),
        (lambda: mlp(3, (4,), init=0.0, generator=g()), "init must be a finite number > 0 or"),
        (lambda: mlp(3, (4,), init="kaiming", generator=g()), "\"default\", got 'kaiming'"),
        (lambda: mlp(3, (4,), init=True, generator=g()), "init must be a finite number > 0 or"),
        (lambda: mlp(3, (4,), init=float("inf"), generator=g()), "init must be a finite number"),
        (lambda: mlp(3, (4,), outputs=0, generator=g()), "outputs must be an integer >= 1, got 0"),
        (lambda: mlp(3, (4,), dtype=torch.int64, generator=g()), "dtype must be a floating-point"),
        (lambda: mlp(3, (4,), generator=1), "generator must be a torch.Generator, got 1"),
    ],
)
def test_bad_input_names_parameter_rule_and_what_came(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_an_mlp_is_cut_like_any_sequential(generator):
    net = mlp(3, (4, 2), generator=generator)
    front = net[:2]
    x = torch.ones(5, 3)
    assert isinstance(front, MLP)
    torch.testing.assert_close(net[2:](front(x)), net(x))
