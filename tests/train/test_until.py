"""Where a flow ends: at a time, a loss or a margin."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.models import output_margins
from extremal.train import Loss, Record, Until, gradient_flow, total_loss
from tests.train.twin import largest_difference, problem

KINDS = {"plain": {"tolerance": 1e-6}, "staged": {"method": "general", "tolerance": 1e-4}}
EACH = pytest.mark.parametrize("kind", KINDS)


def smallest_margin(net, data) -> float:
    with torch.no_grad():
        return float(output_margins(net(data.x), data.y).min())


@EACH
def test_a_loss_is_reached(kind):
    net, data = problem(2.0)
    run = gradient_flow(net, data, until=Until(loss=0.4), **KINDS[kind])
    assert run.info["converged"]
    accuracy = 1e-6 if kind == "plain" else 1e-3
    assert total_loss(net, data, Loss("exp")) == pytest.approx(0.4, rel=accuracy)
    assert float(run.values["loss"][-1]) == pytest.approx(0.4, rel=1e-6)
    assert float(run.times[-1]) == run.info["reached"]


@EACH
def test_a_margin_is_reached(kind):
    net, data = problem(2.0, seed=2)
    run = gradient_flow(net, data, until=Until(time=50.0, margin=-0.2), **KINDS[kind])
    assert run.info["converged"]
    assert 0.0 < run.info["reached"] < 50.0
    accuracy = 1e-6 if kind == "plain" else 2e-3
    assert smallest_margin(net, data) == pytest.approx(-0.2, abs=accuracy)


def test_a_margin_between_classes_is_reached():
    net, data = problem(2.0, outputs=3, biases=True)
    goal = smallest_margin(net, data) + 0.1
    gradient_flow(net, data, loss="cross-entropy", until=Until(margin=goal))
    assert smallest_margin(net, data) == pytest.approx(goal, abs=1e-6)


@EACH
def test_a_goal_ends_on_the_flow_and_records_stop_there(kind):
    (net, data), (other, _) = problem(3.0), problem(3.0)
    record = Record(at=(0.5, 1.0, 90.0))
    run = gradient_flow(net, data, until=Until(100.0, loss=0.7), record=record, **KINDS[kind])
    reached = run.info["reached"]
    assert run.times.tolist() == [0.0, 0.5, 1.0, reached]
    gradient_flow(other, data, until=reached, **KINDS[kind])
    assert largest_difference(net, other) < (1e-5 if kind == "plain" else 5e-3)


@EACH
@pytest.mark.parametrize("goal", [{"loss": 1e-9}, {"margin": 1e3}])
def test_a_goal_that_time_does_not_allow_is_not_converged(kind, goal):
    net, data = problem(2.0)
    run = gradient_flow(net, data, until=Until(3.0, **goal), **KINDS[kind])
    assert not run.info["converged"]
    assert run.info["reached"] == float(run.times[-1]) == 3.0


def test_the_first_of_two_goals_ends_the_flow():
    net, data = problem(2.0)
    gradient_flow(net, data, until=Until(loss=0.5, margin=1e3), tolerance=1e-6)
    assert total_loss(net, data, Loss("exp")) == pytest.approx(0.5, rel=1e-6)


def test_a_time_alone_is_an_until():
    (net, data), (other, _) = problem(2.0), problem(2.0)
    for one, until in ((net, 2.0), (other, Until(2.0))):
        assert gradient_flow(one, data, until=until, tolerance=1e-6).info["converged"]
    assert largest_difference(net, other) == 0.0


BAD = {
    "nothing": ({}, "until must name a time, a loss or a margin"),
    "time 0": ({"time": 0.0}, r"until\.time must be a finite number > 0"),
    "time nan": ({"time": math.nan}, r"until\.time must be a finite number"),
    "time words": ({"time": "long"}, r"until\.time must be a finite number"),
    "loss 0": ({"loss": 0.0}, r"until\.loss must be a finite number > 0"),
    "loss inf": ({"loss": math.inf}, r"until\.loss must be a finite number"),
    "margin nan": ({"margin": math.nan}, r"until\.margin must be a finite number"),
    "margin bool": ({"margin": True}, r"until\.margin must be a finite number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_ends_are_told(case):
    settings, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        Until(**settings)


@pytest.mark.parametrize("until", [None, "3", math.inf, -1.0])
def test_an_end_is_a_time_or_an_until(until):
    net, data = problem(2.0)
    with pytest.raises(ValueError, match="until must be a finite number > 0"):
        gradient_flow(net, data, until=until)
