"""Certificates of trained networks, in float32 as training leaves them."""

from __future__ import annotations

import pytest
import torch

import extremal as ex
from extremal.attack import shortest
from extremal.certify import radius
from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet, Preparation, margin
from tests.certify.breaking import breaks

NORMS = ("l2", "linf", "l1")


@pytest.fixture(
    scope="module", params=[("exp", 1.0), ("exp", 3.0), ("cross-entropy", 2.0)], ids=str
)
def trained(request):
    """A network after a few steps of gradient descent (one output) or of Adam (four); its data."""
    loss, p = request.param
    generator = torch.Generator().manual_seed(0)
    mix = ex.data.OrthonormalMixture(dim=12, positive=3, negative=2, spread=0.3)
    data = mix.sample(200, generator=generator)
    if loss == "exp":
        net = PReLUNet(12, 20, p, init=Gaussian(0.1), generator=generator)
        ex.train.gd(net, data, loss="exp", lr=0.3, steps=60)
        return net, data
    data = Dataset(data.x, data.group % 4)
    kind = {"bias": True, "preparation": Preparation.for_power(p), "init": Gaussian(0.1)}
    net = PReLUNet(12, 20, p, 4, generator=generator, **kind)
    ex.train.adam(net, data, lr=0.03, batch=50, steps=60, generator=generator)
    return net, data


@pytest.mark.parametrize("norm", NORMS)
def test_nothing_breaks_a_certified_point(trained, norm, generator):
    net, data = trained
    x, y = data.x[:120], data.y[:120]
    right = margin(net, x, y) > 0
    radii = radius(net, x, y, norm=norm, effort="fast")
    assert bool((radii[~right] == 0).all())
    assert int((radii > 0).sum()) >= 60
    assert not bool(breaks(net, x, y, radii, norm=norm, generator=generator).any())


def test_tight_certificates_are_near_the_smallest_attack(trained, generator):
    net, data = trained
    right = torch.nonzero(margin(net, data.x, data.y) > 0).squeeze(1)[:12]
    x, y = data.x[right], data.y[right]
    radii = radius(net, x, y)
    assert not bool(breaks(net, x, y, radii, generator=generator).any())
    upper = shortest(net, x, y).radius
    assert bool((radii <= upper).all())
    assert float((radii / upper).median()) > 0.85
