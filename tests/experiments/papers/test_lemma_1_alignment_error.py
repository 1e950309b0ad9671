"""The error of Lemma 1 is the true flow's, and not that of weights in float64."""

import pytest
import torch

from extremal.data import OrthonormalMixture
from extremal.experiments import get
from extremal.experiments.papers.min_vidal_2024.lemma_1_alignment_error import _moment, trial
from extremal.models import Balanced, PReLUNet
from extremal.theory import projected_field
from extremal.train import Loss, loss_and_gradient


@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8])
def test_the_share_does_not_depend_on_how_small_the_start_is(scale):
    params = dict(get("min-vidal-2024/lemma-1").trials("smoke")[0].params)
    params |= {"p": 3.0, "scale": scale}
    numbers = trial(params, torch.Generator().manual_seed(0)).numbers
    assert 0.005 < numbers["share_of_first_step"] < 0.02


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_the_error_is_that_of_the_gradient(p):
    generator = torch.Generator().manual_seed(0)
    data = OrthonormalMixture(20, 6, 4, 0.0).simplified()
    net = PReLUNet(20, 50, p, init=Balanced(0.1), dtype=torch.float64, generator=generator)
    with torch.no_grad():
        net.votes *= 1.01  # an imbalance counts as an error
    _, gradient = loss_and_gradient(net, data.x, data.y, Loss("exp", "sum"))
    w = net.neurons.detach()
    norm = w.norm(dim=1, keepdim=True)
    velocity = -gradient["neurons"] / norm
    turning = velocity - (velocity * w).sum(1, keepdim=True) * w / norm**2
    sign = net.votes.detach()[0].sign()[:, None]
    expected = (turning - sign * projected_field(w, data.x, data.y, p)).norm(dim=1).max()
    error, output = _moment(net, data)
    assert error == pytest.approx(float(expected), rel=1e-10)
    assert output == pytest.approx(float(net(data.x).detach().abs().max()))
