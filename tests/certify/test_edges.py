"""Where rounding or a missing length scale could mislead: bounds at tiny multipliers, and x = 0."""

from __future__ import annotations

import pytest
import torch

from extremal.attack import shortest
from extremal.certify import certificate
from extremal.certify.l2_problem import TargetPairs
from extremal.certify.parabolas import Parabola
from extremal.certify.trust_region import dual
from extremal.models import Gaussian, PReLUNet

D = torch.float64


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mu", [1e-3, 1e-5, 1e-8, 1e-12, 1e-15, 1e-16, 1e-17, 0.0])
def test_tiny_multipliers_leave_no_rounding_in_the_bound(count, mu):
    """M = n (1/2 + e)^2 on the unit ball, whose least value is 0; parallel neurons, too."""
    half = torch.full((1, count), 0.5, dtype=D)
    zero, one = torch.zeros(1, dtype=D), torch.ones(1, dtype=D)
    gram = torch.ones(count, count, dtype=D)
    pairs = TargetPairs(gram, 2.0 * half, zero, half, half, 0.25 * one, one, 2.0, 0.0, 0.0)
    q = Parabola(0.25 * count * one, 2.0 * half, 4.0 * half, zero, zero)
    assert float(dual(pairs, q, mu * one).bound) <= 1e-10


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_a_biased_network_is_attacked_and_certified_at_its_centre(p, norm):
    """There the distance of the centre, 0, says nothing of how far to look."""
    g = torch.Generator().manual_seed(1)
    init = Gaussian(1.0)
    net = PReLUNet(10, 30, p, 3, bias=True, hidden_bias=True, init=init, dtype=D, generator=g)
    with torch.no_grad():
        net.hidden_bias.copy_(torch.randn(30, generator=g, dtype=D))
        net.bias.copy_(torch.randn(3, generator=g, dtype=D))
    x = torch.zeros(1, 10, dtype=D)
    y = net(x).argmax(1)
    upper = float(shortest(net, x, y, norm=norm).radius)
    assert upper < torch.inf
    for effort in ("fast", "tight"):
        lower = float(certificate(net, x, y, norm=norm, effort=effort).radius)
        assert 0.05 * upper < lower <= upper
