"""Records with rows, and the other small operations on tensors that several parts share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from extremal import _check
from extremal._tensors import (
    NORM_ORDERS,
    SHARED_BY_ROWS,
    RowRecord,
    batches,
    norm_ratio,
    unit_rows,
)
from extremal.attack import Ball


@dataclass(frozen=True, eq=False)
class Inside(RowRecord):
    """A column."""

    value: Tensor


@dataclass(frozen=True, eq=False)
class Outside(RowRecord):
    """One field of each kind."""

    matrix: Tensor
    inside: Inside
    gram: Tensor = field(metadata=SHARED_BY_ROWS)
    word: str = "kept"
    maybe: Tensor | None = None


def record(first: float) -> Outside:
    rows = first + torch.arange(8.0).reshape(4, 2)
    return Outside(rows, Inside(rows[:, 0]), torch.eye(4))


def test_rows_are_chosen_joined_and_replaced():
    one, two = record(0.0), record(100.0)
    mask = torch.tensor([True, False, False, True])
    index = torch.tensor([2, 0])
    for found, rows in (
        (one.take(index), [[4.0, 5.0], [0.0, 1.0]]),
        (one.take(mask), [[0.0, 1.0], [6.0, 7.0]]),
        (one.take(slice(1, 2)), [[2.0, 3.0]]),
        (one.where(mask, two), [[0.0, 1.0], [102.0, 103.0], [104.0, 105.0], [6.0, 7.0]]),
        (
            one.put(index, two.take(index)),
            [[100.0, 101.0], [2.0, 3.0], [104.0, 105.0], [6.0, 7.0]],
        ),
    ):
        assert found.matrix.tolist() == rows
        assert found.inside.value.tolist() == [row[0] for row in rows]
        assert found.gram is one.gram
        assert (found.word, found.maybe) == ("kept", None)


@dataclass(frozen=True, eq=False)
class WithShared(RowRecord):
    """A record that all rows have in common, beside a column."""

    value: Tensor
    common: Inside = field(metadata=SHARED_BY_ROWS)


def test_a_record_that_rows_share_stays():
    one, two = (WithShared(first + torch.arange(4.0), Inside(torch.ones(2))) for first in (0, 9))
    index = torch.tensor([3, 1])
    for found in (
        one.take(index),
        one.where(torch.tensor([True, False, False, True]), two),
        one.put(index, two.take(index)),
    ):
        assert found.common is one.common


@dataclass(frozen=True, eq=False)
class WithBall(RowRecord):
    """A ball for each row, which can be chosen from and not joined."""

    value: Tensor
    ball: Ball


def test_rows_of_a_ball_are_chosen_and_cannot_be_joined():
    one = WithBall(torch.arange(3.0), Ball("l2", torch.tensor([1.0, 2.0, 3.0])))
    index = torch.tensor([2, 0])
    assert one.take(index).ball.radius.tolist() == [3.0, 1.0]
    with pytest.raises(TypeError, match=r"^WithBall.ball must have a method 'where', got Ball$"):
        one.where(torch.tensor([True, False, True]), one)
    with pytest.raises(TypeError, match=r"^WithBall.ball must have a method 'put', got Ball$"):
        one.put(index, one.take(index))


def test_a_field_that_only_one_record_has_is_refused():
    plain, full = record(0.0), replace(record(100.0), maybe=torch.arange(4.0))
    nested = replace(full, maybe=Inside(torch.arange(4.0)))
    mask, index = torch.tensor([True, False, False, True]), torch.arange(4)
    assert full.where(mask, full).maybe.tolist() == [0.0, 1.0, 2.0, 3.0]
    for one, two, kinds in (
        (plain, full, "NoneType and Tensor"),
        (full, plain, "Tensor and NoneType"),
        (full, nested, "Tensor and Inside"),
    ):
        told = f"^Outside.maybe must have rows of one kind in both .*, got {kinds}$"
        with pytest.raises(TypeError, match=told):
            one.where(mask, two)
        with pytest.raises(TypeError, match=told):
            one.put(index, two)


@pytest.mark.parametrize("own", NORM_ORDERS)
@pytest.mark.parametrize("asked", NORM_ORDERS)
def test_the_ratio_of_two_norms_is_reached_and_never_passed(own, asked):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1000, 6, generator=generator, dtype=torch.float64)
    z = torch.cat([z, torch.ones(1, 6), torch.eye(6)])
    sizes = [torch.linalg.vector_norm(z, NORM_ORDERS[norm], dim=1) for norm in (own, asked)]
    assert float((sizes[0] / sizes[1]).max()) == pytest.approx(norm_ratio(own, asked, 6))


def test_unit_rows_and_batches():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert unit_rows(rows).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
    assert [list(range(7))[part] for part in batches(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize(
    ("value", "more", "told"),
    [
        (3, {}, "w must be a floating-point tensor of shape (n, 2) with n >= 1, got int"),
        (torch.ones(2), {}, "got shape (2,) of torch.float32"),
        (torch.ones(0, 2), {}, "got shape (0, 2) of torch.float32"),
        (torch.ones(3, 3), {}, "got shape (3, 3) of torch.float32"),
        (torch.ones(3, 2, dtype=torch.int64), {}, "got shape (3, 2) of torch.int64"),
        (torch.full((3, 2), torch.nan), {}, "w must be finite, got 6 NaN or infinite entries"),
        (torch.ones(3, 2), {"whole": True}, "w must be an integer tensor of shape (n, 2)"),
    ],
)
def test_a_tensor_of_another_shape_or_kind_is_refused(value, more, told):
    with pytest.raises(ValueError, match=r"^w must") as error:
        _check.tensor("w", value, ("n", 2), **more)
    assert told in str(error.value)
