"""The study of patches: both trainings at a size where the two phases come in seconds."""

import math

import pytest
import torch

from extremal import theory
from extremal.experiments import Outcome, get
from extremal.experiments.papers.li_li_2025 import patches_trial as study

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
    return study.figure_3_trial(BASE | {"training": "standard"}, generator()).numbers


@pytest.fixture(scope="module")
def adversarial():
    return study.transition_trial(BASE | {"training": "adversarial"}, generator()).numbers


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


def test_never_is_what_a_constant_would_be_right_in(adversarial):
    assert (adversarial["both_phases"], adversarial["never"]) == (1.0, 0.0)
    assert adversarial["edge"] == 0.0


def test_a_network_that_is_right_before_training_shows_no_phase(monkeypatch):
    """Right and broken at the start alone, robust in the end: no phase I."""
    lists = {"epoch": [0, 2], "clean": [1.0, 1.0], "robust": [0.0, 0.95]}
    numbers = {**lists, "by_trained_attack": [1.0, 1.0], "phase_one": 1.0, "phase_two": 1.0}
    monkeypatch.setattr(study, "figure_3_trial", lambda *_: Outcome(numbers))
    found = study.transition_trial(BASE, generator()).numbers
    assert (found["phase_one"], found["both_phases"], found["transition"]) == (0.0, 0.0, 2.0)
    assert (found["predicted"], found["agrees"], found["never"]) == (1.0, 0.0, 1.0)


def test_epochs_to_record_also_come_beside_the_others_and_within_the_training():
    small = BASE | {"epochs": 4, "recorded_every": 2, "train_each": 2, "training": "adversarial"}
    plain = study.figure_3_trial(small, generator()).numbers
    also = study.figure_3_trial(small | {"recorded_also": [1, 2, 3, 10]}, generator()).numbers
    assert plain["epoch"] == [0, 2, 4]
    assert also["epoch"] == [0, 1, 2, 3, 4]
    assert also["robust_correlation"] == plain["robust_correlation"]


def test_each_setting_of_the_transition_is_run_once_and_drawn_on_all_its_diagrams():
    *cases, last = get("li-li-2025/transition").settings["case"].value
    names = ("alpha", "radius", "dense", "q", "width")
    assert len({str([case[name] for name in names]) for case in cases}) == len(cases) == 90
    sizes = {
        "strength against radius": 36,
        "density against radius": 20,
        "q against strength": 28,
        "width against radius": 16,
    }
    assert {name: sum(case[name] for case in cases) for name in sizes} == sizes
    assert not any(last[name] for name in sizes)
    figure = get("li-li-2025/figure-3").at("paper")
    same = ("train_each", "test_each", "attack_steps", "alpha", "dense", "q", "width")
    assert [last[name] for name in same] == [figure[name] for name in same]


def test_the_record_has_the_settings_on_the_side_that_the_study_finds():
    experiment = get("li-li-2025/transition")
    settings = experiment.at("paper")
    beta = sum(settings["beta"]) / 2
    for case in settings["case"][:-1]:
        alpha = sum(case["alpha"]) / 2
        window = theory.patch_window(
            settings["robust"], case["dense"], alpha, beta, case["radius"], case["q"]
        )
        assert (case["inside"], case["edge"]) == (window.inside, window.edge)
        assert alpha == pytest.approx(case["strength"])
    shares = [claim for claim in experiment.claims if claim.interval == "share"]
    least = {"edge": False, "train_each": settings["train_each"]}
    assert all(least.items() <= claim.where.items() for claim in shares)
    trials = [
        trial for trial in experiment.trials("paper") if least.items() <= trial.params.items()
    ]
    assert len(trials) == 3 * 80


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
        study.figure_3_trial(BASE | {"training": "robust"}, generator())
