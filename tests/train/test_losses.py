"""Losses: values, slopes, overflow, and which network each is for."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.train import Loss, gd, gradient_flow
from tests.train.flow_problem import problem

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


def squared_hinge(out, y):
    return torch.relu(1.0 - y * out) ** 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_of_ones_own_has_autograds_slope(reduction):
    out, y = case("exp")
    loss = Loss("hinge", reduction, squared_hinge)
    share = 1.0 / len(out) if reduction == "mean" else 1.0
    each = [max(0.0, 1.0 - float(a * b)) for a, b in zip(out, y, strict=True)]
    assert float(loss.value(out, y)) == pytest.approx(share * sum(e * e for e in each))
    wanted = [-2.0 * share * e * float(b) for e, b in zip(each, y, strict=True)]
    torch.testing.assert_close(loss.slope(out, y), torch.tensor(wanted, dtype=out.dtype))


@pytest.mark.parametrize("name", ["exp", "cross-entropy"])
def test_a_known_loss_by_its_formula_trains_the_same(name):
    own = {
        "exp": lambda out, y: torch.exp(-y * out),
        "cross-entropy": lambda out, y: out.logsumexp(1) - out.gather(1, y[:, None])[:, 0],
    }[name]
    outputs = 1 if name == "exp" else 3
    found = []
    for loss in (name, own):
        net, data = problem(2.0, outputs=outputs)
        gd(net, data, loss=loss, lr=0.1, steps=20)
        flow = gradient_flow(net, data, loss=loss, until=1.0, tolerance=1e-8)
        found.append((net.neurons.detach().clone(), flow.info["loss"]))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-7, rtol=0)
    assert found[1][1] == "<lambda>"


def test_a_loss_that_is_no_loss_is_refused():
    net, data = problem(2.0)
    with pytest.raises(ValueError, match="loss must return the loss of each sample"):
        gd(net, data, loss=lambda out, y: (y * out).mean(), lr=0.1, steps=2)
    with pytest.raises(ValueError, match="function must be callable, got 3"):
        Loss("own", function=3)
    with pytest.raises(ValueError, match="loss must be 'exp' or 'logistic' for method 'mixture'"):
        gradient_flow(net, data, loss=squared_hinge, until=1.0, method="mixture")
