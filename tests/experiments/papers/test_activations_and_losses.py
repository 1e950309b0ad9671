"""The study of activations and losses, and the docs page that shows one by hand."""

import re
from pathlib import Path

import pytest
import torch

import extremal
from extremal import measure
from extremal.experiments import get
from extremal.experiments.papers.open_questions import activations_and_losses as study
from extremal.experiments.papers.open_questions.activations_and_losses import (
    ACTIVATIONS,
    SHALLOW_ACTIVATIONS,
    ShiftedReLU,
    squared_hinge,
)
from extremal.experiments.papers.open_questions.activations_and_losses import (
    trial as activation,
)

BASE = dict(get("open-questions/activation").trials("smoke")[0].params)


def seen(**changes):
    return activation(BASE | changes, torch.Generator().manual_seed(0)).numbers


def test_the_structured_attack_and_the_certificate_are_of_prelu_and_relu_alone():
    for own in (seen(attacked_points=5, steps=60, activation=name) for name in ("prelu", "relu")):
        assert own["structured"] == 1.0
        assert own["certified_half_radius"] > 0.0
    other = seen(activation="shifted relu")
    assert other["structured"] == 0.0
    assert other["certified_half_radius"] is None


def test_all_activations_of_a_seed_meet_the_same_points(monkeypatch):
    met = []

    def keep(net, test, *rest):
        met.append(test.x)
        return {}

    monkeypatch.setattr(study, "_robustness", keep)
    for name in (*SHALLOW_ACTIVATIONS, *ACTIVATIONS):
        seen(activation=name, steps=1)
    assert len(met) == len(SHALLOW_ACTIVATIONS) + len(ACTIVATIONS)
    assert all(torch.equal(points, met[0]) for points in met)


def test_a_network_that_does_not_move_has_not_learned():
    assert seen(activation="shifted relu", init_std=1e-3, radii=[0.5])["learned"] == 0.0
    fitted = seen(activation="relu", attacked_points=50, radii=[0.0], steps=600, spread=0.05)
    assert fitted["learned"] == 1.0


def test_formulas():
    s = torch.tensor([-1.0, 0.05, 0.1, 0.6])
    torch.testing.assert_close(ShiftedReLU(0.1)(s), torch.tensor([0.0, 0.0, 0.0, 0.5]))
    out, y = torch.tensor([0.5, 0.5, 2.0]), torch.tensor([1, -1, 1])
    torch.testing.assert_close(squared_hinge(out, y), torch.tensor([0.25, 2.25, 0.0]))


@pytest.mark.parametrize("name", [*SHALLOW_ACTIVATIONS, *ACTIVATIONS])
def test_every_activation_is_trained(name, monkeypatch):
    monkeypatch.setattr(study, "_robustness", lambda *_: {})
    numbers, start = (seen(activation=name, steps=steps) for steps in (200, 1))
    assert numbers["loss"] < start["loss"]


def test_a_training_that_diverges_is_an_outcome():
    numbers = seen(activation="relu^3", lr=1e4, loss="exp")
    assert (numbers["diverged"], numbers["learned"]) == (1.0, 0.0)
    claims = get("open-questions/activation").claims
    assert all(numbers.get(claim.value) is not None for claim in claims)  # a summary can be made


@pytest.mark.parametrize(("name", "value"), [("activation", "maxout"), ("loss", "hinge")])
def test_unknown_names_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        seen(**{name: value})


def test_the_page_runs_and_says_what_is_not_proven(capsys):
    page = Path(__file__).parents[3] / "docs" / "your-own-activation.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": "page"}
    exec(code.replace("mix.sample(50", "mix.sample(20"), names)
    assert measure.accuracy(names["net"], names["test"]) > 0.9
    assert not names["found"].certified
    assert "uncertified" in {warning.name for warning in names["found"].warnings}
    assert names["found"].headline(0.4) in capsys.readouterr().out
    source = "".join(path.read_text() for path in Path(extremal.__file__).parent.rglob("*.py"))
    assert "SoftKnee" not in source
    assert "logistic_with_margin" not in source
