"""What rounding may do to chains of layers: in float32, against float64."""

import pytest
import torch
from torch import Tensor, nn

from extremal import certify, models

ACTIVATIONS = [
    nn.ReLU(),
    nn.LeakyReLU(3.0),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.ELU(30.0),
    nn.Softplus(2.0, 4.0),
    nn.GELU(),
    nn.SiLU(),
]


def chain(activation: nn.Module, generator: torch.Generator, outputs: int = 1) -> nn.Sequential:
    """Three layers of 4 to 6 neurons, in float32."""
    layers: list[nn.Module] = []
    for one, two in ((4, 6), (6, 5), (5, outputs)):
        layer = nn.Linear(one, two)
        layer.weight.data = torch.randn(two, one, generator=generator)
        layer.bias.data = 0.3 * torch.randn(two, generator=generator)
        layers += [layer, activation]
    return nn.Sequential(*layers[:-1])


def outputs(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x).double()


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("size", [1e-5, 1.0, 1e5])
def test_a_chain_as_run_is_as_near_the_exact_one_as_is_said(activation, size, generator):
    net = chain(activation, generator)
    x = size * torch.randn(200, 4, generator=generator)
    length = torch.linalg.vector_norm(x.double(), dim=1)
    said = models.chain_rounding(net, length, torch.float32)
    twin = models.float64_copy(net)
    off = (outputs(net, x) - outputs(twin, x.double())).squeeze(1).abs()
    assert bool((off <= said).all())
    most = models.chain_lipschitz(net) * length + outputs(twin, 0 * x.double()).abs().squeeze(1)
    slack = 1e6 if isinstance(activation, nn.ELU | nn.Softplus) else 3e3
    assert bool((said <= slack * torch.finfo(torch.float32).eps * (1.0 + most)).all())


def test_a_margin_that_float32_drowns_is_not_certified(generator):
    """Two outputs of about 1e6 that differ by .01, which float64 knows."""
    net = chain(nn.ReLU(), generator, outputs=2)
    net[-1].weight.data[1] = net[-1].weight.data[0]
    net[-1].bias.data = torch.tensor([1e6, 1e6 + 0.0625])
    net = net.double()
    net[-1].bias.data[1] -= 0.05
    x, y = torch.randn(20, 4, generator=generator), torch.ones(20).long()
    assert bool((certify.radius(net, x.double(), y) > 0).all())
    assert certify.radius(net.float(), x, y).tolist() == [0.0] * 20
