"""The reference classifiers against their formulas (Min & Vidal 2024, eq. 2 and 3)."""

from __future__ import annotations

import pytest
import torch

from extremal.data import OrthonormalMixture
from extremal.models import average_classifier, bayes_classifier, subclass_classifier


def make_mixture(seed, spread=0.1):
    """A mixture of random size, on axes for even seeds and on a random basis for odd ones."""
    generator = torch.Generator().manual_seed(seed)
    positive, negative, more = torch.randint(1, 5, (3,), generator=generator).tolist()
    basis = generator if seed % 2 else None
    mixture = OrthonormalMixture(
        positive + negative + more - 1, positive, negative, spread, generator=basis
    )
    return mixture, generator


def agree(net, x, expected):
    with torch.no_grad():
        torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_average_classifier_is_equation_3(seed):
    mixture, generator = make_mixture(seed)
    x = 2.0 * torch.randn(20, mixture.dim, generator=generator, dtype=torch.float64)
    inner = x @ mixture.centers.T
    own, foreign = inner[:, : mixture.positive].sum(1), inner[:, mixture.positive :].sum(1)
    expected = own.clamp(min=0) - foreign.clamp(min=0)  # sqrt(K1) mu_plus is the sum of centres
    agree(average_classifier(mixture), x, expected)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("p", [1.0, 2.5, 3.0])
def test_subclass_classifier_is_equation_2(p, seed):
    mixture, generator = make_mixture(seed)
    x = torch.randn(20, mixture.dim, generator=generator, dtype=torch.float64)
    terms = (x @ mixture.centers.T).clamp(min=0) ** p
    expected = terms[:, : mixture.positive].sum(1) - terms[:, mixture.positive :].sum(1)
    agree(subclass_classifier(mixture, p), x, expected)


@pytest.mark.parametrize("seed", range(4))
def test_bayes_classifier_is_the_log_ratio_of_densities(seed):
    mixture, generator = make_mixture(seed, spread=1.3)
    x = torch.randn(50, mixture.dim, generator=generator, dtype=torch.float64)
    square = ((x[:, None] - mixture.centers) ** 2).sum(2)
    density = torch.exp(-square * mixture.dim / (2 * 1.3**2))
    ratio = density[:, : mixture.positive].sum(1) / density[:, mixture.positive :].sum(1)
    found = bayes_classifier(mixture)(x)
    assert torch.equal(found > 0, ratio > 1)
    torch.testing.assert_close(found, ratio.log(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1e-3, 0.0])
def test_bayes_classifier_is_finite_where_exponentials_overflow(spread, dtype, generator):
    mixture = OrthonormalMixture(1000, 6, 4, spread)
    x = torch.randn(20, 1000, generator=generator, dtype=dtype)
    found = bayes_classifier(mixture)(x)
    nearest = x[:, :6].amax(1) - x[:, 6:10].amax(1)
    assert bool(torch.isfinite(found).all())
    assert torch.equal(found > 0, nearest > 0)
