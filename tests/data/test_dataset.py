"""A data set keeps what belongs to a point together."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
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


class Frame:
    """What NumPy sees of a data frame or a series, whose library is no requirement."""

    def __init__(self, *columns: object) -> None:
        self.columns = columns

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.columns[0] if len(self.columns) == 1 else self.columns).T


X = [[0.1, 1.0], [0.2, 0.0], [0.3, 0.5]]
Y = [1, -1, 1]


@pytest.mark.parametrize(
    "x",
    [
        X,
        [tuple(row) for row in X],
        np.array(X),
        np.array(X, dtype=np.float32),
        np.array(X, dtype=">f8"),
        np.array(X)[::-1][::-1],
        np.asfortranarray(X),
        Frame([0.1, 0.2, 0.3], [1.0, 0.0, 0.5]),
        torch.tensor(X),
    ],
    ids=["lists", "tuples", "f8", "f4", "big-endian", "strides", "columns", "frame", "tensor"],
)
@pytest.mark.parametrize(
    "y",
    [Y, np.array(Y), np.array(Y, dtype=np.int8), np.array(Y, dtype=float), Frame(Y), (1, -1, 1)],
    ids=["list", "i8", "i1", "f8", "series", "tuple"],
)
def test_arrays_frames_and_lists_become_tensors(x, y):
    data = Dataset(x, y, group=np.array([0, 2, 1], dtype=np.uint16))
    assert (data.x.dtype, data.y.dtype, data.group.dtype) == (
        torch.float32,
        torch.int64,
        torch.int64,
    )
    assert torch.equal(data.x, torch.tensor(X))
    assert (data.y.tolist(), data.group.tolist()) == (Y, [0, 2, 1])
    assert torch.equal(data.take(torch.tensor([2])).x, torch.tensor(X[2:]))
    assert torch.equal(replace(data, y=[0, 1, 2]).y, torch.arange(3))


def test_whole_and_logical_columns_are_numbers():
    data = Dataset(np.array([[0, 255], [7, 1]], dtype=np.uint8), np.array([True, False]))
    assert data.x.tolist() == [[0.0, 255.0], [7.0, 1.0]]
    assert data.y.tolist() == [1, 0]
    assert Dataset(np.eye(2, dtype=bool), [0, 1]).x.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_an_array_is_copied_and_a_tensor_is_not():
    array = np.zeros((2, 2), dtype=np.float32)
    array.flags.writeable = False
    tensor = torch.zeros(2, 2, dtype=torch.float64)
    assert Dataset(tensor, [0, 1]).x is tensor
    copied = Dataset(array, [0, 1]).x
    copied[0, 0] = 5.0
    assert array[0, 0] == 0.0


def test_a_box_may_be_of_arrays():
    x = np.array(X)
    data = Dataset(x, Y, box=(x.min(0), [0.3, 1.0]))
    assert [end.dtype for end in data.box] == [torch.float32] * 2
    assert torch.equal(data.box[0], torch.tensor([0.1, 0.0]))
    assert Dataset(x, Y, box=(np.float64(0.0), np.int64(1))).box == (0.0, 1.0)


NUMBERS = "must be finite numbers: a tensor, an array, a frame or lists, got "
LABELS = r"must be whole numbers, -1 / \+1 or 0..C-1: a tensor, an array, a series or a list, got "
OBJECTS = f"{NUMBERS}an array of dtype object"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([["a", "b"]], NUMBERS + "an array of dtype <U1 with .*'a'"),
        (np.array([["1.5", "2"]]), NUMBERS + "an array of dtype <U3 with .*'1.5'"),
        (np.array([[1.0, "cat"]], dtype=object), OBJECTS + " with 'cat'$"),
        (Frame(np.array([1.0, None], dtype=object)), OBJECTS + " with None$"),
        (np.array([[1.0, True]], dtype=object), OBJECTS + r" \(try frame.astype\(float\)\)$"),
        ([[Fraction(1, 2)]], OBJECTS),
        ([[1j]], NUMBERS + "an array of dtype complex128"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), NUMBERS + r"an array of dtype datetime64"),
        ([[1.0], [1.0, 2.0]], NUMBERS + r"list \(setting an array element"),
        (np.ma.masked_array([[1.0]], mask=[[True]]), NUMBERS + "a masked array"),
        (None, OBJECTS + " with None$"),
        ("points.csv", NUMBERS + "an array of dtype <U10"),
        ([[float("nan")]], "must be finite, got 1 NaN or infinite entries"),
        (np.array([[1e300]]), "must be finite, got 1 NaN or infinite entries"),
        ([1.0, 2.0], r"must be a floating-point tensor of shape \(n, columns\)"),
    ],
)
def test_points_that_are_no_numbers_are_one_clear_line(x, message):
    with pytest.raises(ValueError, match=f"^x {message}") as caught:
        Dataset(x, [0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["cat", "dog"], LABELS + "an array of dtype <U3 with .*'cat'"),
        (np.array(["cat", None], dtype=object), LABELS + "an array of dtype object with 'cat'"),
        ([1.0, float("nan")], "must be finite, got 1 NaN"),
        ([0.5, 1.0], "must be whole numbers, got fractions"),
        ([[0], [1]], r"must have shape \(2,\), one label a point, got shape \(2, 1\)"),
        ([0, -2], "must be -1 / \\+1 or 0..C-1"),
    ],
)
def test_labels_that_are_no_numbers_are_one_clear_line(y, message):
    with pytest.raises(ValueError, match=f"^y {message}") as caught:
        Dataset(np.zeros((2, 1)), y)
    assert "\n" not in str(caught.value)


def test_groups_and_boxes_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="group must be finite numbers"):
        Dataset(X, Y, group=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"group must be integers of shape \(3,\)"):
        Dataset(X, Y, group=[0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="box must be finite numbers"):
        Dataset(X, Y, box=(["a", "b"], [1.0, 1.0]))


def test_pandas_frames_are_taken():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0.1, 0.2, 0.3], "b": [1, 0, 2], "label": Y})
    data = Dataset(frame[["a", "b"]], frame["label"])
    assert torch.equal(data.x, torch.tensor([[0.1, 1.0], [0.2, 0.0], [0.3, 2.0]]))
    assert data.y.tolist() == Y
    with pytest.raises(ValueError, match="x must be finite numbers"):
        Dataset(frame.assign(name=["a", "b", "c"]), Y)


def test_no_library_of_frames_is_imported():
    code = (
        "import sys, numpy, extremal as ex; ex.data.Dataset(numpy.zeros((2, 2)), [0, 1]); "
        "print(sorted({'pandas', 'polars', 'pyarrow'} & {*sys.modules}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
