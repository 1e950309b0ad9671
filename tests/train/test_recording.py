"""What training records, its files, and how divergence is told."""

from __future__ import annotations

import math
import re

import pytest
import torch
from safetensors.torch import save_file

from extremal._files import FileError
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
from tests.train.flow_problem import problem


def recorded() -> tuple[Trajectory, PReLUNet, object]:
    net, data = problem(2.0)
    watch = {"first": lambda net: net.neurons[0], "size": lambda net: float(net.votes.norm())}
    record = Record(at=(0.5, 1.0), watch=watch, snapshots=True)
    return gradient_flow(net, data, until=2.0, tolerance=1e-6, record=record), net, data


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
    for name in ("missing", "cut", "text", "network"):
        with pytest.raises(ValueError, match=r"^path must ") as caught:
            Trajectory.load(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(ValueError, match=r"^path must be a string or a Path, got int$"):
        Trajectory.load(3)


TIMES = torch.arange(3.0)
HEADER = {"format": "extremal-trajectory-1", "info": "{}"}
WRONG = {
    "foreign key": ({"weights/a": TIMES}, {}, "be values or snapshots, got weights/a"),
    "bare key": ({"values": TIMES}, {}, "be values or snapshots, got values"),
    "broken info": ({}, {"info": "{"}, "Expecting"),
    "nested info": ({}, {"info": "[" * 100_000}, "recursion"),
    "info a list": ({}, {"info": "[]"}, "info must be a mapping, got list"),
    "no info": ({}, {"info": None}, "Expecting value"),
    "another format": ({}, {"format": "pt"}, "format must be one of"),
    "no format": ({}, {"format": None}, "format must be one of .* got None"),
    "no times": ({"times": None}, {}, "tensors must hold the times"),
    "times in a table": ({"times": torch.ones(3, 1)}, {}, "times must have shape"),
    "short values": ({"values/a": TIMES[:2]}, {}, r"values/a must have 3 rows, got shape \(2,\)"),
    "long snapshots": ({"snapshots/w": torch.ones(4, 2)}, {}, "snapshots/w must have 3 rows"),
    "one number": ({"values/a": torch.tensor(1.0)}, {}, "values/a must have 3 rows"),
}


def written(path, tensors, header):
    parts = {"times": TIMES, "values/loss": TIMES.clone()} | tensors
    header = HEADER | header
    save_file(
        {name: part.clone() for name, part in parts.items() if part is not None},
        path,
        {name: part for name, part in header.items() if part is not None},
    )
    return path


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_inside_a_file_is_told_with_its_path(kind, tmp_path):
    assert len(Trajectory.load(written(tmp_path / "good", {}, {}))) == 3
    tensors, header, why = WRONG[kind]
    path = written(tmp_path / "bad", tensors, header)
    with pytest.raises(ValueError, match=rf"^path must .* got {re.escape(str(path))} \(.*{why}"):
        Trajectory.load(path)


def test_a_file_that_cannot_be_written_is_told_with_its_path(tmp_path):
    run, _, _ = recorded()
    (tmp_path / "folder").mkdir()
    for path, why in (
        (tmp_path / "missing" / "run", f"no such folder {tmp_path / 'missing'}"),
        (tmp_path / "folder", "Is a directory"),
    ):
        with pytest.raises(FileError, match=rf"^cannot write {re.escape(str(path))}: {why}$"):
            run.save(path)
    assert sorted(part.name for part in tmp_path.iterdir()) == ["folder"]


def test_records_are_checked():
    for times in ((-1.0,), (math.nan,), (math.inf,), ("1",)):
        with pytest.raises(ValueError, match=r"record\.at must be a finite number >= 0"):
            Record(at=times)
    for times in (0.5, None, torch.tensor(0.5)):
        with pytest.raises(ValueError, match=r"record\.at must be a sequence of times, got"):
            Record(at=times)
    assert Record(at=(t / 2 for t in (1, 2))).at == (0.5, 1.0)  # read once, kept for good
    for watch in (3, [abs], {"size": 3}, {3: abs}):
        with pytest.raises(ValueError, match=r"record\.watch must map names to functions"):
            Record(watch=watch)
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
        train(net, data, steps, Record(at=(0.0, 1e3 * steps)))
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
    # The stages go through polar coordinates, which costs a rounding.
    torch.testing.assert_close(net.neurons, before, rtol=1e-13, atol=0.0)
