"""The study of activations and losses, and the docs page that shows one by hand."""

import re
from pathlib import Path

import pytest
import torch

from extremal import measure
from extremal.experiments import get
from extremal.experiments.studies.activation import (
    ACTIVATIONS,
    LOSSES,
    ShiftedReLU,
    activation,
    squared_hinge,
)

BASE = dict(get("open-questions/activation").trials("smoke")[0].params)


def seen(**changes):
    return activation(BASE | changes, torch.Generator().manual_seed(0)).numbers


def test_the_structured_attack_and_the_certificate_are_of_prelu_alone():
    own, other = seen(), seen(activation="shifted relu")
    assert (own["structured"], other["structured"]) == (1.0, 0.0)
    assert own["certified_half_radius"] > 0.0
    assert other["certified_half_radius"] == 0.0


def test_formulas():
    s = torch.tensor([-1.0, 0.05, 0.1, 0.6])
    torch.testing.assert_close(ShiftedReLU(0.1)(s), torch.tensor([0.0, 0.0, 0.0, 0.5]))
    out, y = torch.tensor([0.5, 0.5, 2.0]), torch.tensor([1, -1, 1])
    torch.testing.assert_close(squared_hinge(out, y), torch.tensor([0.25, 2.25, 0.0]))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_trained(name):
    numbers = seen(activation=name, attacked_points=2, radii=[0.5], steps=200)
    start = seen(activation=name, attacked_points=2, radii=[0.5], steps=1)
    assert numbers["loss"] < start["loss"]


def test_a_training_that_diverges_is_an_outcome():
    assert seen(activation="relu^3", lr=1e4, loss="exp")["diverged"] == 1.0


@pytest.mark.parametrize(("name", "value"), [("activation", "maxout"), ("loss", "hinge")])
def test_unknown_names_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        seen(**{name: value})


def test_the_page_runs_and_says_what_is_not_proven(capsys):
    page = Path(__file__).parents[2] / "docs" / "your-own-activation.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": "page"}
    exec(code.replace("mix.sample(50", "mix.sample(20"), names)
    assert measure.accuracy(names["net"], names["test"]) > 0.9
    assert not names["found"].certified
    assert "uncertified" in {warning.name for warning in names["found"].warnings}
    assert names["found"].headline(0.4) in capsys.readouterr().out
    assert set(LOSSES) == {"exp", "logistic", "squared hinge"}
