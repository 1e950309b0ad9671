"""The convolutional pReLU network: patch by patch, finite differences, and its ReLU twin."""

import re

import pytest
import torch
from torch import nn

from extremal import attack, train
from extremal.data import Dataset
from extremal.models import ConvPReLU, PReLUConv2d
from tests.models.test_gradients import close, differences

double = torch.float64


def g(seed=0):
    return torch.Generator().manual_seed(seed)


def layer(p, stride=1):
    return PReLUConv2d(2, 3, p, stride=stride, dtype=double, generator=g())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("p", [1.0, 1.5, 3.0])
def test_a_layer_is_the_prelu_of_each_patch(p, stride):
    net, x = layer(p, stride), torch.randn(2, 2, 5, 5, generator=g(1), dtype=double)
    out = net(x).detach()
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    weight = net.weight.detach()
    for n in range(2):
        for j in range(3):
            for row in range(out.shape[2]):
                for column in range(out.shape[3]):
                    top, left = stride * row, stride * column
                    patch = padded[n, :, top : top + 3, left : left + 3].reshape(-1)
                    w = weight[j].reshape(-1)
                    inner = max(float(w @ patch), 0.0)
                    size = float(w.norm() * patch.norm())
                    wanted = inner * (inner / size) ** (p - 1.0)
                    assert float(out[n, j, row, column]) == pytest.approx(wanted, abs=1e-12)


def test_p_1_is_a_convolution_and_a_relu():
    net, x = layer(1.0), torch.randn(2, 2, 6, 6, generator=g(1), dtype=double)
    wanted = torch.relu(nn.functional.conv2d(x, net.weight, padding=1))
    torch.testing.assert_close(net(x), wanted)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_layers_are_homogeneous_in_images_and_weights(p):
    net, x = layer(p), torch.randn(2, 2, 5, 5, generator=g(1), dtype=double)
    out = net(x).detach()
    torch.testing.assert_close(net(3.0 * x), 3.0 * out)
    with torch.no_grad():
        net.weight.mul_(2.0)
    torch.testing.assert_close(net(x), 2.0 * out)


def network(p=3.0, shape=(2, 6, 6), channels=(3, 4), **settings):
    return ConvPReLU(shape, channels, p, 3, dtype=double, generator=g(2), **settings)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_gradients_agree_with_differences(p):
    net = network(p)
    x = torch.randn(1, net.dim, generator=g(3), dtype=double, requires_grad=True)
    net(x)[0, 1].backward()
    point = x.detach().clone()
    assert close(x.grad, differences(lambda: float(net(point)[0, 1]), point))


def test_a_blank_image_has_no_gradient_that_is_not_a_number():
    net = network()
    x = torch.zeros(1, net.dim, dtype=double, requires_grad=True)
    net(x).sum().backward()
    assert bool(torch.isfinite(x.grad).all())
    assert all(bool(torch.isfinite(part.grad).all()) for part in net.parameters())


def test_the_centre_is_taken_from_the_points():
    x = torch.rand(4, 72, generator=g(4), dtype=double)
    center = torch.rand(72, generator=g(5), dtype=double)
    torch.testing.assert_close(network(center=center)(x), network()(x - center))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 5), (1, 2, 2), (1, 1, 3)])
def test_any_size_of_image_fits(shape):
    net = network(shape=shape)
    assert net(torch.rand(2, net.dim, dtype=double)).shape == (2, 3)


def test_one_seed_makes_one_network_in_every_dtype():
    a = ConvPReLU((1, 4, 4), (2, 2), 3.0, 2, generator=g(1))
    b = ConvPReLU((1, 4, 4), (2, 2), 3.0, 2, dtype=double, generator=g(1))
    for one, other in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-7, rtol=1e-6)


def test_it_learns_and_is_attacked_like_any_module():
    x = torch.rand(60, 36, generator=g(6))
    y = (x[:, :18].mean(1) > x[:, 18:].mean(1)).long()
    data = Dataset(x, y, box=(0.0, 1.0))
    net = ConvPReLU((1, 6, 6), (6, 6), 3.0, 2, center=x.mean(0), generator=g(7))
    path = train.adam(net, data, lr=0.02, batch=20, epochs=40, generator=g(8))
    assert float(path.values["accuracy"][-1]) > 0.95
    found = attack.run(
        net, x[:5], y[:5], norm="linf", radius=0.5, box=data.box, steps=10, generator=g(9)
    )
    assert bool(found.success.all())


BAD = {
    "p": (lambda: layer(0.5), "p must be a finite number >= 1"),
    "stride": (lambda: layer(2.0, 0), "stride must be an integer >= 1"),
    "shape": (lambda: network(shape=(6, 6)), "shape must be (channels, height, width)"),
    "shape, a number": (lambda: network(shape=6), "shape must be (channels, height, width), got 6"),
    "channels": (
        lambda: network(channels=()),
        "channels must be a sequence of at least one number",
    ),
    "channels, a word": (lambda: network(channels="34"), "channels must be a sequence"),
    "channels, zero": (lambda: network(channels=(3, 0)), "channels must be an integer >= 1"),
    "x": (lambda: network()(torch.zeros(2, 71)), "x must be a tensor of shape (n, 72)"),
    "x, a list": (lambda: network()([1.0]), "x must be a tensor of shape (n, 72)"),
    "center": (lambda: network(center=torch.ones(3)), "center must be a (72,) tensor or None"),
    "generator": (lambda: ConvPReLU((1, 4, 4), (2,), 2.0, 2, generator=3), "generator must"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, said = BAD[name]
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_one_output_is_a_binary_network():
    one = ConvPReLU((1, 4, 4), (2,), 3.0, 1, generator=g())
    x = torch.randn(5, 16, generator=g(1))
    assert one(x).shape == (5,)
    found = attack.minimal(one, x, one(x).detach().sign().long(), generator=g())
    assert bool((found.radius > 0).all())
