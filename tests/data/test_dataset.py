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


def test_a_subset_is_drawn_by_the_generator():
    data = Dataset(torch.arange(50.0).unsqueeze(1), torch.arange(50) % 3)
    parts = [data.subset(20, generator=torch.Generator().manual_seed(k)) for k in (0, 0, 1)]
    assert torch.equal(parts[0].x, parts[1].x)
    assert not torch.equal(parts[0].x, parts[2].x)
    assert torch.equal(parts[0].x.squeeze(1).unique(), parts[0].x.squeeze(1))  # once, in order
    assert torch.equal(parts[0].y, parts[0].x.squeeze(1).long() % 3)
    with pytest.raises(ValueError, match="count must be at most the number of points, 50, got 51"):
        data.subset(51, generator=torch.Generator())


@pytest.mark.parametrize("groups", [[0, 1, 0], [1, -1, -1], [2, 0, 1]])
def test_coarser_labels_keep_the_finer_ones_as_groups(groups):
    data = Dataset(torch.arange(6.0).unsqueeze(1), torch.tensor([2, 1, 0, 0, 1, 2]), box=(0.0, 9.0))
    coarse = data.relabel(torch.tensor(groups))
    assert coarse.y.tolist() == [groups[k] for k in (2, 1, 0, 0, 1, 2)]
    assert torch.equal(coarse.group, data.y)
    assert coarse.box == data.box


def test_labels_may_be_a_condition_on_the_class():
    data = Dataset(torch.zeros(4, 1), torch.tensor([3, 0, 2, 1]))
    assert data.relabel(torch.arange(4) > 1).y.tolist() == [1, 0, 1, 0]


def test_labels_that_do_not_fit_are_refused():
    data = Dataset(torch.zeros(2, 1), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match=r"groups must .*, got none for class 3"):
        data.relabel(torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="groups must be an integer tensor"):
        data.relabel(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="groups must be an integer tensor"):
        data.relabel([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"y must be classes .*, got label -1"):
        make_data().relabel(torch.tensor([0, 1]))


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


def test_a_box_may_have_its_own_interval_for_each_coordinate():
    """Ends are kept in the points' dtype: those that a point touches still hold it there."""
    x = torch.tensor([[0.1, -3.0], [0.0, 5.0]])
    ends = torch.tensor([0.0, -3.0]).double(), torch.tensor([0.1, 5.0]).double()
    data = Dataset(x, torch.tensor([1, -1]), box=ends)
    assert [end.dtype for end in data.box] == [torch.float32] * 2
    part = data.take(torch.tensor([1]))
    assert all(torch.equal(a, b) for a, b in zip(part.box, data.box, strict=True))
    wide = data.to(torch.float64)
    assert [end.dtype for end in wide.box] == [torch.float64] * 2
    assert torch.equal(wide.box[1].float(), data.box[1])
    assert torch.equal(data.to("cpu").box[0], data.box[0])


def test_a_coordinate_may_be_fixed_by_its_box():
    ends = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5])
    data = Dataset(torch.tensor([[0.3, 0.5]]), torch.tensor([1]), box=ends)
    assert torch.equal(data.box[0], ends[0])


PAIR = r"box must be a pair \(low, high\) of numbers or of \(2,\) tensors"


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((0.0, 1.0, 2.0), PAIR),
        ([0.0, 1.0], PAIR),
        ((torch.zeros(2), 1.0), PAIR + ", got shape \\(2,\\) and float"),
        ((torch.zeros(3), torch.ones(3)), PAIR + ", got shape \\(3,\\)"),
        ((torch.zeros(()), torch.ones(())), PAIR),
        ((torch.zeros(2), torch.ones(2) * 1j), "box must be real"),
        ((torch.zeros(2), torch.tensor([1.0, torch.inf])), "box must be finite"),
        ((torch.tensor([0.0, 2.0]), torch.ones(2)), r"low <= high, got \(2, 1\) at coordinate 1"),
        ((torch.zeros(2), torch.tensor([1.0, 0.6])), r"every point of x, got \(0, 0.6\) at coord"),
        ((torch.tensor([0.0, 0.2]), torch.ones(2)), r"every point of x, got \(0.2, 1\) at coord"),
        ((0.0, torch.inf), "box must be a finite number"),
        ((1.0, 1.0), "box must have low < high"),
        ((0.0, 0.8), "box must contain every coordinate of x"),
    ],
)
def test_a_bad_box_is_refused(box, message):
    data = make_data()
    with pytest.raises(ValueError, match=message) as caught:
        Dataset(data.x, data.y, box=box)
    assert "\n" not in str(caught.value)


def test_fine_labels_are_the_subclasses():
    data = Dataset(torch.zeros(3, 2), torch.tensor([1, -1, 1]), group=torch.tensor([0, 2, 1]))
    assert data.fine().y.tolist() == [0, 2, 1]
    assert data.y.tolist() == [1, -1, 1]
    with pytest.raises(ValueError, match="group must be known"):
        Dataset(torch.zeros(1, 2), torch.tensor([1])).fine()


def test_spaced_points_are_of_the_whole_range():
    data = Dataset(torch.arange(10.0).unsqueeze(1), torch.arange(10) // 5)
    assert data.evenly_spaced(4).x.flatten().tolist() == [0.0, 3.0, 6.0, 9.0]
    assert len(data.evenly_spaced(40)) == 10
    with pytest.raises(ValueError, match="count must"):
        data.evenly_spaced(0)
