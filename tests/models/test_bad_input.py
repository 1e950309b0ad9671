"""Bad input to data and models: a ValueError with the parameter, the rule and what was received."""

from __future__ import annotations

import math
import re

import pytest
import torch

from extremal.data import Dataset, OrthonormalMixture
from extremal.models import (
    Balanced,
    Explicit,
    Gaussian,
    Grouped,
    Kaiming,
    PReLUNet,
    Preparation,
    average_classifier,
    bayes_classifier,
    float64_copy,
    load,
    margin,
    margin_gradient,
    save,
    subclass_classifier,
)

X, Y = torch.zeros(2, 3), torch.tensor([1, -1])
MIXTURE = OrthonormalMixture(5, 2, 1, 0.1)


def g():
    return torch.Generator().manual_seed(0)


def net(dim=3, width=2, p=3.0, outputs=1, **others):
    return PReLUNet(dim, width, p, outputs, **{"generator": g()} | others)


def mixture(dim=5, positive=2, negative=1, spread=0.1, **others):
    return OrthonormalMixture(dim, positive, negative, spread, **others)


def given(neurons=(2, 3), votes=(1, 2), **biases):
    return net(init=Explicit(torch.ones(neurons), torch.ones(votes), **biases))


def points(value):
    return torch.tensor([[0.0, 1.0, 2.0], [0.0, value, 1.0]])


def claim(**choice):
    return average_classifier(MIXTURE, **choice)


def lambdas(*values):
    return torch.tensor(values, dtype=torch.float64)


TABLE = [
    # data sets
    ("x", "be finite", "1 NaN or infinite", lambda: Dataset(points(math.nan), Y)),
    ("x", "be finite", "1 NaN or infinite", lambda: Dataset(points(math.inf), Y)),
    ("x", "n >= 1", r"shape \(0, 3\)", lambda: Dataset(X[:0], Y[:0])),
    ("x", r"shape \(n, columns\)", r"shape \(3,\)", lambda: Dataset(X[0], Y)),
    ("x", "floating-point", "int64", lambda: Dataset(X.long(), Y)),
    ("x", "finite numbers", "None", lambda: Dataset([[None]], Y)),
    ("y", r"shape \(2,\)", r"shape \(1,\)", lambda: Dataset(X, Y[:1])),
    ("y", "whole numbers", "fractions", lambda: Dataset(X, torch.tensor([0.5, 1.0]))),
    ("y", "whole numbers", "complex", lambda: Dataset(X, torch.ones(2, dtype=torch.complex64))),
    ("y", r"-1 / \+1 or 0..C-1", r"\[-1, 2\]", lambda: Dataset(X, torch.tensor([-1, 2]))),
    ("group", "integer", "float32", lambda: Dataset(X, Y, group=torch.zeros(2))),
    ("group", "integer", "bool", lambda: Dataset(X, Y, group=torch.zeros(2).bool())),
    ("group", r"shape \(2,\)", r"shape \(3,\)", lambda: Dataset(X, Y, group=torch.arange(3))),
    ("group", ">= 0", "-1", lambda: Dataset(X, Y, group=torch.tensor([-1, 0]))),
    ("box", "pair", r"\[0, 1\]", lambda: Dataset(X, Y, box=[0, 1])),
    ("box", "low < high", r"\(1, 0\)", lambda: Dataset(X, Y, box=(1, 0))),
    ("box", "finite number", "True", lambda: Dataset(X, Y, box=(0, True))),
    ("box", "contain every", r"x in \[0, 5\]", lambda: Dataset(points(5.0), Y, box=(0, 1))),
    # the mixture
    ("dim", "integer >= 1", "0", lambda: mixture(dim=0)),
    ("positive", "integer >= 1", "True", lambda: mixture(positive=True)),
    ("negative", "integer >= 1", "0", lambda: mixture(negative=0)),
    ("spread", "number >= 0", "-0.1", lambda: mixture(spread=-0.1)),
    ("spread", "finite", "inf", lambda: mixture(spread=math.inf)),
    ("spread", "number", "True", lambda: mixture(spread=True)),
    ("positive + negative", "at most dim = 5", "6", lambda: mixture(positive=5)),
    ("generator", "torch.Generator", "0", lambda: mixture(generator=0)),
    ("generator", "torch.Generator", "None", lambda: MIXTURE.sample(3, generator=None)),
    ("count", "integer >= 1", "0", lambda: MIXTURE.sample(0, generator=g())),
    ("dtype", "floating", "int64", lambda: MIXTURE.sample(3, generator=g(), dtype=torch.int64)),
    ("sign", "one of 1, -1", "0", lambda: MIXTURE.average(0)),
    # networks
    ("dim", "integer >= 1", "0", lambda: net(dim=0)),
    ("width", "integer >= 1", "0", lambda: net(width=0)),
    ("width", "integer >= 1", "True", lambda: net(width=True)),
    ("outputs", "integer >= 1", "-1", lambda: net(outputs=-1)),
    ("p", "number >= 1", "0.5", lambda: net(p=0.5)),
    ("p", "number >= 1", "nan", lambda: net(p=math.nan)),
    ("p", "number >= 1", "True", lambda: net(p=True)),
    ("p", "number >= 1", "'3'$", lambda: net(p="3")),
    ("width", "integer >= 1", "'3'$", lambda: net(width="3")),
    ("sign", "one of 1, -1", "'1'$", lambda: MIXTURE.average("1")),
    ("dtype", "floating-point", "torch.int64", lambda: net(dtype=torch.int64)),
    ("dtype", "floating-point", "float32", lambda: net(dtype="float32")),
    ("generator", "torch.Generator", "0", lambda: net(generator=0)),
    ("init", "initialisation", "Kaiming", lambda: net(init=Kaiming)),
    ("preparation", "Preparation", "0.5", lambda: net(preparation=0.5)),
    ("x", r"shape \(n, 3\)", r"shape \(2, 4\)", lambda: net()(torch.zeros(2, 4))),
    ("x", r"tensor of shape \(n, 3\)", "list$", lambda: net()([[0.0, 0.0, 0.0]])),
    ("x", r"shape \(n, 3\)", "list$", lambda: net().input_gradient([[0.0] * 3], Y)),
    ("x", r"shape \(n, 3\)", "list$", lambda: net().parameter_gradient([[0.0] * 3], Y)),
    ("x", "dtype torch.float32", "float64", lambda: net()(X.double())),
    ("y", r"-1 or \+1", r"\[0, 1\]", lambda: margin(net(), X, torch.tensor([0, 1]))),
    ("y", "in 0..2", r"\[0, 3\]", lambda: margin(net(outputs=3), X, torch.tensor([0, 3]))),
    ("net", "torch.nn.Module", "int$", lambda: margin(3, X, Y)),
    ("x", "tensor of points", "list$", lambda: margin(net(), [[0.0] * 3], Y)),
    ("y", "tensor of labels", "list$", lambda: margin(net(), X, [1, -1])),
    ("net", "torch.nn.Module", "int$", lambda: margin_gradient(3, X, Y)),
    ("x", "tensor of points", "list$", lambda: margin_gradient(net(), [[0.0] * 3], Y)),
    ("net", "torch.nn.Module", "str$", lambda: float64_copy("net")),
    ("names", "among", "wings", lambda: net().freeze("wings")),
    ("tolerance", "number >= 0", "-1", lambda: net().effective(-1)),
    ("radius", "number >= 0", "-1", lambda: net().effective().reduction.bound(-1)),
    ("center", r"\(dim,\)", "list", lambda: net().effective().reduction.bound(1, [0.0])),
    ("groups", "1-D integer", "list", lambda: Grouped(net(outputs=2), [0, 1])),
    ("net", "torch.nn.Module", "function$", lambda: Grouped(net, torch.tensor([0, 1]))),
    ("groups", "every group", r"\[0, 2\]", lambda: Grouped(net(outputs=2), torch.tensor([0, 2]))),
    ("groups", "each of 2", "3", lambda: Grouped(net(outputs=2), torch.tensor([0, 1, 0]))),
    ("groups", "two groups", r"\[0\]", lambda: Grouped(net(outputs=2), torch.tensor([0, 0]))),
    ("signed", "two", "3", lambda: Grouped(net(outputs=3), torch.arange(3), signed=True)),
    # initialisations and preparations
    ("std", "number > 0", "0", lambda: Gaussian(0)),
    ("scale", "number > 0", "-1", lambda: Balanced(-1)),
    ("neurons", r"shape \(2, 3\)", r"shape \(3, 2\)", lambda: given(neurons=(3, 2))),
    ("votes", r"shape \(1, 2\)", r"shape \(2, 1\)", lambda: given(votes=(2, 1))),
    ("bias", r"shape \(1,\)", r"shape \(2,\)", lambda: given(bias=torch.zeros(2))),
    ("hidden_bias", "finite", "2 NaN", lambda: given(hidden_bias=torch.full((2,), math.nan))),
    ("neurons", "tensor", "list", lambda: net(init=Explicit([[1.0]], X))),
    ("scale", "number > 0", "0", lambda: Preparation(scale=0)),
    ("scale", "number > 0", "tensor", lambda: Preparation(scale=X)),
    ("center", r"\(dim,\)", "list", lambda: Preparation(center=[0.0])),
    ("center", "finite", "1 NaN", lambda: Preparation(center=lambdas(math.nan))),
    ("normalize", ">= 0 and <= 1", "1.5", lambda: Preparation(normalize=1.5)),
    ("p", "number >= 1", "0", lambda: Preparation.for_power(0)),
    (
        "preparation.center",
        r"shape \(3,\)",
        r"shape \(2,\)",
        lambda: net(preparation=Preparation(center=lambdas(0, 0))),
    ),
    # reference classifiers
    ("p", "number >= 1", "0.9", lambda: subclass_classifier(MIXTURE, 0.9)),
    ("mixture", "OrthonormalMixture", "int$", lambda: average_classifier(3)),
    ("mixture", "OrthonormalMixture", "int$", lambda: subclass_classifier(3, 3)),
    ("mixture", "OrthonormalMixture", "int$", lambda: bayes_classifier(3)),
    ("x", r"shape \(n, 5\)", "list$", lambda: bayes_classifier(MIXTURE)([[0.0] * 5])),
    ("x", r"shape \(n, 5\)", r"shape \(2, 3\)", lambda: bayes_classifier(MIXTURE)(X)),
    # model files (what is wrong inside a file: test_model_files.py)
    ("path", "existing model file", "/no/file", lambda: load("/no/file")),
    ("path", "string or a Path", "int", lambda: load(3)),
    ("path", "string or a Path", "NoneType", lambda: net().save(None)),
    ("net", "PReLUNet", "Linear", lambda: save(torch.nn.Linear(2, 1), "net")),
]


@pytest.mark.parametrize(
    ("name", "rule", "received", "act"), TABLE, ids=[f"{row[0]}: {row[2]}" for row in TABLE]
)
def test_bad_input_is_refused_with_its_name_the_rule_and_what_came(name, rule, received, act):
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} must .*{rule}.*, got .*{received}"):
        act()
