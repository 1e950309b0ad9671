"""The loss's gradient in the parameters, against autograd on the definition."""

from __future__ import annotations

import pytest
import torch

from extremal.train import Loss, loss_and_gradient, total_loss
from tests.train.flow_problem import Twin, problem

FROZEN = ((), ("neurons",), ("votes",), ("bias", "neurons"))


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda names: "-".join(names) or "none")
@pytest.mark.parametrize(("name", "outputs"), [("exp", 1), ("logistic", 1), ("cross-entropy", 3)])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_gradient_is_autograd_s(p, name, outputs, frozen):
    net, data = problem(p, outputs=outputs, biases=True)
    with torch.no_grad():
        net.bias.copy_(torch.linspace(-0.3, 0.4, outputs))
    net.freeze(*frozen)
    twin, loss = Twin(net), Loss(name)
    value = loss.value(twin(data.x), data.y)
    value.backward()
    wanted = {name: part.grad for name, part in twin.named_parameters() if part.requires_grad}
    for model in (net, twin):  # by hand, and the path of any other module
        found, gradient = loss_and_gradient(model, data.x, data.y, loss)
        assert not found.requires_grad
        assert float(found) == pytest.approx(value.item(), rel=1e-13)
        assert list(gradient) == list(wanted)
        for part, slope in gradient.items():
            torch.testing.assert_close(slope, wanted[part], rtol=0.0, atol=1e-12)


def test_a_name_or_a_function_is_the_mean_loss():
    net, data = problem(2.0)
    value, gradient = loss_and_gradient(net, data.x, data.y, Loss("exp"))
    for loss in ("exp", lambda out, y: torch.exp(-y * out)):
        same, slopes = loss_and_gradient(net, data.x, data.y, loss)
        assert float(same) == pytest.approx(float(value), rel=1e-14)
        for part, slope in slopes.items():
            torch.testing.assert_close(slope, gradient[part])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_total_loss_of_batches_is_that_of_the_whole(reduction, monkeypatch):
    net, data = problem(2.0)
    loss = Loss("exp", reduction)
    with torch.no_grad():
        whole = float(loss.value(net(data.x), data.y))
    monkeypatch.setattr("extremal.train.losses._POINTS_PER_BATCH", 4)  # 11 points: 4 + 4 + 3
    assert total_loss(net, data, loss) == pytest.approx(whole, rel=1e-14)
