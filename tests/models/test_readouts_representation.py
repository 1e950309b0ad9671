"""What networks compute before their last layer."""

import pytest
import torch
from torch import nn

from extremal.models import (
    ConvPReLU,
    DeepPReLU,
    Gaussian,
    PReLUNet,
    Representation,
    gap_gradient,
    mlp,
    representations,
)

X = torch.rand(5, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def nets():
    """A network of each kind, with the linear map that its representation is followed by."""
    g = torch.Generator().manual_seed(0)
    conv = ConvPReLU((3, 2, 2), [4], 1.0, 3, dtype=torch.float64, generator=g)
    one = PReLUNet(12, 7, 3.0, 2, bias=True, init=Gaussian(0.5), dtype=torch.float64, generator=g)
    deep = DeepPReLU(12, [6, 5], 2.0, 2, bias=True, dtype=torch.float64, generator=g)
    dense = mlp(12, [6, 5], outputs=3, dtype=torch.float64, generator=g)
    return {
        "conv": (conv, conv.readout),
        "prelu": (one, lambda hidden: hidden @ one.votes.T + one.bias),
        "deep": (deep, deep.readout),
        "mlp": (dense, dense[-1]),
    }


@pytest.mark.parametrize("name", ["conv", "prelu", "deep", "mlp"])
def test_the_last_layer_makes_the_network_of_it(name):
    net, last = nets()[name]
    made = last(Representation(net)(X))
    torch.testing.assert_close(made, net(X), rtol=1e-12, atol=1e-12)


def test_weights_are_shared():
    net = nets()["mlp"][0]
    front = Representation(net)
    before = front(X)
    with torch.no_grad():
        net[0].weight.mul_(2.0)
    assert not torch.equal(front(X), before)


def test_the_gradient_is_that_of_half_the_square():
    front = Representation(nets()["conv"][0])
    wanted = front(X.flip(0)).detach()
    gap, gradient = gap_gradient(front, X, wanted)
    torch.testing.assert_close(gap, (front(X) - wanted).norm(dim=1).detach())
    step, along = 1e-6, torch.ones_like(X)
    ends = [0.5 * (front(X + sign * step * along) - wanted).square().sum(1) for sign in (1.0, -1.0)]
    torch.testing.assert_close(
        (ends[0] - ends[1]) / (2 * step), gradient.sum(1), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("net", [nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.ReLU())])
def test_a_network_of_one_layer_has_no_representation(net):
    with pytest.raises(ValueError, match="net must have a layer before its last linear one"):
        Representation(net)


def test_an_unknown_network_is_refused():
    with pytest.raises(
        ValueError, match=r"net must be an nn\.Sequential or have a method `hidden`"
    ):
        Representation(nn.Linear(3, 2))


def test_a_representation_is_one_vector_for_each_point():
    with pytest.raises(ValueError, match=r"represent\(x\) must be .* of shape \(5, width\)"):
        representations(nn.Flatten(0), X)
