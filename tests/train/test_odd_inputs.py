"""Data and networks at the edge: each is followed rightly or refused with a clear rule."""

import math
from dataclasses import replace

import pytest
import torch

from extremal import data, models, train
from extremal.train.flow.alignment_stage import _attempted_step
from extremal.train.flow.end_condition import LossAtRest
from extremal.train.flow.runge_kutta import Counts, OutOfStepsError, RungeKuttaStepper
from extremal.train.flow.staged_flow import StagedFlow
from extremal.train.losses import Loss


def some(count=30, dim=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return data.Dataset(x, torch.where(x[:, 0] > 0, 1, -1))


def net(dim=3, width=12, p=2.0, scale=1e-3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    init = models.Gaussian(scale)
    return models.PReLUNet(dim, width, p, init=init, dtype=dtype, generator=generator)


@pytest.mark.parametrize("share", [1.0, 1e-6, 0.0])
def test_small_votes_turn_as_they_grow(share):
    results = []
    for tolerance in (1e-3, 1e-7):
        found = net()
        with torch.no_grad():
            found.votes.mul_(share)
        train.gradient_flow(found, some(), until=20.0, tolerance=tolerance)
        results.append(found(some().x).detach())
    gap = (results[0] - results[1]).abs().max() / results[1].abs().max()
    assert float(gap) < 1e-2


def test_the_order_of_samples_does_not_matter():
    generator = torch.Generator().manual_seed(2)
    group = torch.arange(6000) % 8  # round robin: a fixed stride would see one group alone
    sizes = torch.linspace(1.0, 1.6, 8, dtype=torch.float64)
    noise = 0.02 * torch.randn(6000, 12, generator=generator, dtype=torch.float64)
    x = (torch.eye(12, dtype=torch.float64)[:8] * sizes[:, None])[group] + noise
    y = torch.where(group < 4, 1, -1)
    losses = []
    for order in (torch.arange(6000), torch.randperm(6000, generator=generator)):
        found = net(12, 100, 3.0, 1e-5)
        run = train.gradient_flow(found, data.Dataset(x[order], y[order]), until=150.0)
        assert 8 <= run.info["directions_left"] < 100
        losses.append(float(run.values["loss"][-1]))
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_data_of_zeros_move_nothing(tolerance):
    points = data.Dataset(torch.zeros(5, 3).double(), torch.tensor([1, -1, 1, 1, -1]))
    found, start = net(), net()
    train.gradient_flow(found, points, until=10.0, tolerance=tolerance)
    assert torch.allclose(found.neurons, start.neurons, rtol=1e-9)


def test_a_zero_neuron_stays_where_it_is():
    found = net()
    with torch.no_grad():
        found.neurons[3] = 0.0
    run = train.gradient_flow(found, some(), until=10.0)
    assert run.info["engine"] == "weights"
    assert not found.neurons[3].any()
    assert float(run.values["loss"][-1]) < 1.0
    with pytest.raises(ValueError, match="no zero neuron"):
        train.gradient_flow(found, some(), until=10.0, method="mixture")


def test_weights_that_vanish_in_float32_are_refused():
    tiny = net(scale=1e-60, dtype=torch.float32)
    points = some().to(torch.float32)
    with pytest.raises(ValueError, match="net must have a neuron that is not zero"):
        train.gradient_flow(tiny, points, until=1.0)


def test_a_step_that_overflows_is_shortened():
    """From 1e-60 the first steps are long, and relu^6 of where they lead to is infinite."""

    def velocity(state):
        return tuple(part**40 - part**41 for part in state)

    start = (torch.full((2, 3), 1e9).double(), torch.ones(2).double())
    _, error = _attempted_step(velocity, start, velocity(start), torch.ones(2).double())
    assert torch.isinf(error).all()
    x = torch.tensor([[30.0, 0.0], [18.0, 24.0], [-30.0, 3.0]]).double()
    points = data.Dataset(x, torch.tensor([1, 1, -1]))
    run = train.gradient_flow(net(2, 20, 6.0, 1e-60), points, until=1e-6)
    assert float(run.values["loss"][-1]) < 0.5


def test_a_group_of_mean_zero_is_no_direction():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    points = data.Dataset(x, torch.tensor([1, 1, -1, -1]), group=torch.tensor([0, 0, 1, 1]))
    run = train.gradient_flow(net(2), points, until=5.0, method="mixture")
    assert torch.isfinite(run.values["loss"]).all()


def test_late_winners_of_few_samples_are_found():
    generator = torch.Generator().manual_seed(3)
    group = torch.cat([torch.randint(0, 2, (1494,), generator=generator), torch.full((6,), 2)])
    noise = 0.008 * torch.randn(1500, 40, generator=generator, dtype=torch.float64)
    points = data.Dataset(
        torch.eye(40, dtype=torch.float64)[group] + noise, torch.tensor([1, -1, -1])[group]
    )
    losses = []
    for tolerance in (1e-3, 1e-4, 9e-5):
        found = net(40, 60, 3.0, 1e-5)
        run = train.gradient_flow(found, points, until=3000.0, tolerance=tolerance)
        losses.append(float(run.values["loss"][-1]))
    assert losses[0] == pytest.approx(losses[2], rel=0.05)
    assert losses[1] == pytest.approx(losses[2], rel=2e-3)


def test_weights_that_are_all_zero_have_a_flow():
    """Logistic regression from zero, where nothing says how long a first step is."""
    points = some(seed=3)
    line = torch.nn.Sequential(torch.nn.Linear(3, 1, dtype=torch.float64), torch.nn.Flatten(0))
    with torch.no_grad():
        for part in line.parameters():
            part.zero_()
    run = train.gradient_flow(line, points, loss="logistic", until=3.0)
    assert run.info["steps"] < 100
    assert float(run.values["loss"][-1]) < float(run.values["loss"][0])


def test_a_loss_below_zero_comes_to_rest():
    rest = LossAtRest(1.0, 100)
    found = [rest.holds(8.0**k, 100 + 100 * k, -1.0, lambda: torch.ones(1)) for k in range(1, 9)]
    assert not found[0]
    assert found[-1]


def test_a_state_that_is_not_a_number_is_no_small_error():
    """The first part of the state is fine, so that a plain max() would pass over the second."""

    def velocity(state):
        return torch.zeros(2).double(), state[1] * math.nan

    start = (torch.zeros(2).double(), torch.ones(2).double())
    stepper = RungeKuttaStepper(velocity, start, 1.0, 1e-3, Counts(), 0.1)
    with pytest.raises(ArithmeticError, match="vanished"):
        stepper.advance(2.0)


def test_alignment_is_bounded_by_max_steps():
    """Neurons that slide along kinks take thousands of steps before outputs count."""
    x = torch.randn(12, 300, generator=torch.Generator().manual_seed(0)).double() / 300**0.5
    points = data.Dataset(x, torch.tensor([1, -1] * 6))
    with pytest.raises(train.DivergenceError, match="300 steps were not enough"):
        train.gradient_flow(net(300, 50, 1.0, 1e-5), points, until=1000.0, max_steps=300)


def test_a_flow_past_its_horizon_runs_nothing_ahead():
    """Only a loss is asked for, and small samples make alignment take far longer than expected."""
    mix = data.OrthonormalMixture(dim=20, positive=2, negative=2, spread=0.1)
    points = mix.sample(3000, generator=torch.Generator().manual_seed(0)).to(torch.float64)
    small = replace(points, x=0.1 * points.x, source=None)
    run = train.gradient_flow(net(20, 200, 3.0, 1e-7), small, until=train.Until(loss=0.9))
    assert run.info["ended_by"] == "loss"


def test_what_was_within_alignment_is_known_when_steps_are_used_up():
    flow = StagedFlow(net(scale=1e-20), some(), Loss("exp"), 1e-3, 100.0, known=False, exact=False)
    flow.step(1.0)
    assert flow.time > 0.5
    assert flow.phase == "alignment"
    flow.counts.most_attempts = flow.counts.steps
    assert torch.isfinite(flow.outputs(0.5 * flow.time)).all()
    with pytest.raises(OutOfStepsError):
        flow.step(2.0)
