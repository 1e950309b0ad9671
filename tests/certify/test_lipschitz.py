"""The floor for networks of which only a Lipschitz constant is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.attack import Ball, apgd
from extremal.certify import can_certify, certificate, holds, radius
from extremal.models import Grouped, PReLUNet, from_torch, margin, recognised
from tests.certify.breaking import breaks
from tests.certify.networks import labels

NORMS = ("l2", "linf", "l1")
CHAINS = [
    nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 3)),
    nn.Sequential(
        nn.Linear(4, 6), nn.GELU(), nn.Sequential(nn.Linear(6, 5), nn.ELU(1.7)), nn.Linear(5, 2)
    ),
    nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 3), nn.LeakyReLU(3.0)),
    nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1), nn.Flatten(0)),
]


@pytest.mark.parametrize("index", range(len(CHAINS)))
def test_networks_of_which_only_a_constant_is_known(index, generator):
    net = CHAINS[index]
    with torch.no_grad():
        for part in net.parameters():
            part.copy_(torch.randn(part.shape, generator=generator))
    x = torch.randn(20, 4, generator=generator)
    y = labels(net, x)
    for norm in NORMS:
        found = certificate(net, x, y, norm=norm)
        assert found.methods == ("lipschitz",)
        assert bool((found.radius > 0).all())
        assert not bool(breaks(net, x, y, found.radius, norm=norm, generator=generator).any())
        ball = Ball(norm, found.radius)
        assert not bool(apgd(net, x, y, ball=ball, steps=20, generator=generator).success.any())


@pytest.mark.parametrize("norm", NORMS)
def test_the_lipschitz_radius_of_a_linear_network_is_exact(norm, generator):
    """Orthogonal rows of length 2: margin / (2 sqrt(2)) in l2, and sqrt(dim) less in linf."""
    net = nn.Sequential(nn.Linear(4, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(2.0 * torch.eye(4, dtype=torch.float64)[:2])
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    y = labels(net, x)
    exact = margin(net, x, y).detach() / (2.0 * 2.0**0.5)
    exact = exact / 2.0 if norm == "linf" else exact
    torch.testing.assert_close(radius(net, x, y, norm=norm), exact, rtol=1e-6, atol=0)


class Louder(nn.Sequential):
    """A chain whose forward is not that of a chain."""

    def forward(self, x):
        return 10.0 * super().forward(x) - 9.0 * x[:, :2]


class Offset(nn.Linear):
    """A layer whose forward is not that of a linear layer."""

    def forward(self, x):
        return 10.0 * super().forward(x)


def test_subclasses_with_a_forward_of_their_own_are_refused():
    x, y = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0])
    for net in (Louder(nn.Linear(4, 2)), nn.Sequential(Offset(4, 2))):
        with pytest.raises(ValueError, match="net must be a PReLUNet"):
            radius(net, x, y)


def test_a_two_layer_relu_module_gets_tight_bounds(generator):
    """As `models.from_torch` makes it, within a readout by groups and with one output, too."""
    torch.manual_seed(1)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    for outputs, end in ((3, []), (1, [nn.Flatten(0)])):
        layers = [nn.Linear(4, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, outputs), *end]
        module = nn.Sequential(*layers).double().eval()
        y = labels(module, x)
        found, known = certificate(module, x, y), certificate(from_torch(module), x, y)
        assert torch.equal(found.radius, known.radius)
        assert "lipschitz" not in found.methods
        assert found.network == "Sequential, read as a PReLUNet"
        assert known.network == "PReLUNet"
        assert torch.equal(holds(module, x, y, 0.0), holds(from_torch(module), x, y, 0.0))
    wide = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    grouped = Grouped(wide, torch.tensor([0, 1, 0]))
    assert can_certify(grouped)
    y = labels(grouped, x)
    assert "lipschitz" not in certificate(grouped, x, y).methods


class Reordered(nn.Sequential):
    def forward(self, x):
        return super().forward(-x)


def test_only_what_computes_the_same_is_read_as_a_two_layer_network():
    layers = [nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3)]
    for net in (
        Reordered(*layers),
        nn.Sequential(layers[0], nn.LeakyReLU(), layers[2]),
        nn.Sequential(*layers, nn.ReLU(), nn.Linear(3, 2)),
        nn.Linear(4, 3),
    ):
        assert recognised(net) is net
    assert isinstance(recognised(nn.Sequential(*layers)), PReLUNet)
