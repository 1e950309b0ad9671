"""What gradient flow conserves, and what must not matter to it."""

from __future__ import annotations

import copy

import pytest
import torch

from extremal.measure import balancedness
from extremal.models import Explicit, PReLUNet
from extremal.train import DivergenceError, Loss, Record, gradient_flow
from tests.train.flow_problem import largest_difference, library_flow, problem


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(("p", "tolerance"), [(1, 1e-5), (1.5, 1e-8), (3, 1e-8)])
def test_loss_falls_and_balancedness_stays(p, tolerance, outputs):
    net, data = problem(p, outputs=outputs)
    name = "exp" if outputs == 1 else "cross-entropy"
    record = Record.log_spaced(1e-3, 4.0, 20, watch={"balance": balancedness})
    run = gradient_flow(net, data, loss=name, until=5.0, tolerance=tolerance, record=record)
    assert len(run) == 22
    assert run.values["loss"].diff().max() < 0
    balance = run.values["balance"]  # (m, width): votes squared minus neurons squared
    assert float((balance - balance[0]).abs().max()) < 1e-14  # rounding, at any tolerance
    assert float(balance[0].abs().min()) > 1e-2


def test_balance_of_neurons_with_biases_stays_to_rounding():
    net, data = problem(2.0, biases=True)
    with torch.no_grad():
        net.hidden_bias += 0.1
        first = balancedness(net) - net.hidden_bias**2
        gradient_flow(net, data, until=5.0, tolerance=1e-5)
        assert float(net.hidden_bias.diff().abs().min()) > 1e-3
        now = balancedness(net) - net.hidden_bias**2
    assert float((now - first).abs().max()) < 1e-14


@pytest.mark.parametrize("frozen", ["neurons", "votes", "hidden_bias"])
def test_nothing_is_balanced_where_a_part_is_frozen(frozen):
    net, data = problem(2.0, biases=True)
    with torch.no_grad():
        net.hidden_bias += 0.1
    net.get_parameter(frozen).requires_grad_(False)
    other = library_flow(net, data, Loss("exp"), (3.0,))[0]
    gradient_flow(net, data, until=3.0, tolerance=1e-8)
    assert largest_difference(net, other) < 1e-6


def test_order_of_neurons_does_not_matter():
    net, data = problem(3.0)
    order = torch.tensor([3, 0, 4, 1, 2])
    init = Explicit(net.neurons[order], net.votes[:, order])
    other = PReLUNet(3, 5, 3.0, init=init, dtype=torch.float64, generator=torch.Generator())
    for one in (net, other):
        gradient_flow(one, data, until=5.0)
    torch.testing.assert_close(other.neurons, net.neurons[order], rtol=0.0, atol=1e-10)
    torch.testing.assert_close(other.votes, net.votes[:, order], rtol=0.0, atol=1e-10)


def test_a_summed_loss_only_makes_time_faster():
    (mean, data), (total, _) = problem(2.0), problem(2.0)
    gradient_flow(mean, data, until=5.5)
    gradient_flow(total, data, loss=Loss("exp", "sum"), until=0.5)
    assert largest_difference(mean, total) < 1e-5


def test_record_times_are_hit_and_do_not_disturb():
    times = (0.1, 1.0 / 3.0, 2.0, 2.0 + 1e-9, 4.9)
    (quiet, data), (watched, _) = problem(3.0), problem(3.0)
    short = gradient_flow(quiet, data, until=5.0, tolerance=1e-8)
    run = gradient_flow(watched, data, until=5.0, tolerance=1e-8, record=Record(at=times))
    assert short.times.tolist() == [0.0, 5.0]
    assert run.times.tolist() == [0.0, *times, 5.0]  # exactly
    assert largest_difference(quiet, watched) < 1e-6
    assert run.info["steps"] <= short.info["steps"] + 2 * len(times)  # no slow restarts


def test_a_recorded_point_is_the_end_of_a_shorter_run():
    (net, data), (short, _) = problem(2.0), problem(2.0)
    record = Record(at=(1.5,), snapshots=True)
    run = gradient_flow(net, data, until=6.0, tolerance=1e-9, record=record)
    gradient_flow(short, data, until=1.5, tolerance=1e-9)
    assert largest_difference(run.at(1, net), short) < 1e-7


def test_a_float32_network_is_integrated_in_float64():
    net, data = problem(3.0, dtype=torch.float32)
    wide = copy.deepcopy(net).double()
    gradient_flow(net, data, until=3.0, tolerance=1e-6)
    gradient_flow(wide, data.to(torch.float64), until=3.0, tolerance=1e-6)
    assert net.neurons.dtype == net.votes.dtype == torch.float32
    assert torch.equal(net.neurons, wide.neurons.float())
    assert torch.equal(net.votes, wide.votes.float())


@pytest.mark.parametrize("max_steps", [1, 4, 9])
def test_too_few_steps_leave_the_network_on_the_flow(max_steps):
    (net, data), (short, _) = problem(3.0), problem(3.0)
    with pytest.raises(DivergenceError, match="raise max_steps or tolerance") as caught:
        gradient_flow(net, data, until=1e4, max_steps=max_steps)
    reached = caught.value.trajectory.info["reached"]
    assert 0.0 < reached < 1e4
    gradient_flow(short, data, until=reached)
    assert largest_difference(net, short) < 2e-4 * reached
