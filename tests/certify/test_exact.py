"""The exact oracles against each other, and certificates against them."""

from __future__ import annotations

import pytest
import torch

from extremal.certify import radius
from extremal.models import Explicit, PReLUNet, Preparation
from extremal.theory import subclass_radius
from tests.certify.networks import Kind, labels, make, right_points, two_sided
from tests.certify.oracles import by_patterns, by_rays, least_norm
from tests.certify.two_neurons import two_neurons

NORMS = ("l2", "linf", "l1")
BOX = (-1.5, 1.5)


@pytest.mark.parametrize("box", [None, BOX], ids=["free", "box"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("dim", "p"), [(1, 1.0), (2, 1.0), (2, 3.0), (3, 1.5), (4, 1.0)])
def test_two_neurons_by_three_ways(dim, p, norm, box, generator):
    """Closed form, brute force, and for p = 1 every activation pattern."""
    net = two_sided(dim, p, generator)
    x = torch.randn(30, dim, generator=generator, dtype=torch.float64).clamp(-1.4, 1.4)
    x = x[net(x) != 0][:1]
    y = labels(net, x)
    exact = float(two_neurons(net, x, y, norm=norm, box=box))
    assert by_rays(net, x[0], int(y[0]), norm, box, farthest=4.0) == pytest.approx(exact, rel=1e-3)
    if p == 1.0:
        assert by_patterns(net, x[0], int(y[0]), norm, box) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("norm", NORMS)
def test_preparation_and_two_outputs_change_nothing_but_units(norm, generator):
    """Sides as two outputs, a centre, a scale, and normalised inputs: the boundary is the same."""
    plain = two_sided(4, 3.0, generator)
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    x = x[plain(x) != 0]
    y = labels(plain, x)
    exact = two_neurons(plain, x, y, norm=norm)
    center = torch.randn(4, generator=generator, dtype=torch.float64)
    votes = torch.tensor([[0.0, 0.8], [1.3, 0.0]], dtype=torch.float64)
    net = PReLUNet(
        4,
        2,
        3.0,
        2,
        preparation=Preparation(2.0, center, 2 / 3),
        init=Explicit(plain.neurons.detach(), votes),
        dtype=torch.float64,
        generator=generator,
    )
    moved = two_neurons(net, x / 2.0 + center, (y + 1) // 2, norm=norm)
    torch.testing.assert_close(moved, exact / 2.0, rtol=1e-9, atol=0)
    assert float(two_neurons(plain, x, -y, norm=norm).max()) == 0.0  # misclassified


def test_two_neurons_refuses_other_networks(generator):
    x, y = torch.ones(2, 3, dtype=torch.float64), torch.ones(2)
    for kind in (
        Kind(3, 3),
        Kind(3, 2, bias=True),
        Kind(3, 2, hidden_bias=True),
        Kind(3, 2, 1.0, 3),
    ):
        with pytest.raises(ValueError, match="net must have two neurons"):
            two_neurons(make(kind, generator), x, y if kind.outputs == 1 else y.long())
    one_sided = two_sided(3, 1.0, generator)
    with torch.no_grad():
        one_sided.votes.abs_()
    with pytest.raises(ValueError, match="neuron that votes for each class"):
        two_neurons(one_sided, x, y)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "kind", [Kind(2, 5, 1.0, 3, bias=True), Kind(3, 5, 1.0, 1, hidden_bias=True)]
)
def test_patterns_against_brute_force_and_certificates(kind, norm, generator):
    net = make(kind, generator)
    x, y = right_points(net, kind, 2, generator)
    certified = radius(net, x, y, norm=norm)
    for i in range(len(x)):
        exact = by_patterns(net, x[i], int(y[i]), norm)
        found = by_rays(net, x[i], int(y[i]), norm, farthest=6.0)
        assert found == pytest.approx(exact, rel=1e-3) or exact > 5.0
        assert float(certified[i]) <= exact
        assert float(certified[i]) >= 0.3 * exact or exact > 5.0


def test_least_norm_by_hand():
    """d_1 + d_2 >= 2 is at (1, 1), with d_1 <= 0.5 at (0.5, 1.5); d_1 >= 1 and <= -1 nowhere."""
    import numpy as np

    g, h = np.array([[1.0, 1.0]]), np.array([2.0])
    found = [least_norm(g, h, norm) for norm in NORMS]
    assert found == pytest.approx([2**0.5, 1.0, 2.0])
    g, h = np.array([[1.0, 1.0], [-1.0, 0.0]]), np.array([2.0, -0.5])
    found = [least_norm(g, h, norm) for norm in NORMS]
    assert found == pytest.approx([2.5**0.5, 1.5, 2.0])
    g, h = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, 1.0])
    assert all(least_norm(g, h, norm) == np.inf for norm in NORMS)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_certificates_of_two_neurons(p, generator):
    """Never above the exact radius, and near it where both neurons are active."""
    ratios = []
    for dim in (2, 6):
        net = two_sided(dim, p, generator)
        x = torch.randn(20, dim, generator=generator, dtype=torch.float64)
        x = x[net(x) != 0]
        y = labels(net, x)
        exact, found = two_neurons(net, x, y), radius(net, x, y)
        assert bool((found <= exact).all())
        both = (x @ net.neurons.T).amin(1) > 0
        ratios.append((found / exact)[both])
    ratio = torch.cat(ratios).detach()
    assert len(ratio) >= 3
    assert float(ratio.median()) > 0.9


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("opposing", [1, 4])
def test_certificates_of_orthonormal_neurons(p, opposing, generator):
    """The theory's radius at a centre, 1 / sqrt(1 + K_opp^(2/p - 1)) or sqrt(2)/2."""
    count = 1 + opposing
    votes = torch.tensor([[1.0] + [-1.0] * opposing], dtype=torch.float64)
    net = PReLUNet(
        count,
        count,
        p,
        init=Explicit(torch.eye(count, dtype=torch.float64), votes),
        dtype=torch.float64,
        generator=generator,
    )
    x, y = torch.eye(count, dtype=torch.float64)[:1], torch.ones(1)
    found, exact = float(radius(net, x, y)), subclass_radius(opposing, p)
    assert 0.9 * exact < found <= exact
