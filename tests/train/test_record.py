"""What training records, its files, and how divergence is told."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import save_file

from extremal.models import Explicit, PReLUNet
from extremal.train import (
    DivergenceError,
    Loss,
    Record,
    Trajectory,
    gd,
    gradient_flow,
    sgd,
    total_loss,
)
from tests.train.twin import problem


def recorded() -> tuple[Trajectory, PReLUNet, object]:
    net, data = problem(2.0)
    watch = {"first": lambda net: net.neurons[0], "size": lambda net: float(net.votes.norm())}
    record = Record(at=(0.5, 1.0), watch=watch, snapshots=True)
    return gradient_flow(net, data, until=2.0, record=record), net, data


def test_snapshots_reproduce_what_was_recorded():
    run, net, data = recorded()
    assert len(run) == 4
    assert run.values["first"].shape == (4, 3)
    for index in range(4):
        run.at(index, net)
        assert total_loss(net, data, Loss("exp")) == float(run.values["loss"][index])
        assert torch.equal(net.neurons[0].detach(), run.values["first"][index])
        assert net.votes.norm().item() == float(run.values["size"][index])
        right = (data.y * net(data.x) > 0).double().mean()
        assert float(run.values["accuracy"][index]) == float(right)


def test_snapshots_are_asked_for():
    net, data = problem(2.0)
    run = gradient_flow(net, data, until=0.1)
    with pytest.raises(ValueError, match="trajectory must have snapshots"):
        run.at(0, net)


def test_save_and_load(tmp_path):
    run, _, _ = recorded()
    run.save(tmp_path / "run.safetensors")
    back = Trajectory.load(tmp_path / "run.safetensors")
    assert torch.equal(back.times, run.times)
    assert back.info == run.info
    for kind in ("values", "snapshots"):
        old, new = getattr(run, kind), getattr(back, kind)
        assert sorted(old) == sorted(new)
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_a_missing_broken_or_foreign_file_is_told(tmp_path):
    run, net, _ = recorded()
    run.save(tmp_path / "run")
    whole = (tmp_path / "run").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text").write_text("no tensors here")
    net.save(tmp_path / "network")
    kind = {"format": "extremal-trajectory-1"}
    save_file({"x": torch.zeros(1)}, tmp_path / "empty", kind)
    for name in ("missing", "cut", "text", "network", "empty"):
        with pytest.raises(ValueError, match="path must"):
            Trajectory.load(tmp_path / name)


def test_records_are_checked():
    for times in ((-1.0,), (math.nan,), (math.inf,), ("1",)):
        with pytest.raises(ValueError, match=r"record\.at must be a finite number >= 0"):
            Record(at=times)
    with pytest.raises(ValueError, match=r"record\.watch must use names other than"):
        Record(watch={"loss": lambda net: 0.0})
    for first, last, count in ((0.0, 1.0, 5), (2.0, 1.0, 5), (1.0, 2.0, 1)):
        with pytest.raises(ValueError, match=r"(first|last|count) must"):
            Record.log_spaced(first, last, count)
    times = Record.log_spaced(0.01, 100.0, 5).at
    assert times == pytest.approx((0.01, 0.1, 1.0, 10.0, 100.0))


def fast_gd(net, data, steps, record):
    gd(net, data, lr=1e3, steps=steps, record=record)


def fast_sgd(net, data, steps, record):
    generator = torch.Generator().manual_seed(0)
    sgd(net, data, lr=1e3, steps=steps, batch=5, record=record, generator=generator)


@pytest.mark.parametrize("steps", [60, 1000])
@pytest.mark.parametrize("train", [fast_gd, fast_sgd])
def test_divergence_carries_advice_and_what_was_recorded(train, steps):
    net, data = problem(2.0)
    with pytest.raises(DivergenceError, match="use a smaller lr than 1000") as caught:
        train(net, data, steps, Record(at=(0.0, 1e6)))
    run = caught.value.trajectory
    assert not run.info["converged"]
    assert run.info["steps"] == min(steps, 100)  # where the loss is looked at
    assert run.times[0] == 0.0
    assert math.isfinite(float(run.values["loss"][0]))


@pytest.mark.parametrize("train", [gd, gradient_flow])
def test_an_infinite_loss_at_the_start_is_told(train):
    _, data = problem(2.0)
    init = Explicit(-100.0 * data.y[:, None] * data.x, 100.0 * torch.ones(1, len(data)))
    chosen = {"init": init, "dtype": torch.float64, "generator": torch.Generator()}
    net = PReLUNet(3, len(data), 2.0, **chosen)
    before = net.neurons.detach().clone()
    settings = {"lr": 0.1, "steps": 1} if train is gd else {"until": 1.0}
    with pytest.raises(DivergenceError, match="not finite at the start"):
        train(net, data, **settings)
    assert torch.equal(net.neurons, before)
