"""Gradient descent, SGD and Adam."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.train import Loss, Record, adam, gd, gradient_flow, sgd
from tests.train.flow_problem import Twin, largest_difference, one_neuron, problem


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_one_step_of_gd(p, reduction):
    net, data = problem(p)
    twin, loss = Twin(net), Loss("exp", reduction)
    loss.value(twin(data.x), data.y).backward()
    with torch.no_grad():
        for part in twin.parameters():
            part.sub_(0.07 * part.grad)
    gd(net, data, loss=loss, lr=0.07, steps=1)
    assert largest_difference(net, twin) < 1e-14


def test_gd_of_any_module_is_gd_of_the_network():
    net, data = problem(1.5, outputs=3, biases=True)
    twin = Twin(net)
    for model in (net, twin):
        run = gd(model, data, loss="cross-entropy", lr=0.2, steps=40, record=Record(at=(3.9,)))
    assert largest_difference(net, twin) < 1e-12
    assert run.times.tolist() == pytest.approx([0.0, 4.0, 8.0])  # the first step at or past 3.9
    assert run.info["converged"]
    assert run.values["loss"].diff().max() < 0


@pytest.mark.parametrize("p", [1.0, 2.5])
def test_gd_approaches_the_flow_at_first_order(p):
    flow, data = one_neuron(p, 0.3)
    gradient_flow(flow, data, until=4.0, tolerance=1e-10)
    errors = []
    for steps in (100, 200, 400):
        net, _ = one_neuron(p, 0.3)
        gd(net, data, lr=4.0 / steps, steps=steps)
        errors.append(largest_difference(net, flow))
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.1)
    assert errors[1] / errors[2] == pytest.approx(2.0, abs=0.1)


class Spy(nn.Module):
    """A linear model that keeps what it was trained on (and not what was only recorded)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.seen: list[list[float]] = []

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.seen.append(x[:, 0].tolist())
        return x @ self.weight


def test_each_epoch_of_sgd_visits_each_point_once():
    x = torch.arange(1.0, 12.0, dtype=torch.float64).unsqueeze(1)
    spy = Spy()
    data = Dataset(x, torch.ones(11))
    run = sgd(spy, data, loss="logistic", lr=0.01, batch=4, steps=9, generator=seeded())
    assert [len(batch) for batch in spy.seen] == 3 * [4, 4, 3]
    epochs = [[v for batch in spy.seen[k : k + 3] for v in batch] for k in (0, 3, 6)]
    assert all(sorted(epoch) == x[:, 0].tolist() for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3  # a new order every time
    assert run.times.tolist() == pytest.approx([0.0, 0.09])


@pytest.mark.parametrize("batch", [None, 4])
def test_momentum_is_the_heavy_ball_of_pytorch(batch):
    net, data = problem(3.0)
    twin = Twin(net)
    settings = {"loss": "logistic", "lr": 0.05, "momentum": 0.9, "steps": 12}
    if batch is None:
        run = gd(net, data, **settings)
        order = [torch.arange(len(data))] * 12
    else:
        run = sgd(net, data, batch=batch, generator=seeded(), **settings)
        again, order = seeded(), []
        while len(order) < 12:
            order += torch.randperm(len(data), generator=again).split(batch)
    ball = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for rows in order[:12]:
        ball.zero_grad()
        nn.functional.softplus(-data.y[rows] * twin(data.x[rows])).mean().backward()
        ball.step()
    assert largest_difference(net, twin) < 1e-12
    assert float(run.times[-1]) == pytest.approx(12 * 0.05 / (1.0 - 0.9))


@pytest.mark.parametrize("method", [sgd, adam])
def test_one_seed_gives_the_same_bytes(method):
    nets = []
    for seed in (5, 5, 6):
        net, data = problem(2.0, dtype=torch.float32)
        method(net, data, loss="exp", lr=0.01, batch=3, steps=50, generator=seeded(seed))
        nets.append(net)
    assert torch.equal(nets[0].neurons, nets[1].neurons)
    assert torch.equal(nets[0].votes, nets[1].votes)
    assert not torch.equal(nets[0].neurons, nets[2].neurons)


@pytest.mark.parametrize("method", ["gd", "sgd", "adam", "flow"])
@pytest.mark.parametrize("frozen", ["neurons", "votes", "hidden_bias", "bias"])
def test_frozen_parts_stay_to_the_bit_and_the_others_move(method, frozen):
    net, data = problem(2.0, outputs=3, biases=True, dtype=torch.float32)
    net.freeze(frozen)
    before = copy.deepcopy(net)
    many = {"loss": "cross-entropy", "lr": 0.1, "batch": 4, "steps": 5, "generator": seeded()}
    if method == "flow":
        gradient_flow(net, data, loss="cross-entropy", until=0.5)
    elif method == "gd":
        gd(net, data, loss="cross-entropy", lr=0.1, steps=5)
    else:
        {"sgd": sgd, "adam": adam}[method](net, data, **many)
    for name, part in net.named_parameters():
        same = torch.equal(part, before.get_parameter(name))
        assert same == (name == frozen), name
        assert part.dtype == torch.float32


def test_adam_is_torch_s_on_autograd():
    net, data = problem(2.0, outputs=3, biases=True)
    twin = Twin(net)
    optimiser = torch.optim.Adam(twin.parameters(), lr=0.02)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin(data.x), data.y).backward()
        optimiser.step()
    run = adam(net, data, lr=0.02, batch=len(data), steps=30, generator=seeded())
    assert largest_difference(net, twin) < 1e-9
    assert run.times.tolist() == [0.0, 30.0]
