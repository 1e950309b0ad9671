"""Gradient flow against closed forms, another library's integrator, and tiny steps of GD."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expi

from extremal.data import Dataset
from extremal.models import Explicit, PReLUNet
from extremal.train import DivergenceError, Loss, Record, gd, gradient_flow
from tests.train.flow_problem import largest_difference, library_flow, one_neuron, problem


def contribution(loss: str, start: float, time: float) -> float:
    """c(time) of a balanced neuron along the only point x, y = 1, from c(0) = start.

    f(x) = c = v ||w||, so c' = (v^2 + ||w||^2) (-l'(c)) = -2 c l'(c). With l = exp(-c),
    c' = 2 c exp(-c) and Ei(c) grows by 2 t. With the logistic loss, c' = 2 c/(1 + exp(c)) and
    log(c) + Ei(c) does.
    """

    def clock(c: float) -> float:
        return expi(c) + (math.log(c) if loss == "logistic" else 0.0)

    return brentq(lambda c: clock(c) - clock(start) - 2.0 * time, start, 60.0, xtol=1e-14)


@pytest.mark.parametrize("loss", ["exp", "logistic"])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_one_neuron_along_its_own_direction(p, loss):
    net, data = one_neuron(p, 0.3)
    gradient_flow(net, data, loss=loss, until=5.0, tolerance=1e-9)
    assert net(data.x).item() == pytest.approx(contribution(loss, 0.09, 5.0), rel=1e-7)


@pytest.mark.parametrize("size", [1e-7, 1e-60])
def test_small_initialisations_are_followed(size):
    rest = -math.log(size)  # while f is small, the weights grow like exp(t)
    net, data = one_neuron(3.0, size)
    run = gradient_flow(net, data, until=rest + 10.0, tolerance=1e-6)
    wanted = contribution("exp", size * size, rest + 10.0)
    assert wanted > 1.0
    assert net(data.x).item() == pytest.approx(wanted, rel=1e-4)
    assert run.info["steps"] < 1000


CASES = {
    "p=1.5": (1.5, "exp", {}, ()),
    "p=2": (2.0, "exp", {}, ()),
    "p=3": (3.0, "exp", {}, ()),
    "p=2, logistic": (2.0, "logistic", {}, ()),
    "p=3, logistic, biases": (3.0, "logistic", {"biases": True}, ()),
    "p=3, classes, biases": (3.0, "cross-entropy", {"outputs": 3, "biases": True}, ()),
    "p=2, classes, votes frozen": (2.0, "cross-entropy", {"outputs": 3}, ("votes",)),
    "p=3, votes frozen": (3.0, "exp", {}, ("votes",)),
    "p=2, neurons frozen": (2.0, "exp", {}, ("neurons",)),
}
TIMES = (0.3, 1.1, 2.0)


@pytest.mark.parametrize("case", CASES)
def test_flow_against_another_library(case):
    p, name, settings, frozen = CASES[case]
    net, data = problem(p, **settings)
    net.freeze(*frozen)
    wanted = library_flow(net, data, Loss(name), TIMES)
    assert largest_difference(net, wanted[-1]) > 0.1  # it is a long way
    record = Record(at=TIMES, snapshots=True)
    run = gradient_flow(net, data, loss=name, until=2.0, tolerance=1e-9, record=record)
    assert largest_difference(net, wanted[-1]) < 1e-6
    for index, twin in enumerate(wanted, start=1):  # between steps, by their dense output
        assert largest_difference(run.at(index, net), twin) < 1e-6
    assert run.info["converged"]
    assert run.info["method"] == "general"


def test_relu_flow_against_tiny_steps():
    errors = []
    flow, data = problem(1.0)
    gradient_flow(flow, data, until=2.0, tolerance=1e-8)
    for steps in (400, 1600):
        net, _ = problem(1.0)
        gd(net, data, lr=2.0 / steps, steps=steps)
        errors.append(largest_difference(net, flow))
    assert errors[1] < 1e-3
    assert errors[1] < 0.5 * errors[0]


def test_relu_flow_slides_along_kinks():
    # Points of the other class hold neurons at <x, w> = 0, from both sides.
    (net, data), (flow, _) = problem(1.0, seed=4), problem(1.0, seed=4)
    gd(net, data, lr=1e-3, steps=1000)
    run = gradient_flow(flow, data, until=1.0, tolerance=1e-5, max_steps=2000)
    assert run.info["converged"]
    assert largest_difference(net, flow) < 2e-3


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_error_falls_with_the_tolerance(p):
    net, data = problem(p)
    wanted = library_flow(net, data, Loss("exp"), (2.0,))[0]
    errors = {}
    for tolerance in (9e-5, 1e-8):
        net, _ = problem(p)
        gradient_flow(net, data, until=2.0, tolerance=tolerance)
        errors[tolerance] = largest_difference(net, wanted)
    assert 1e-6 < errors[9e-5] < 1e-2
    assert errors[1e-8] < 0.02 * errors[9e-5]


def overlong() -> tuple[PReLUNet, Dataset]:
    """A huge dead neuron makes the first trial so long that the loss overflows along it."""
    neurons = torch.tensor([[-1e9, 0.0, 0.0], [0.5, 0.2, 0.1], [-0.5, 0.2, 0.3]])
    x = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.2], [0.8, 0.1, -0.1]], dtype=torch.float64)
    init = Explicit(neurons, torch.tensor([[1.0, 0.5, -0.4]]))
    net = PReLUNet(3, 3, 2.0, init=init, dtype=torch.float64, generator=torch.Generator())
    return net, Dataset(x, torch.tensor([1, -1, 1]))


def test_a_trial_that_overflows_is_rejected():
    net, data = overlong()
    run = gradient_flow(net, data, until=100.0, tolerance=1e-6)
    assert run.info["rejected"] > 0
    assert torch.isfinite(net.neurons).all()
    assert run.values["loss"][1] < run.values["loss"][0]


def test_a_rejected_trial_leaves_no_trace():
    (net, data), (short, _) = overlong(), overlong()
    with pytest.raises(DivergenceError, match="1 steps were not enough") as caught:
        gradient_flow(net, data, until=100.0, tolerance=1e-6, max_steps=1)
    reached = caught.value.trajectory.info["reached"]
    assert 0.0 < reached < 100.0
    run = gradient_flow(short, data, until=reached, tolerance=1e-9)
    assert run.info["rejected"] > 0
    with torch.no_grad():  # of the dead neuron, 1e-5 is less than a rounding
        assert float((net.neurons - short.neurons)[1:].abs().max()) < 1e-5
        assert float((net.votes - short.votes).abs().max()) < 1e-5
