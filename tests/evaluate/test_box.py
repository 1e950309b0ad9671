"""A box with its own interval for each coordinate goes all the way: attacks, certificate, file."""

from __future__ import annotations

import json

import pytest
import torch

import extremal as ex
from extremal.data import Dataset
from extremal.evaluate import Robustness
from extremal.models import Explicit, PReLUNet
from tests.evaluate.scenes import made


def scene(low, high):
    """f = relu(x_1 + x_2) - 0.5 at (0.55, 0.55)."""
    kind = {"dtype": torch.float64}
    box = torch.tensor(low, **kind), torch.tensor(high, **kind)
    weights = torch.ones(1, 2, **kind), torch.ones(1, 1, **kind)
    init = Explicit(*weights, bias=torch.tensor([-0.5], **kind))
    net = PReLUNet(2, 1, bias=True, init=init, generator=torch.Generator(), **kind)
    return net, Dataset(torch.tensor([[0.55, 0.55]], **kind), torch.tensor([1]), box=box)


@pytest.mark.parametrize(("norm", "wanted"), [("linf", 0.5), ("l2", 0.26**0.5), ("l1", 0.6)])
def test_each_coordinate_keeps_to_its_own_interval(norm, wanted, generator):
    """x_1 may fall by 0.1 only, so that x_2 must by 0.5."""
    net, test = scene([0.45, -1.0], [1.0, 1.0])
    result = ex.evaluate(net, test, norm=norm, generator=generator)
    assert float(result.upper) == pytest.approx(wanted, rel=1e-3)
    assert float(result.lower) <= wanted
    assert torch.equal(torch.stack(result.box), torch.stack(test.box))
    if norm == "linf":
        assert result.boxed
        assert float(result.lower) == pytest.approx(wanted, rel=0.01)


def test_a_box_of_equal_intervals_is_that_of_two_numbers():
    net, each = scene([-0.1, -0.1], [1.0, 1.0])
    both = Dataset(each.x, each.y, box=(-0.1, 1.0))
    told = [
        ex.evaluate(net, data, norm="linf", radii=[0.2], generator=torch.Generator().manual_seed(1))
        for data in (each, both)
    ]
    assert torch.equal(told[0].upper, told[1].upper)
    assert torch.equal(told[0].lower, told[1].lower)


def test_a_file_gives_back_the_box_of_each_coordinate(tmp_path):
    low, high = torch.tensor([0.0, -0.1]), torch.tensor([1.0, 0.1])
    result = made([0.1], [0.2], box=(low, high))
    result.save(tmp_path / "r.json")
    stored = json.loads((tmp_path / "r.json").read_text())["box"]
    assert stored == [low.tolist(), high.tolist()]
    again = Robustness.load(tmp_path / "r.json")
    assert torch.equal(again.box[0].float(), low)
    assert torch.equal(again.box[1].float(), high)
    assert again.to_json() == result.to_json()


@pytest.mark.parametrize("box", [[1.0, 0.0], [[0.0], [1.0, 2.0]], [0.0], "ab", [[2.0], [1.0]], 3])
def test_a_file_with_a_bad_box_is_refused(box, tmp_path):
    read = json.loads(made([0.1], [0.2]).to_json())
    (tmp_path / "r.json").write_text(json.dumps({**read, "box": box}))
    with pytest.raises(ValueError, match=r"path must be a file that Robustness\.save wrote"):
        Robustness.load(tmp_path / "r.json")
