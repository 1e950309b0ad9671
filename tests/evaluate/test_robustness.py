"""One seed gives one result, and a file gives it back."""

from __future__ import annotations

import json
import math

import pytest
import torch

import extremal as ex
from extremal.data import Dataset
from extremal.evaluate import HealthWarning, Robustness
from tests.evaluate.scenes import Bump, made


def test_one_seed_one_result(generator):
    test = Dataset(torch.zeros(20, 3), torch.ones(20))

    def told(seed: int) -> str:
        g = torch.Generator().manual_seed(seed)
        return ex.evaluate(Bump(), test, radii=[0.8], generator=g).to_json()

    first = told(1)
    assert told(1) == first
    assert json.loads(told(2))["upper"] != json.loads(first)["upper"]


def test_a_file_gives_back_every_field(tmp_path):
    warning = HealthWarning("wide-brackets", "the truth may be anywhere between")
    result = made(
        [0.1, 0.0],
        [1 / 3, math.inf],
        box=(0.0, 1.0),
        attack=("shortest", ""),
        certificate=("linear", ""),
        warnings=(warning,),
        settings={"radii": [0.25], "seed": 3},
        sampled=False,
    )
    path = tmp_path / "robustness.json"
    result.save(path)
    assert json.loads(path.read_text())["upper"] == [1 / 3, None]
    again = Robustness.load(path)
    assert again.to_json() == result.to_json()
    assert again.warnings == (warning,)
    assert again.box == (0.0, 1.0)
    assert again.sampled is False
    assert torch.equal(again.upper, result.upper)
    assert again.curve().radii.tolist() == [0.25]
    frame = result.to_frame()
    assert frame["upper"] == [1 / 3, math.inf]
    assert frame["attack"] == ["shortest", ""]
    assert len({len(column) for column in frame.values()}) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda read: read.update(format="other"),
        lambda read: read.pop("upper"),
        lambda read: read.update(lower=[2.0, 2.0]),
        lambda read: read.update(upper=[0.5]),
        lambda read: read.update(upper=["a", "b"]),
        lambda read: read.update(norm="l3"),
        lambda read: read.update(more=1),
        lambda read: read.update(lower=[-1.0, 0.0]),
    ],
)
def test_a_file_that_is_none_is_refused(change, tmp_path):
    path = tmp_path / "robustness.json"
    read = json.loads(made([0.1, 0.2], [0.3, 0.4]).to_json())
    change(read)
    path.write_text(json.dumps(read))
    with pytest.raises(ValueError, match=r"path must be a file that Robustness\.save wrote"):
        Robustness.load(path)


def test_no_file_and_no_json_are_refused(tmp_path):
    with pytest.raises(ValueError, match="path must name an existing file"):
        Robustness.load(tmp_path / "none.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="path must be a file that"):
        Robustness.load(tmp_path / "a.json")
