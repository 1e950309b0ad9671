"""Bad input: one table, one form of error, nothing trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from extremal.data import Dataset
from extremal.train import Loss, Record, adam, gd, gradient_flow, sgd
from tests.train.flow_problem import problem

NET, DATA = problem(2.0)
CLASSES, CLASS_DATA = problem(2.0, outputs=3)
FROZEN = problem(2.0)[0].freeze("neurons", "votes")
WIDE = Dataset(torch.ones(2, 4, dtype=torch.float64), torch.tensor([1, -1]))
SEED = torch.Generator()
GD = {"lr": 0.1, "steps": 1}
SGD = {"lr": 0.1, "steps": 1, "batch": 2, "generator": SEED}
FLOW = {"until": 1.0}
LATE = Record(at=(0.01, 1.000001))

BAD = {
    "gd: lr": (gd, NET, DATA, GD | {"lr": 0.0}, "lr must be a finite number > 0"),
    "gd: lr nan": (gd, NET, DATA, GD | {"lr": float("nan")}, "lr must be a finite"),
    "gd: momentum": (gd, NET, DATA, GD | {"momentum": 1.0}, "momentum must be below 1, got 1"),
    "sgd: momentum": (sgd, NET, DATA, SGD | {"momentum": -0.1}, "momentum must be a finite"),
    "gd: steps": (gd, NET, DATA, GD | {"steps": 0}, "steps must be an integer >= 1"),
    "gd: labels": (gd, NET, CLASS_DATA, GD, r"train\.y must be -1 or \+1"),
    "gd: loss": (gd, NET, DATA, GD | {"loss": "cross-entropy"}, "loss must be 'exp' or"),
    "gd: loss name": (gd, NET, DATA, GD | {"loss": "hinge"}, "loss must be one of"),
    "gd: frozen": (gd, FROZEN, DATA, GD, "net must have a parameter that is not frozen"),
    "gd: dim": (gd, NET, WIDE, GD, r"train\.x must have 3 columns, got 4"),
    "gd: dtype": (gd, NET, DATA.to(torch.float32), GD, "x must have the network's dtype"),
    "gd: (n, 1)": (gd, nn.Linear(3, 1).double(), DATA, GD, r"net must return \(n,\)"),
    "gd: train": (gd, NET, "abc", GD, "train must be a Dataset, got str"),
    "sgd: train": (sgd, NET, DATA.x, SGD, "train must be a Dataset, got Tensor"),
    "adam: train": (adam, CLASSES, None, SGD, "train must be a Dataset, got NoneType"),
    "flow: train": (gradient_flow, NET, "abc", FLOW, "train must be a Dataset, got str"),
    "gd: record": (gd, NET, DATA, GD | {"record": [1.0]}, "record must be a Record or None, got l"),
    "sgd: record": (sgd, NET, DATA, SGD | {"record": 1}, "record must be a Record or None, got i"),
    "flow: record": (gradient_flow, NET, DATA, FLOW | {"record": []}, "record must be a Record"),
    "gd: late": (gd, NET, DATA, GD | {"record": LATE}, r"record\.at must .* 0\.1, got 1\.000001$"),
    "sgd: late": (sgd, NET, DATA, SGD | {"record": LATE}, r"record\.at must lie within"),
    "adam: late": (adam, CLASSES, CLASS_DATA, SGD | {"record": LATE}, r"record\.at .* at most 1,"),
    "flow: late": (gradient_flow, NET, DATA, FLOW | {"record": LATE}, r"record\.at .* at most 1,"),
    "sgd: lr": (sgd, NET, DATA, SGD | {"lr": -1.0}, "lr must be a finite number > 0"),
    "sgd: batch": (sgd, NET, DATA, SGD | {"batch": 12}, "batch must be at most 11 points"),
    "sgd: batch 0": (sgd, NET, DATA, SGD | {"batch": 0}, "batch must be an integer >= 1"),
    "sgd: seed": (sgd, NET, DATA, SGD | {"generator": 1}, "generator must be a torch.Gen"),
    "adam: lr": (adam, CLASSES, CLASS_DATA, SGD | {"lr": 0}, "lr must be a finite number > 0"),
    "adam: loss": (adam, CLASSES, CLASS_DATA, SGD | {"loss": "exp"}, "loss must be 'exp' or"),
    "adam: labels": (adam, CLASSES, DATA, SGD, r"train\.y must lie in 0\.\.2"),
    "flow: until": (gradient_flow, NET, DATA, {"until": 0.0}, "until must be a finite"),
    "flow: tolerance": (gradient_flow, NET, DATA, FLOW | {"tolerance": 0.5}, "tolerance must"),
    "flow: tolerance 0": (gradient_flow, NET, DATA, FLOW | {"tolerance": 0}, "tolerance must"),
    "flow: method": (gradient_flow, NET, DATA, FLOW | {"method": "euler"}, "method must be one"),
    "flow: max_steps": (gradient_flow, NET, DATA, FLOW | {"max_steps": 0}, "max_steps must"),
    "flow: loss": (gradient_flow, CLASSES, CLASS_DATA, FLOW, "loss must be 'exp' or"),
    "flow: frozen": (gradient_flow, FROZEN, DATA, FLOW, "net must have a parameter"),
    "flow: dim": (gradient_flow, NET, WIDE, FLOW, r"train\.x must have 3 columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    train, net, data, settings, message = BAD[case]
    before = [part.detach().clone() for part in net.parameters()]
    with pytest.raises(ValueError, match=message):
        train(net, data, **settings)
    assert all(map(torch.equal, before, net.parameters()))


def test_unknown_reduction():
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', got 'max'"):
        Loss("exp", "max")


@pytest.mark.parametrize("train", [gd, sgd, adam, gradient_flow])
def test_a_network_must_be_a_module(train):
    settings = FLOW if train is gradient_flow else GD if train is gd else SGD
    with pytest.raises(ValueError, match=r"net must be a torch\.nn\.Module, got int"):
        train(3, DATA, **settings)


def test_the_end_itself_may_be_recorded_up_to_rounding():
    for end in (1.0, 1.0 + 5e-10, 1.0 - 5e-10):
        net, data = problem(2.0)
        run = gradient_flow(net, data, until=1.0, record=Record(at=(end,)))
        assert run.times.tolist() == [0.0, 1.0]
