"""Losses: values, slopes, overflow, and which network each is for."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.train import Loss

NAMES = ("exp", "logistic", "cross-entropy")
MARGINS = (-40.0, -21.0, -1.3, 0.0, 0.2, 5.0, 38.0)


def case(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    if name == "cross-entropy":
        out = 10.0 * torch.randn(7, 3, generator=generator, dtype=torch.float64)
        return out, torch.arange(7) % 3
    y = torch.tensor([1, -1, 1, 1, -1, -1, 1])
    return y * torch.tensor(MARGINS, dtype=torch.float64), y


def by_hand(name: str, out: list, label: int) -> float:
    if name == "exp":
        return math.exp(-label * out)
    if name == "logistic":
        z = -label * out
        return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
    return math.log(sum(math.exp(o - out[label]) for o in out))


@pytest.mark.parametrize("name", NAMES)
def test_value_is_the_formula(name):
    out, y = case(name)
    each = [by_hand(name, o, k) for o, k in zip(out.tolist(), y.tolist(), strict=True)]
    assert float(Loss(name).value(out, y)) == pytest.approx(sum(each) / 7, rel=1e-14)
    assert float(Loss(name, "sum").value(out, y)) == pytest.approx(sum(each), rel=1e-14)


@pytest.mark.parametrize("margin", MARGINS)
def test_logistic_is_exact_at_every_margin(margin):
    out = torch.tensor([margin], dtype=torch.float64)
    value = float(Loss("logistic").value(out, torch.tensor([1])))
    assert value == pytest.approx(by_hand("logistic", margin, 1), rel=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", NAMES)
def test_slope_is_the_derivative_of_the_value(name, reduction):
    out, y = case(name)
    out = (0.1 * out).requires_grad_(True)
    loss = Loss(name, reduction)
    assert torch.autograd.gradcheck(lambda o: loss.value(o, y), out)  # finite differences
    (gradient,) = torch.autograd.grad(loss.value(out, y), out)
    torch.testing.assert_close(loss.slope(out, y).detach(), gradient, rtol=1e-13, atol=1e-15)
    assert loss.slope(out.float(), y).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("outputs", [1, 2, 10])
def test_loss_fits_outputs(name, outputs):
    loss = Loss(name)
    if (outputs == 1) == (name != "cross-entropy"):
        loss.check(outputs)
    else:
        with pytest.raises(ValueError, match=f"loss must be .* for {outputs} outputs"):
            loss.check(outputs)


@pytest.mark.parametrize(("dtype", "margin"), [(torch.float32, -89.0), (torch.float64, -710.0)])
def test_exp_overflows_to_infinity_and_logistic_does_not(dtype, margin):
    out, y = torch.tensor([margin, 1.0], dtype=dtype), torch.tensor([1, 1])
    assert float(Loss("exp").value(out, y)) == math.inf
    assert Loss("exp").slope(out, y).tolist()[0] == -math.inf
    assert float(Loss("logistic", "sum").value(out[:1], y[:1])) == -margin
    assert float(Loss("logistic", "sum").slope(out[:1], y[:1])) == -1.0
