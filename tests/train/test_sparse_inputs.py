"""Points whose columns rarely vary: their products are those of the matrix, and so is Adam."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models import DenseInputs, Gaussian, PReLUNet, Preparation
from extremal.train import Loss, adam
from extremal.train.sparse_inputs import SparseBatch, SparseDataset
from tests.train.flow_problem import Twin, largest_difference
from tests.train.test_gradient_descent_adam import by_torch, seeded, z_of

CENTER = torch.linspace(-0.4, 0.5, 9, dtype=torch.float64)
PREPARATIONS = {
    "plain": Preparation(),
    "authors": Preparation.for_power(3.0, center=CENTER),
    "scaled": Preparation(scale=1.5, center=CENTER, normalize=1.0),
}
VARYING = [1, 4, 5]  # of nine columns; the others are what they usually are on most points


def bordered(count: int = 60) -> Tensor:
    x = torch.randn(count, 9, generator=seeded(1), dtype=torch.float64)
    usual = torch.tensor([0.0, 9.0, 0.7, 0.0, 9.0, 9.0, -1.0, 0.0, 2.0], dtype=torch.float64)
    common = torch.rand(count, 9, generator=seeded(2)) > 0.05
    common[:, VARYING] = False
    common[:, 8] = True  # a column that never varies
    common[:7] = True  # points that are usual in every rare column
    common[:7, VARYING] = False
    return torch.where(common, usual, x)


@pytest.mark.parametrize("preparation", PREPARATIONS)
def test_products_are_those_of_the_matrix(preparation):
    x, how = bordered(), PREPARATIONS[preparation]
    points, z = SparseDataset(x, how), z_of(x, how)
    assert points.matrix.shape == (60, len(VARYING) + 1)
    assert 0 < len(points.value) < 60
    directions = torch.randn(4, 9, generator=seeded(), dtype=torch.float64)
    offsets = torch.tensor([0.1, -0.2, 0.3, 0.0], dtype=torch.float64)
    whole, usual, twice = torch.randperm(60, generator=seeded()), torch.arange(7), [50, 9, 50]
    for rows in (whole, usual, torch.tensor(twice)):
        batch = points.take(rows)
        assert isinstance(batch, SparseBatch)
        wanted = z[rows] @ directions.T + offsets
        torch.testing.assert_close(batch.inner(directions, offsets), wanted, rtol=0.0, atol=1e-13)
        weights = torch.randn(len(rows), 4, generator=seeded(3), dtype=torch.float64)
        total = batch.weighted_sum(weights)
        torch.testing.assert_close(total, weights.T @ z[rows], rtol=0.0, atol=1e-12)


def test_points_in_several_parts_are_the_same(monkeypatch):
    x, how = bordered(), PREPARATIONS["authors"]
    whole = SparseDataset(x, how)
    monkeypatch.setattr("extremal.train.sparse_inputs._POINTS_PER_BLOCK", 13)
    parted = SparseDataset(x, how)
    for name in ("matrix", "counts", "first", "column", "value"):
        torch.testing.assert_close(getattr(parted, name), getattr(whole, name))


def test_the_centre_itself_is_zero():
    x = bordered()
    x[20] = CENTER
    batch = SparseDataset(x, PREPARATIONS["authors"]).take(torch.tensor([20]))
    eye = torch.eye(9, dtype=torch.float64)
    assert torch.equal(batch.inner(eye, None), torch.zeros(1, 9, dtype=torch.float64))


def test_points_that_are_all_the_same():
    x, how = CENTER.flip(0).repeat(4, 1), PREPARATIONS["authors"]
    batch, z = SparseDataset(x, how).take(torch.tensor([2, 0])), z_of(x, how)[:2]
    eye = torch.eye(9, dtype=torch.float64)
    torch.testing.assert_close(batch.inner(eye, None), z)
    torch.testing.assert_close(batch.weighted_sum(eye[:2, :3]), eye[:2, :3].T @ z)


@pytest.mark.parametrize("constant", [0, 2])
def test_few_rare_columns_are_not_worth_it(constant):
    x = torch.randn(30, 9, generator=seeded(), dtype=torch.float64)
    x[:, :constant] = 0.25
    points = SparseDataset(x, PREPARATIONS["scaled"])
    batch = points.take(torch.tensor([3, 1]))
    assert isinstance(batch, DenseInputs)
    torch.testing.assert_close(batch.z, z_of(x, PREPARATIONS["scaled"])[[3, 1]])


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_adam_is_torch_s(p, preparation):
    how = PREPARATIONS[preparation]
    data = Dataset(bordered(), torch.arange(60) % 3)
    settings = {"bias": True, "hidden_bias": True, "dtype": torch.float64, "generator": seeded()}
    net = PReLUNet(9, 5, p, 3, preparation=how, init=Gaussian(0.5), **settings)
    twin = Twin(net)
    by_torch(twin, z_of(data.x, how), data.y, Loss("cross-entropy"), 0.02, 7, 30)
    adam(net, data, lr=0.02, batch=7, steps=30, generator=seeded())
    assert largest_difference(net, twin) < 1e-11


def test_points_of_another_dtype_are_refused():
    net = PReLUNet(9, 5, 3.0, 3, generator=seeded())
    data = Dataset(bordered(), torch.arange(60) % 3)
    with pytest.raises(ValueError, match=r"x must have the network's dtype torch\.float32"):
        adam(net, data, batch=7, steps=3, generator=seeded())
