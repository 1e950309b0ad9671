"""A loss that does not change over the first steps is said, and one that does is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import extremal as ex
from extremal.data import Dataset
from extremal.evaluate.health_checks import loss_plateau
from tests.evaluate.scenes import Bump, names


class Terrace(nn.Module):
    """Flat with value 1 up to x_1 = 1, then -1; its gradient says that x_2 matters."""

    def forward(self, x):
        return torch.where(x[:, 0] < 1.0, 1.0, -1.0) + (x[:, 1] - x[:, 1].detach())


class Positive(nn.Module):
    """1.5 + tanh(x_1) / 2: no attack can break it, and it moves with every step."""

    def forward(self, x):
        return 1.5 + 0.5 * torch.tanh(x[:, 0])


def some(count: int = 30) -> Dataset:
    x = torch.zeros(count, 3)
    x[:, 2] = torch.linspace(0.1, 1.0, count)
    return Dataset(x, torch.ones(count))


def test_a_plateau_with_gradients_is_said(generator):
    result = ex.evaluate(Terrace(), some(), generator=generator)
    assert "loss-plateau" in names(result)
    assert "zero-gradients" not in names(result)
    (said,) = (w.sentence for w in result.warnings if w.name == "loss-plateau")
    assert "at 100 % of 30 points that no attack broke" in said


def test_only_unbroken_points_count(generator):
    """Of 30 points 6 have a slope that leads over the edge; at the other 24 nothing moves."""
    test = some()
    test.x[:6, 0] = 0.5
    result = ex.evaluate(Bump(), test, generator=generator)
    (said,) = (w.sentence for w in result.warnings if w.name == "loss-plateau")
    assert "at 100 % of 24 points" in said


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_a_loss_that_moves_is_no_plateau(norm, generator):
    result = ex.evaluate(Positive(), some(), norm=norm, generator=generator)
    assert bool(result.upper.isinf().all())
    assert names(result) == {"uncertified"}


def test_steps_that_a_box_stops_are_a_plateau(generator):
    """At its lower face the box leaves x_1 no room to fall, and no other coordinate matters."""
    test = some()
    ends = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 1.0])
    boxed = Dataset(test.x, test.y, box=ends)
    assert "loss-plateau" in names(ex.evaluate(Positive(), boxed, generator=generator))


@pytest.mark.parametrize(
    ("dtype", "size", "fires"),
    [
        (torch.float32, 1e-7, True),
        (torch.float32, 1e-5, False),
        (torch.float64, 1e-7, False),
        (torch.float64, 1e-16, True),
    ],
)
def test_no_change_is_one_of_rounding(dtype, size, fires):
    """Outputs of 1000: ten roundings are 1.2e-3 in float32 and 2.2e-12 in float64."""
    out = torch.full((20, 3), -1e3, dtype=torch.float64)
    change = torch.full((20,), 1e3 * size, dtype=torch.float64)
    assert (loss_plateau(change, out, dtype, 10) is not None) is fires
    assert (loss_plateau(change, out[:, 0], dtype, 10) is not None) is fires


def test_a_tenth_of_the_points_may_stand_still():
    out, change = torch.ones(20), torch.ones(20, dtype=torch.float64)
    change[:2] = 0.0
    assert loss_plateau(change, out, torch.float32, 10) is None
    change[2] = 0.0
    said = loss_plateau(change, out, torch.float32, 10)
    assert said is not None
    assert "at 15 % of 20 points" in said.sentence
