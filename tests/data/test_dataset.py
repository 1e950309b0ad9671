"""A data set keeps what belongs to a point together."""

from __future__ import annotations

import pytest
import torch

from extremal.data import Dataset


def make_data() -> Dataset:
    x = torch.arange(8.0).reshape(4, 2) / 8
    y = torch.tensor([1.0, -1.0, -1.0, 1.0])
    return Dataset(x, y, group=torch.tensor([0, 2, 1, 0]), box=(0.0, 1.0), source="here")


@pytest.mark.parametrize("index", [torch.tensor([3, 1]), torch.arange(4) % 2 == 1, slice(1, 3)])
def test_take_chooses_rows_of_everything(index):
    data = make_data()
    part = data.take(index)
    assert torch.equal(part.x, data.x[index])
    assert torch.equal(part.y, data.y[index])
    assert torch.equal(part.group, data.group[index])
    assert (part.box, part.source, len(part), part.dim) == (data.box, "here", 2, 2)


def test_to_changes_the_points_dtype_only():
    data = make_data().to(torch.float64)
    assert (data.x.dtype, data.y.dtype, data.group.dtype) == (
        torch.float64,
        torch.int64,
        torch.int64,
    )
    assert torch.equal(data.to("cpu").x, data.x)


@pytest.mark.parametrize(
    ("labels", "signed"),
    [([1, -1], True), ([1, 1], True), ([-1, -1], True), ([0, 1], False), ([2, 1], False)],
)
def test_signed_tells_the_kinds_of_labels_apart(labels, signed):
    data = Dataset(torch.zeros(2, 3), torch.tensor(labels))
    assert data.signed == signed
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == labels
