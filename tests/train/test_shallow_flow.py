"""The flow of any two-layer network in polar coordinates, against another library and weights."""

from __future__ import annotations

import math

import pytest
import torch

from extremal.data import Dataset, load
from extremal.measure import balancedness
from extremal.models import Gaussian, PReLUNet, Preparation
from extremal.train import Loss, Record, gradient_flow
from extremal.train.flow.chebyshev import ChebyshevStepper
from extremal.train.flow.runge_kutta import Counts
from extremal.train.flow.shallow_flow import ShallowFlow
from tests.train.flow_problem import largest_difference, library_flow, problem

CASES = {
    "classes, biases": (3.0, "cross-entropy", {"outputs": 3, "biases": True}, ()),
    "hidden biases frozen": (1.5, "logistic", {"biases": True}, ("hidden_bias",)),
    "neurons frozen": (3.0, "logistic", {"biases": True}, ("neurons",)),
    "classes, votes frozen": (2.0, "cross-entropy", {"outputs": 3}, ("votes",)),
}


@pytest.mark.parametrize("case", CASES)
def test_against_another_library(case):
    p, name, settings, frozen = CASES[case]
    net, data = problem(p, **settings)
    net.freeze(*frozen)
    wanted = library_flow(net, data, Loss(name), (0.9, 1.0))
    flow = ShallowFlow(net, data, Loss(name), 1e-8)
    while flow.time < 1.0:
        begun = flow.time
        flow.step(1.0)
        if begun < 0.9 <= flow.time:  # between steps, by their dense output
            flow.write(net, 0.9)
            assert largest_difference(net, wanted[0]) < 1e-6
            torch.testing.assert_close(flow.outputs(0.9), net(data.x).detach(), rtol=0, atol=1e-12)
    flow.write(net, 1.0)
    assert largest_difference(net, wanted[1]) < 1e-6
    assert largest_difference(net, problem(p, **settings)[0]) > 0.1  # it is a long way


@pytest.mark.parametrize("frozen", [(), ("hidden_bias",), ("votes",)])
def test_relu_networks_with_biases_approach_the_flow_of_their_weights(frozen):
    errors = []
    for tolerance in (1e-3, 1e-7):
        (net, data), (exact, _) = (problem(1.0, biases=True) for _ in range(2))
        for one in (net, exact):
            one.freeze(*frozen)
        gradient_flow(exact, data, until=2.0, tolerance=1e-9)
        flow = ShallowFlow(net, data, Loss("exp"), tolerance)
        while flow.time < 2.0:
            flow.step(2.0)
        flow.write(net, 2.0)
        errors.append(largest_difference(net, exact))
    assert errors[0] < 2e-2
    assert errors[1] < 3e-4  # a kink that is crossed within a step costs more than smooth steps


def digits(count: int) -> Dataset:
    train, _ = load("digits")
    return Dataset(train.x[:count], train.y[:count])


def test_ten_classes_from_a_tiny_start():
    """Fitted in few steps, with what the flow conserves conserved, and f that of the weights."""
    data, found = digits(60), {}
    for tolerance in (None, 1e-5):
        net = PReLUNet(
            64, 10, 2.0, 10, init=Gaussian(1e-6), generator=torch.Generator().manual_seed(0)
        )
        record = Record(at=(10.0, 20.0), watch={"balance": balancedness})
        run = gradient_flow(
            net, data, loss="cross-entropy", until=20.0, tolerance=tolerance, record=record
        )
        found[run.info["engine"]] = (run, net(data.x).detach())
    run, out = found["shallow"]
    assert run.info["tolerance"] == 3e-4
    assert run.values["loss"][-1] < 0.3 * run.values["loss"][0]
    assert run.info["phases"].keys() == {"alignment ends", "fitting starts"}
    exact = found["weights"][1]
    assert float((out - exact).abs().max() / exact.abs().max()) < 1e-3
    balance = run.values["balance"]  # (m, width), of size 1e-12 while weights grow to 1
    assert float((balance[-1] - balance[0]).abs().max()) < 1e-6


def test_a_loss_of_ones_own_behind_a_preparation():
    """The square loss with labels 0..9 as numbers, on centred and scaled inputs."""

    def square(out, y):
        return (out - y.to(out.dtype)).square()

    data, outputs = digits(100), []
    prepared = Preparation(0.3, data.x.mean(0))
    for tolerance in (1e-3, 1e-6):
        generator = torch.Generator().manual_seed(1)
        net = PReLUNet(
            64, 10, 2.0, bias=True, preparation=prepared, init=Gaussian(0.1), generator=generator
        )
        signed = Dataset(data.x, 2 * (data.y % 2) - 1)
        gradient_flow(
            net, signed, loss=Loss("square", function=square), until=60.0, tolerance=tolerance
        )
        outputs.append(net(data.x).detach())
    assert float(outputs[1].abs().max()) > 0.5
    assert float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max()) < 1e-2


def test_a_frozen_vote_far_larger_than_its_neuron():
    """||V||/||w|| is 1e8: neurons turn at once, then grow like time."""
    generator = torch.Generator().manual_seed(0)
    net = PReLUNet(3, 4, 1.0, init=Gaussian(1e-9), dtype=torch.float64, generator=generator)
    with torch.no_grad():
        net.votes.copy_(torch.tensor([[0.1, -0.1, 0.1, -0.1]]))
    net.freeze("votes")
    _, data = problem(1.0)
    run = gradient_flow(net, data, until=1.0)
    assert run.info["engine"] == "shallow"
    assert run.info["steps"] < 300
    assert float(net.neurons.detach().norm(dim=1).max()) > 1e-2


def decay(tolerance: float, until: float, largest: float) -> tuple[float, Counts]:
    """The error of y' = -rates y from ones, with rates up to `largest`, and the work."""
    rates = torch.logspace(0.0, math.log10(largest), 20, dtype=torch.float64)
    counts = Counts()
    stepper = ChebyshevStepper(
        lambda state: (-rates * state[0],), (torch.ones_like(rates),), 0.0, tolerance, counts
    )
    while stepper.time < until:
        stepper.advance(until)
    assert stepper.rate == pytest.approx(largest, rel=0.3)
    return float((stepper.state[0] - torch.exp(-rates * until)).abs().max()), counts


def test_fast_decay_does_not_hold_steps_back():
    error, counts = decay(1e-4, 3.0, 1e4)
    assert error < 1e-3
    # The fast parts are to be followed until they are gone: half of the steps are before time .01.
    assert counts.right_hand_sides < 0.15 * 3.0 * 1e4 / 2.0  # of Euler's stable steps


def test_chebyshev_steps_are_of_second_order():
    errors, work = zip(*(decay(tolerance, 1.0, 5.0) for tolerance in (1e-5, 1e-8)), strict=True)
    steps = work[1].steps / work[0].steps
    assert steps == pytest.approx(10.0, rel=0.3)  # an error of third order a step
    assert math.log(errors[0] / errors[1]) / math.log(steps) == pytest.approx(2.0, abs=0.4)


def test_a_flow_with_biases_goes_on_from_its_file(tmp_path):
    (net, data), (whole, _) = (problem(3.0, outputs=3, biases=True) for _ in range(2))
    left = [3]

    def interrupted(now):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return float(now.votes.norm())

    settings = {"loss": "cross-entropy", "until": 3.0}
    record = Record(at=(1.0, 2.0), watch={"size": interrupted})
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, checkpoint=tmp_path / "state", record=record, **settings)
    net, _ = problem(3.0, outputs=3, biases=True)
    gradient_flow(net, data, checkpoint=tmp_path / "state", record=record, **settings)
    gradient_flow(whole, data, **settings)
    assert largest_difference(net, whole) < 1e-3
    assert largest_difference(whole, problem(3.0, outputs=3, biases=True)[0]) > 0.1


def test_frozen_votes_beside_neurons_that_float32_cannot_hold():
    """||V||/||w|| is 1e44, on data in float32."""
    generator = torch.Generator().manual_seed(0)
    net = PReLUNet(3, 4, 1.0, init=Gaussian(1e-45), dtype=torch.float64, generator=generator)
    with torch.no_grad():
        net.votes.copy_(torch.tensor([[0.3, -0.3, 0.3, -0.3]]))
    net.freeze("votes")
    _, data = problem(1.0)
    gradient_flow(net, Dataset(data.x.float(), data.y), until=0.1, tolerance=1e-2)
    assert bool(torch.isfinite(net.neurons).all())
    assert float(net.neurons.detach().norm(dim=1).max()) > 1e-3


def test_a_velocity_that_is_never_finite_ends_with_an_error():
    rate = torch.full((2,), math.nan, dtype=torch.float64)
    torch.set_flush_denormal(True)
    stepper = ChebyshevStepper(
        lambda state: (rate * state[0],), (torch.ones_like(rate),), 0.0, 1e-3, Counts()
    )
    with pytest.raises(ArithmeticError, match="the step size vanished at time 0"):
        stepper.advance(1.0)


def test_a_loss_that_starts_at_zero_has_no_phases():
    """f alone as the loss, from votes of zero: it falls below zero for ever."""
    net, data = problem(2.0, biases=True)
    with torch.no_grad():
        net.votes.zero_()
        net.bias.zero_()
    run = gradient_flow(net, data, loss=Loss("own", function=lambda out, _: -out), until=0.1)
    assert run.info["phases"] == {}
    assert run.values["loss"][-1] < 0.0
