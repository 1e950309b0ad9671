"""The paper's Algorithm 1 as printed, step by step and against our search."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.data import OrthonormalMixture
from extremal.measure import distance, supremum
from extremal.models import average_classifier
from tests.measure.pairs import COVERS, random_net, random_pair, seeded


@pytest.mark.parametrize("powers", [(1.0, 1.0), (3.0, 3.0), (1.0, 3.0)])
@pytest.mark.parametrize("where", ["circle", "sphere"])
def test_paper_s_algorithm(where, powers):
    cover = COVERS[where]
    net, reference = random_pair(cover.shape[1], powers, 3)
    budget = {"method": "paper", "starts": 30, "steps": 400, "fit_points": 4000}
    paper = distance(net, reference, generator=seeded(), **budget)
    with torch.no_grad():
        a, b = net(cover), reference(cover)
    fitted = float((a * b).sum() / (a * a).sum())  # the cover is uniform as well
    assert paper.scale == pytest.approx(fitted, rel=0.05)
    assert paper.value == pytest.approx(float((paper.scale * a - b).abs().max()), rel=5e-3)
    assert math.isnan(paper.lower)
    assert math.isnan(paper.upper)
    # Our search at its scale finds at least as much, and another scale may do better.
    ours = supremum(net, reference, scale=paper.scale, generator=seeded())
    assert ours.value >= paper.value * (1.0 - 1e-9)
    assert distance(net, reference, generator=seeded()).value < ours.value * 0.999


@pytest.mark.parametrize("p", [1.0, 2.5])
def test_algorithm_1_as_printed(p):
    # Written again with autograd: least squares, then x + 0.01 grad / ||grad||, normalised.
    net, reference = random_pair(5, (p, p), 4)
    budget = {"method": "paper", "starts": 7, "steps": 5, "fit_points": 50}
    found = distance(net, reference, generator=seeded(9), **budget)
    generator = seeded(9)
    points = torch.randn(50, 5, generator=generator, dtype=torch.float64)
    points = points / points.norm(dim=1, keepdim=True)
    x = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    with torch.no_grad():
        a, b = net(points), reference(points)
    c = torch.linalg.lstsq(a.unsqueeze(1), b.unsqueeze(1)).solution.item()
    for _ in range(5):
        x.requires_grad_()
        square = ((c * net(x) - reference(x)) ** 2).sum()
        slope = torch.autograd.grad(square, x)[0]
        x = x.detach() + 0.01 * slope / slope.norm(dim=1, keepdim=True)
        x = x / x.norm(dim=1, keepdim=True)
    gaps = (c * net(x) - reference(x)).detach().abs()
    assert found.scale == pytest.approx(c, rel=1e-10)
    assert found.value == pytest.approx(float(gaps.max()), rel=1e-9)
    assert torch.allclose(found.witness, x[gaps.argmax()], atol=1e-9)


def test_paper_s_algorithm_fits_on_given_points():
    mixture = OrthonormalMixture(6, 2, 1, 0.1)
    data = mixture.sample(50, generator=seeded(), dtype=torch.float64)
    reference = average_classifier(mixture)
    net = random_net(5, 6, 1.0, seeded(2))
    chosen = {"method": "paper", "starts": 3, "steps": 3, "fit": data}
    found = distance(net, reference, generator=seeded(), **chosen)
    with torch.no_grad():
        a, b = net(data.x), reference(data.x)
    wanted = torch.linalg.lstsq(a.unsqueeze(1), b.unsqueeze(1)).solution.item()
    assert found.scale == pytest.approx(max(wanted, 1e-300), rel=1e-10)
