"""The study of patches: both trainings at a size where the two phases come in seconds."""

import math

import pytest
import torch

from extremal.experiments import get
from extremal.experiments.studies import patches as study

BASE = dict(get("li-li-2025/figure-3").trials("smoke")[0].params) | {
    "dense": 25,
    "epochs": 260,
    "train_each": 8,
    "test_each": 4,
    "width": 10,
    "lr": 0.1,
    "recorded_every": 20,
    "watched_points": 12,
    "watched_steps": 5,
    "attack_steps": 20,
}


def generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture(scope="module")
def standard():
    return study.patches(BASE | {"training": "standard"}, generator()).numbers


@pytest.fixture(scope="module")
def adversarial():
    return study.window(BASE | {"training": "adversarial"}, generator()).numbers


def test_standard_training_learns_what_an_attack_turns(standard):
    assert standard["clean_accuracy"] == 1.0
    assert standard["robust_accuracy"] < 0.05
    assert standard["dense_over_robust"] > 3.0
    assert standard["inside_accuracy"] == standard["replaced_accuracy"] == 0.0
    assert standard["transition"] == math.inf


def test_adversarial_training_has_two_phases(adversarial):
    assert adversarial["phase_one"] >= 1
    assert adversarial["robust_accuracy"] > 0.9
    assert adversarial["phase_one_ends"] < adversarial["transition"] < 260
    assert adversarial["dense_over_robust"] < 1.0
    assert adversarial["inside_accuracy"] == 1.0
    assert adversarial["masked"] > 0.9
    assert (adversarial["predicted"], adversarial["agrees"]) == (1.0, 1.0)


def test_phases_are_read_off_the_curves():
    curves = {
        "epoch": [0, 1, 2, 3, 4],
        "clean": [0.3, 1.0, 1.0, 1.0, 1.0],
        "robust": [0.0, 0.0, 0.6, 0.4, 0.9],
        "by_trained_attack": [0.0, 1.0, 1.0, 1.0, 1.0],
    }
    found = study._phases(curves)
    assert found == {"phase_one": 1.0, "phase_one_ends": 1.0, "transition": 4.0, "masked": 1.0}
    never = study._phases(curves | {"robust": [0.2] * 5})
    assert never["transition"] == math.inf
    assert math.isnan(never["phase_one_ends"])
    always = study._phases(curves | {"robust": [0.9] * 5})
    assert always["transition"] == 0.0


def test_an_unknown_training_is_refused():
    with pytest.raises(ValueError, match="training must be one of"):
        study.patches(BASE | {"training": "robust"}, generator())
