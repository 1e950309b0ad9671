"""Accuracy, as a whole and by group, against loops over points."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.data import Dataset
from extremal.measure import accuracy, accuracy_by_group
from extremal.models import Gaussian, PReLUNet


def case(outputs: int) -> tuple[PReLUNet, Dataset]:
    generator = torch.Generator().manual_seed(2)
    settings = {"init": Gaussian(1.0), "dtype": torch.float64, "generator": generator}
    net = PReLUNet(3, 6, 2.0, outputs, **settings)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(0, max(outputs, 2), (40,), generator=generator)
    group = torch.tensor([0, 1, 3, 4])[torch.randint(4, (40,), generator=generator)]
    return net, Dataset(x, 2 * y - 1 if outputs == 1 else y, group=group)


def right(net: PReLUNet, data: Dataset) -> list[bool]:
    out = net(data.x).tolist()
    if net.outputs == 1:
        return [o * y > 0 for o, y in zip(out, data.y.tolist(), strict=True)]
    return [row.index(max(row)) == y for row, y in zip(out, data.y.tolist(), strict=True)]


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_accuracies_against_loops(outputs, monkeypatch):
    monkeypatch.setattr("extremal.measure.accuracies._BATCH_POINTS", 7)
    net, data = case(outputs)
    wanted = right(net, data)
    assert 0 < sum(wanted) < 40
    assert accuracy(net, data) == sum(wanted) / 40
    found = accuracy_by_group(net, data).tolist()
    assert len(found) == 5
    assert math.isnan(found[2])  # nobody is in group 2
    for group in (0, 1, 3, 4):
        own = [w for w, g in zip(wanted, data.group.tolist(), strict=True) if g == group]
        assert found[group] == pytest.approx(sum(own) / len(own), abs=1e-15)


def test_a_point_on_the_boundary_is_not_correct():
    net, data = case(1)
    zero = Dataset(torch.zeros(4, 3, dtype=torch.float64), torch.tensor([1, -1, 1, -1]))
    assert accuracy(net, zero) == 0.0
    with pytest.raises(ValueError, match=r"data\.group must be known"):
        accuracy_by_group(net, zero)
    with pytest.raises(ValueError, match="y must be -1 or"):
        accuracy(net, Dataset(data.x, torch.arange(40)))
