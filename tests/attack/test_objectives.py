"""Objectives: their values by definition, their gradients by autograd, and what they survive."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softplus

from extremal.attack.objectives import (
    OBJECTIVES,
    likely_targets,
    objective_gradient,
    objective_values,
)
from extremal.models import Kaiming, PReLUNet, Preparation, output_margins


class Wrapped(nn.Module):
    """Hides a PReLUNet, so that autograd is used."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def scene(outputs, generator, count=12, dim=5):
    net = PReLUNet(
        dim,
        40,
        3.0,
        outputs,
        bias=True,
        hidden_bias=True,
        preparation=Preparation(scale=1.3, normalize=2 / 3),
        init=Kaiming(),
        dtype=torch.float64,
        generator=generator,
    )
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    y = torch.arange(count) % max(2, outputs)
    return net, x, 2 * y - 1 if outputs == 1 else y


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradient_is_that_of_the_value(objective, outputs, targeted, generator):
    net, x, y = scene(outputs, generator)
    target = (y + 1) % outputs if targeted and outputs > 1 else None
    found = objective_gradient(net, x, y, objective, target)
    point = x.clone().requires_grad_(True)
    value = objective_values(net(point), y, objective, target)
    (gradient,) = torch.autograd.grad(value.sum(), point)
    torch.testing.assert_close(found.value, value.detach())
    torch.testing.assert_close(found.gradient, gradient)
    torch.testing.assert_close(found.margin, output_margins(net(x), y).detach())
    other = objective_gradient(Wrapped(net), x, y, objective, target)
    torch.testing.assert_close(other.gradient, found.gradient)
    assert bool((gradient.abs().sum(1) > 0)[found.margin > 0].all())


def test_cross_entropy_is_the_softplus_of_its_log_odds(generator):
    out = 3 * torch.randn(20, 6, generator=generator, dtype=torch.float64)
    y, target = torch.arange(20) % 6, (torch.arange(20) + 2) % 6
    value = objective_values(out, y, "cross-entropy")
    torch.testing.assert_close(softplus(value), cross_entropy(out, y, reduction="none"))
    value = objective_values(out, y, "cross-entropy", target)
    torch.testing.assert_close(softplus(-value), cross_entropy(out, target, reduction="none"))
    one, sign = out[:, 0], 2 * (y % 2) - 1
    torch.testing.assert_close(objective_values(one, sign, "cross-entropy"), -sign * one)


def test_cross_entropy_does_not_vanish_where_the_loss_does():
    """At logits 300 apart the cross-entropy is 0 in float32, and so is its gradient."""
    out = torch.tensor([[300.0, 0.0, -50.0]], requires_grad=True)
    y = torch.tensor([0])
    (lost,) = torch.autograd.grad(cross_entropy(out, y), out)
    (kept,) = torch.autograd.grad(objective_values(out, y, "cross-entropy").sum(), out)
    assert not lost.any()
    torch.testing.assert_close(kept, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_dlr_by_hand():
    out = torch.tensor([[5.0, 3.0, 1.0, 0.0]], dtype=torch.float64)
    first, second, last = torch.tensor([0]), torch.tensor([1]), torch.tensor([3])
    assert float(objective_values(out, first, "dlr")) == pytest.approx(-(5 - 3) / (5 - 1))
    assert float(objective_values(out, second, "dlr")) == pytest.approx((5 - 3) / (5 - 1))
    wanted = -(5 - 0) / (5 - (1 + 0) / 2)
    assert float(objective_values(out, first, "dlr", last)) == pytest.approx(wanted)


@pytest.mark.parametrize(("classes", "targeted"), [(3, False), (4, True), (10, False), (10, True)])
def test_dlr_ignores_scale_and_shift(classes, targeted, generator):
    out = torch.randn(30, classes, generator=generator, dtype=torch.float64)
    y = torch.arange(30) % classes
    target = (y + 1) % classes if targeted else None
    value = objective_values(out, y, "dlr", target)
    torch.testing.assert_close(objective_values(40 * out - 7, y, "dlr", target), value)
    assert float(value.std()) > 0.1  # it is no constant


def test_dlr_of_three_with_a_target_is_the_gap():
    out = torch.tensor([[2.0, 1.5, -1.0]], dtype=torch.float64)
    assert float(objective_values(out, torch.tensor([0]), "dlr", torch.tensor([2]))) == -3.0


def test_dlr_of_equal_outputs_is_finite():
    out = torch.ones(1, 5)
    assert float(objective_values(out, torch.tensor([0]), "dlr")) == 0.0


def test_two_outputs_have_one_objective(generator):
    out = torch.randn(9, 2, generator=generator)
    y = torch.arange(9) % 2
    for objective in OBJECTIVES:
        torch.testing.assert_close(objective_values(out, y, objective), -output_margins(out, y))


def test_likely_targets_are_ranked_and_never_the_own_class():
    out = torch.tensor([[9.0, 1.0, 3.0, 2.0], [0.0, 5.0, 7.0, 6.0]])
    y = torch.tensor([0, 1])
    ranked = torch.stack(likely_targets(out, y, 9), dim=1)
    assert ranked.tolist() == [[2, 3, 1], [2, 3, 0]]
    assert len(likely_targets(out, y, 2)) == 2
    assert likely_targets(out, y, 0) == [None]
    assert likely_targets(out[:, :2], y, 5) == [None]
    assert likely_targets(out[:, 0], y, 5) == [None]


def test_gradients_that_are_not_numbers_are_zero():
    class Kink(nn.Module):
        def forward(self, x):
            return torch.sqrt(0.0 * x[:, 0]) + 1.0

    found = objective_gradient(Kink(), torch.ones(2, 3), torch.ones(2), "margin")
    assert not found.gradient.any()
    assert found.margin.tolist() == [1.0, 1.0]
