"""The study of training algorithms."""

import pytest
import torch

from extremal import train
from extremal.experiments import get
from extremal.experiments.papers.open_questions.algorithms import trial as algorithm

BASE = dict(get("open-questions/algorithm").trials("smoke")[1].params) | {"test_points": 10}


def seen(**changes):
    return algorithm(BASE | changes, torch.Generator().manual_seed(3)).numbers


@pytest.fixture(scope="module")
def flow():
    return seen(algorithm="flow")


def test_small_steps_end_where_the_flow_ends(flow):
    small = seen(algorithm="gd", lr=0.02)
    coarse = seen(algorithm="gd", lr=0.4)
    assert small["loss"] == pytest.approx(flow["loss"], rel=0.02)
    assert abs(small["loss"] - flow["loss"]) < abs(coarse["loss"] - flow["loss"])
    assert small["time"] == pytest.approx(flow["time"]) == pytest.approx(BASE["flow_time"])
    assert small["half_radius"] == pytest.approx(flow["half_radius"], rel=0.02)


def test_momentum_lags_behind_the_flow_by_less_the_smaller_its_steps(flow):
    large, small = (seen(algorithm="gd", lr=lr, momentum=0.9) for lr in (0.02, 0.002))
    assert large["time"] == pytest.approx(small["time"]) == pytest.approx(BASE["flow_time"])
    assert flow["loss"] < small["loss"] < 0.5 * (flow["loss"] + large["loss"])


def test_a_step_that_is_too_large_is_an_outcome():
    numbers = seen(algorithm="gd", lr=1e4, flow_time=1e6)
    assert numbers["diverged"] == 1.0
    assert "smaller lr" in numbers["reason"]
    claims = get("open-questions/algorithm").claims
    assert all(numbers.get(claim.value) is not None for claim in claims)  # a summary can be made


def test_the_flow_is_that_of_the_samples(monkeypatch):
    asked = []
    flow = train.gradient_flow
    keep = lambda *args, **given: asked.append(given["method"]) or flow(*args, **given)  # noqa: E731
    monkeypatch.setattr(train, "gradient_flow", keep)
    seen(algorithm="flow")
    assert asked == ["general"]


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match="algorithm must be one of"):
        seen(algorithm="newton")
