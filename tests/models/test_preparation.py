"""Preparing inputs: normalising next to the centre, and how far a ball's points are carried."""

from __future__ import annotations

import pytest
import torch

from extremal.models import Preparation
from tests.models.helpers_networks import TRIPLES, make_points


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 1e-30), (torch.float64, 1e-200)])
@pytest.mark.parametrize("normalize", [0.5, 1.0])
def test_normalising_is_exact_next_to_the_centre(dtype, tiny, normalize):
    preparation = Preparation(normalize=normalize)
    z = torch.tensor([[3.0, 0.0, 4.0]], dtype=dtype)
    along = torch.tensor([[1.0, 2.0, 3.0]], dtype=dtype)
    for size in (tiny, 1.0 / tiny):
        near = (size * z).requires_grad_(True)
        rtol = 1e-5 if dtype == torch.float32 else 1e-12
        found = preparation(near) / size ** (1 - normalize)
        torch.testing.assert_close(found, preparation(z), rtol=rtol, atol=rtol)
        (by_autograd,) = torch.autograd.grad((preparation(near) * along).sum(), near)
        for found in (by_autograd, preparation.pull_back(preparation.at(near.detach()), along)):
            expected = preparation.pull_back(preparation.at(z), along)
            torch.testing.assert_close(found * size**normalize, expected, rtol=rtol, atol=rtol)


def test_a_centre_of_integers_is_that_of_the_same_numbers(generator):
    whole = torch.tensor([1, -2, 3])
    x = make_points(20, generator)
    found, expected = Preparation(center=whole), Preparation(center=whole.double())
    assert found.center is not None
    assert found.center.is_floating_point()
    assert torch.equal(found(x), expected(x))
    assert found.reach(1.0, whole + 1) == expected.reach(1.0, whole.double() + 1)


def test_reach_bounds_prepared_norms_and_is_attained(generator):
    for config in TRIPLES:
        preparation = config.preparation(3.0, 3)
        home = torch.zeros(3, dtype=torch.float64)
        home = home if preparation.center is None else preparation.center
        away = torch.nn.functional.normalize(make_points(200, generator), dim=1)
        for center in (home, home + 1.0):
            norms = preparation(center + 2.0 * away).norm(dim=1)
            assert float(norms.max()) <= preparation.reach(2.0, center) * (1 + 1e-12)
        # Linspace scales are largest in the last coordinate.
        farthest = preparation(home + torch.tensor([[0.0, 0.0, 2.0]])).norm()
        assert float(farthest) == pytest.approx(preparation.reach(2.0, home), rel=1e-12)
