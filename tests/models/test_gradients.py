"""Gradients by hand and by autograd against central finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from extremal.models import (
    PReLUNet,
    margin,
    margin_gradient,
    relu_power_with_slope,
    relu_power_with_slope_,
)
from tests.models.helpers_networks import PAIRS, POWERS, make_net, points_off_kinks


@torch.no_grad()
def differences(value: Callable[[], float], at: Tensor, step: float = 1e-6) -> Tensor:
    """The gradient of `value` in the entries of `at`, which is changed in place and restored."""
    flat, slopes = at.detach().view(-1), []
    for i in range(len(flat)):
        here = flat[i].item()
        flat[i] = here + step
        above = value()
        flat[i] = here - step
        slopes.append((above - value()) / (2 * step))
        flat[i] = here
    return torch.tensor(slopes, dtype=at.dtype).view(at.shape)


def close(found: Tensor, expected: Tensor) -> bool:
    return float((found - expected).norm()) <= 1e-6 * float(expected.norm()) + 1e-9


def setting(config, p, generator) -> tuple[PReLUNet, Tensor, Tensor]:
    net = make_net(config, p, generator)
    x = points_off_kinks(net, 4, generator)
    return net, x, torch.randn(net(x).shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("config", PAIRS)
@pytest.mark.parametrize("p", POWERS)
def test_input_and_margin_gradients_are_finite_differences(config, p, generator):
    net, x, cotangent = setting(config, p, generator)
    expected = differences(lambda: float((net(x) * cotangent).sum()), x)
    assert float(expected.norm()) > 1e-2
    out, by_hand = net.input_gradient(x, cotangent)
    point = x.clone().requires_grad_(True)
    (by_autograd,) = torch.autograd.grad((net(point) * cotangent).sum(), point)
    torch.testing.assert_close(out.reshape(cotangent.shape), net(x).detach(), rtol=1e-12, atol=0)
    assert close(by_hand, expected)
    assert close(by_autograd, expected)
    y = torch.tensor([0, 1, 2, 0]) if net.outputs == 3 else torch.tensor([1, -1, -1, 1])
    expected = differences(lambda: float(margin(net, x, y).sum()), x)
    value, by_hand = margin_gradient(net, x, y)
    _, by_autograd = margin_gradient(torch.nn.Sequential(net), x, y)
    torch.testing.assert_close(value, margin(net, x, y).detach(), rtol=1e-12, atol=1e-14)
    assert close(by_hand, expected)
    assert close(by_autograd, expected)


@pytest.mark.parametrize("config", PAIRS)
@pytest.mark.parametrize("p", POWERS)
def test_parameter_gradients_are_finite_differences(config, p, generator):
    net, x, cotangent = setting(config, p, generator)
    by_hand = net.parameter_gradient(x, cotangent)
    by_function = net.parameter_gradient(x, lambda out: cotangent + 0.0 * out)
    (net(x) * cotangent).sum().backward()
    torch.testing.assert_close(by_hand.out, net(x).detach(), rtol=1e-12, atol=0)
    for name in ("neurons", "votes", "hidden_bias", "bias"):
        part = getattr(net, name)
        if part is None:
            assert getattr(by_hand, name) is None
            continue
        expected = differences(lambda: float((net(x) * cotangent).sum()), part)
        assert float(expected.norm()) > 1e-2
        assert close(getattr(by_hand, name), expected), name
        assert close(part.grad, expected), name
        assert torch.equal(getattr(by_hand, name), getattr(by_function, name))


def test_margin_is_own_output_minus_best_foreign_one():
    class Fixed(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    out = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    assert margin(Fixed(), out, torch.tensor([0, 1, 2])).tolist() == [1.0, -2.0, -1.0]
    assert margin(Fixed(), out[:0], torch.zeros(0, dtype=torch.int64)).tolist() == []
    assert margin(Fixed(), out[:, 0], torch.tensor([1, -1, 1])).tolist() == [3.0, -3.0, 3.0]


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0, 5.5])
def test_a_power_written_over_its_argument_is_the_same(p):
    s = torch.linspace(-1.0, 2.0, 31, dtype=torch.float64)
    wanted = relu_power_with_slope(s, p)
    found = relu_power_with_slope_(s, p)
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert found[0].data_ptr() == s.data_ptr()
