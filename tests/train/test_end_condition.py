"""Where a flow ends: at a time, a loss or a margin."""

from __future__ import annotations

import math
import re

import pytest
import torch

from extremal.data import Dataset
from extremal.models import Explicit, PReLUNet, output_margins
from extremal.train import DivergenceError, Loss, Record, Until, gradient_flow, total_loss
from extremal.train.flow.driver import follow
from extremal.train.flow.runge_kutta import Counts
from extremal.train.recording import Recorder
from tests.train.flow_problem import largest_difference, one_neuron, problem

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
    assert run.info["ended_by"] == "loss"
    accuracy = 1e-6 if kind == "plain" else 1e-3
    assert total_loss(net, data, Loss("exp")) == pytest.approx(0.4, rel=accuracy)
    assert float(run.values["loss"][-1]) == pytest.approx(0.4, rel=1e-6)
    assert float(run.times[-1]) == run.info["reached"]


@EACH
def test_a_margin_is_reached(kind):
    net, data = problem(2.0, seed=2)
    run = gradient_flow(net, data, until=Until(time=50.0, margin=-0.2), **KINDS[kind])
    assert run.info["converged"]
    assert run.info["ended_by"] == "margin"
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
def test_a_goal_that_time_came_before_is_missed(kind, goal):
    net, data = problem(2.0)
    run = gradient_flow(net, data, until=Until(3.0, **goal), **KINDS[kind])
    assert run.info["converged"] is False
    assert run.info["ended_by"] == "goal missed"
    assert run.info["reached"] == float(run.times[-1]) == 3.0


@EACH
@pytest.mark.parametrize("goal", [{"loss": 5.0}, {"margin": -9.0}])
def test_a_goal_that_holds_at_the_start_ends_the_flow_there(kind, goal):
    (net, data), (start, _) = problem(2.0), problem(2.0)
    record = Record(at=(0.5,), snapshots=True)
    run = gradient_flow(net, data, until=Until(3.0, **goal), record=record, **KINDS[kind])
    assert run.times.tolist() == [0.0]
    assert run.info["reached"] == run.info["steps"] == 0
    assert run.info["converged"]
    assert run.info["ended_by"] == next(iter(goal))
    assert largest_difference(net, start) < 1e-14


@pytest.mark.parametrize("tolerance", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_a_goal_is_located_while_the_neuron_aligns(tolerance, p):
    """f = c with c' = 2 c exp(-c): from 1e-8 to 1e-7 in log(10) / 2, but for 1e-7 of it."""
    record = Record(at=(0.5, 1.1, 1.2))
    for goal in ({"margin": 1e-7}, {"loss": math.exp(-1e-7)}):
        net, data = one_neuron(p, 1e-4)
        settings = {"method": "general", "tolerance": tolerance, "record": record}
        run = gradient_flow(net, data, until=Until(**goal), **settings)
        assert run.info["ended_by"] == next(iter(goal))
        assert "alignment ends" not in run.info["phases"]
        assert run.info["reached"] == pytest.approx(0.5 * math.log(10.0), rel=2e-5)
        assert run.times.tolist() == [0.0, 0.5, 1.1, run.info["reached"]]
        assert smallest_margin(net, data) == pytest.approx(1e-7, rel=1e-5)


def dead_end() -> tuple[PReLUNet, Dataset]:
    """A network that is silent on all of its data, and so stays as it is."""
    init = Explicit(-torch.eye(2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    net = PReLUNet(2, 2, 2.0, init=init, dtype=torch.float64, generator=torch.Generator())
    return net, Dataset(torch.eye(2, dtype=torch.float64), torch.tensor([1, -1]))


@EACH
def test_a_flow_where_nothing_moves_ends(kind):
    (net, data), (start, _) = dead_end(), dead_end()
    run = gradient_flow(net, data, until=Until(loss=0.5), **KINDS[kind])
    assert not run.info["converged"]
    assert run.info["ended_by"] == "stationary"
    assert largest_difference(net, start) < 1e-14
    timed = gradient_flow(net, data, until=Until(7.0, loss=0.5), **KINDS[kind])
    assert (timed.info["ended_by"], timed.info["reached"]) == ("goal missed", 7.0)


@EACH
def test_a_flow_whose_loss_has_come_to_rest_ends(kind):
    """Two of three labels at one point are +1: (2 exp(-f) + exp(f)) / 3 is least at log(2) / 2."""
    net, data = one_neuron(2.0, 0.5)
    three = Dataset(data.x.repeat(3, 1), torch.tensor([1, 1, -1]))
    run = gradient_flow(net, three, until=Until(loss=0.9), **KINDS[kind])
    assert not run.info["converged"]
    assert run.info["ended_by"] == "stationary"
    assert float(run.values["loss"][-1]) == pytest.approx(2.0 * 2.0**0.5 / 3.0, rel=1e-6)
    assert smallest_margin(net, data) == pytest.approx(0.5 * math.log(2.0), rel=1e-3)


class Scripted:
    """A flow of one output, `function` of the time, whose step number k ends at `growth`^k."""

    dense, is_at_rest, phase = True, False, "fitting"

    def __init__(self, growth: float, function, neurons=lambda time: 1.0) -> None:
        self.growth, self.function, self.neurons = growth, function, neurons
        self.time, self.counts, self.phases = 0.0, Counts(), {}

    def step(self, limit: float) -> None:
        self.counts.steps += 1
        self.time = min(limit, self.growth**self.counts.steps)

    def outputs(self, time: float) -> torch.Tensor:
        return torch.tensor([self.function(time)], dtype=torch.float64)

    def write(self, net, time: float) -> None:
        net.neurons.data.fill_(self.neurons(time))

    def report(self) -> dict:
        return {}


def rested(growth: float, rests: float, neurons) -> int:
    """The steps of a flow with f = log(1 + t) up to `rests`, once it has ended there."""
    net, data = one_neuron(2.0, 1.0)
    recorder = Recorder(None, net, data, Loss("exp"), math.inf)
    flow = Scripted(growth, lambda t: math.log1p(min(t, rests)), neurons)
    run = follow(flow, recorder, Until(loss=1e-40), 10_000, False, None, "general")
    assert (run.info["ended_by"], run.info["converged"]) == ("stationary", False)
    return run.info["steps"]


@pytest.mark.parametrize(
    ("growth", "rests", "steps"),
    [(1.01, 2.0, 100 + 232), (1.5, 1e30, 171 + 200), (1.01, 1e4, 926 + 232)],
)
def test_rest_is_a_tenfold_time_and_200_steps(growth, rests, steps):
    """1.01^232 > 10; the first 100 steps do not count; shrinking neurons have come to nothing."""
    for neurons in (lambda time: 1.0, lambda time: math.exp(-time / rests)):
        assert rested(growth, rests, neurons) == pytest.approx(steps, abs=3)


@pytest.mark.parametrize(
    ("growth", "rests", "steps"),
    [(1.01, 2.0, 100 + 695), (1.5, 1e30, 171 + 200), (1.01, 1e4, 926 + 695)],
)
def test_where_a_neuron_grows_rest_is_a_thousandfold_time(growth, rests, steps):
    """1.01^695 > 1000. By 1 % in a fivefold time the neuron has grown as 5^0.0062."""
    assert rested(growth, rests, lambda time: time**0.0063) == pytest.approx(steps, abs=3)
    if growth < 1.1:
        assert rested(growth, rests, lambda time: time**0.0061) < steps - 400


def test_a_neuron_that_sleeps_at_a_saddle_still_wakes(monkeypatch):
    """At e1 10 of 15 labels are +1: f is soon log(2) / 2 there, and the loss rests at 0.946.

    The other neuron's output c at e2, with label +1, obeys c' = c exp(-c) / 8 from 1e-120: it is
    seen at 8 log(1e120). Were its growth not looked at, rest would be found before.
    """
    monkeypatch.setattr("extremal.train.flow.end_condition._LEAST_STEPS_BEFORE_REST", 10)
    size = torch.tensor([[1.0], [1e-60]], dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64)[[0] * 15 + [1]]
    data = Dataset(x, torch.tensor([1, 1, -1] * 5 + [1]))

    def ended() -> tuple[str, float]:
        init = Explicit(size * torch.eye(2, dtype=torch.float64), size.T.clone())
        net = PReLUNet(2, 2, 2.0, init=init, dtype=torch.float64, generator=torch.Generator())
        info = gradient_flow(net, data, until=Until(loss=0.92), tolerance=1e-6).info
        return info["ended_by"], info["reached"]

    assert ended() == ("loss", pytest.approx(8.0 * math.log(1e120), rel=0.01))
    monkeypatch.setattr("extremal.train.flow.end_condition._GROWTH_SHARE", math.inf)
    assert ended()[0] == "stationary"


def test_a_small_start_is_not_taken_for_rest():
    """f grows like exp(2 t) from 1e-160: for most of the time the loss is 1 to the last digit."""
    net, data = one_neuron(2.0, 1e-80)
    run = gradient_flow(net, data, until=Until(loss=0.9), tolerance=1e-6)
    assert run.info["ended_by"] == "loss"
    assert run.info["reached"] == pytest.approx(0.5 * math.log(1e160 * -math.log(0.9)), abs=0.1)
    assert run.info["steps"] > 200


@EACH
def test_too_few_steps_are_told(kind):
    net, data = problem(2.0)
    asked = Until(300.0, loss=1e-9)
    message = (
        r"^2 steps were not enough to come to loss 1e-09 or time 300: the network is at flow time "
        r"(\S+) and has loss (\S+); raise max_steps or tolerance, or ask for less$"
    )
    with pytest.raises(DivergenceError, match=message) as caught:
        gradient_flow(net, data, until=asked, max_steps=2, **KINDS[kind])
    info = caught.value.trajectory.info
    assert (info["ended_by"], info["converged"]) == ("max_steps", False)
    assert info["steps"] + info["rejected"] >= 2
    time, loss = re.match(message, str(caught.value)).groups()
    assert float(time) == pytest.approx(info["reached"], rel=1e-5)
    accuracy = 1e-5 if kind == "plain" else 1e-3
    assert float(loss) == pytest.approx(total_loss(net, data, Loss("exp")), rel=accuracy)


@EACH
def test_a_flow_that_ran_out_of_steps_goes_on_from_its_checkpoint(kind, tmp_path):
    (net, data), (whole, _) = problem(2.0), problem(2.0)
    settings = {"until": 30.0, "checkpoint": tmp_path / "flow.safetensors", **KINDS[kind]}
    for steps in (5, 6):
        net, _ = problem(2.0)
        with pytest.raises(DivergenceError, match=f"{steps} steps were not enough"):
            gradient_flow(net, data, max_steps=steps, **settings)
    net, _ = problem(2.0)
    run = gradient_flow(net, data, **settings)
    assert not (tmp_path / "flow.safetensors").exists()
    other = gradient_flow(whole, data, until=30.0, **KINDS[kind])
    assert run.info["steps"] > 0.9 * other.info["steps"] > 6
    assert largest_difference(net, whole) < (1e-4 if kind == "plain" else 1e-2)


def test_the_first_of_two_goals_ends_the_flow():
    net, data = problem(2.0)
    gradient_flow(net, data, until=Until(loss=0.5, margin=1e3), tolerance=1e-6)
    assert total_loss(net, data, Loss("exp")) == pytest.approx(0.5, rel=1e-6)


def test_a_time_alone_is_an_until():
    (net, data), (other, _) = problem(2.0), problem(2.0)
    for one, until in ((net, 2.0), (other, Until(2.0))):
        info = gradient_flow(one, data, until=until, tolerance=1e-6).info
        assert (info["converged"], info["ended_by"]) == (True, "time")
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
