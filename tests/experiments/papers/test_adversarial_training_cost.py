"""The study of what robustness costs."""

import pytest
import torch

from extremal.experiments import get
from extremal.experiments.papers.open_questions.adversarial_training_cost import (
    trial as training_time,
)

BASE = dict(get("open-questions/training-time").trials("smoke")[0].params)


def test_costs_are_counted_and_accuracies_are_in_order():
    plain, attacked = (
        training_time(BASE | {"training": kind, "epochs": 3}, torch.Generator().manual_seed(0))
        for kind in ("plain", "adversarial")
    )
    assert plain.numbers["passes"] == 3
    assert attacked.numbers["passes"] == 3 * (1 + BASE["inner_steps"])
    for numbers in (plain.numbers, attacked.numbers):
        assert numbers["certified"] <= numbers["attacked_few"]
        assert numbers["attacked"] == numbers["per_pass"] * numbers["passes"]
        assert numbers["seconds"] > 0
        assert numbers["per_second"] == numbers["attacked"] / numbers["seconds"]


def test_an_unknown_training_is_refused():
    with pytest.raises(ValueError, match="training must be one of"):
        training_time(BASE | {"training": "robust"}, torch.Generator())


def test_each_network_has_a_row_of_robust_accuracy_for_each_second():
    experiment = get("open-questions/training-time")
    for scale in ("quick", "paper"):
        settings = experiment.at(scale)
        rows = {
            (claim.where["dataset"], claim.where["label"])
            for claim in experiment.claims
            if claim.value == "per_second" and scale in claim.scales
        }
        nets = {(name, net["label"]) for name in settings["dataset"] for net in settings["case"]}
        assert rows == nets


def test_one_image_is_no_lead():
    for claim in get("open-questions/training-time").claims:
        assert claim.rule in {"over", "reported"}
        assert claim.value != "attacked" or claim.tolerance == 0.01
