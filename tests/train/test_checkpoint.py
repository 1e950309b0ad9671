"""Interrupted flows go on where they were, and no file is taken for another's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from extremal.models import Explicit, PReLUNet, Preparation
from extremal.train import Loss, Record, Until, gradient_flow
from extremal.train.checkpoint import Checkpoint, problem_digest
from extremal.train.flow.coupled_stage import CoupledStage
from extremal.train.flow.staged_flow import StagedFlow
from tests.train.flow_problem import largest_difference, problem

TIMES = (1.0, 2.5, 4.0)
KINDS = {"plain": {"tolerance": 1e-9}, "staged": {"method": "general", "tolerance": 1e-3}}
EACH = pytest.mark.parametrize("kind", KINDS)


class Interruption:
    """A quantity to watch that is interrupted once, the `when`th time it is looked at."""

    def __init__(self, when: int) -> None:
        self.left = when

    def __call__(self, net) -> float:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return float(net.votes.norm())


def interrupted(path, kind, *, until=6.0, when=3):
    """A network whose flow was interrupted at TIMES[1], its data, and the watch."""
    net, data = problem(3.0)
    watch = Interruption(when)
    record = Record(at=TIMES, watch={"size": watch}, snapshots=True)
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, until=until, checkpoint=path, record=record, **KINDS[kind])
    return net, data, record


@EACH
def test_an_interrupted_flow_goes_on_to_the_same_end(kind, tmp_path):
    path = tmp_path / "state"
    stopped, data, record = interrupted(path, kind)
    assert path.is_file()
    (net, _), (whole, _) = problem(3.0), problem(3.0)
    assert largest_difference(stopped, net) > 1e-3  # it was left on its way
    run = gradient_flow(net, data, until=6.0, checkpoint=path, record=record, **KINDS[kind])
    assert not path.exists()
    wanted = gradient_flow(whole, data, until=6.0, record=record, **KINDS[kind])
    near = 1e-8 if kind == "plain" else 5e-3
    assert largest_difference(net, whole) < near
    assert run.times.tolist() == wanted.times.tolist() == [0.0, *TIMES, 6.0]  # each of them once
    for name in ("loss", "accuracy", "size"):
        torch.testing.assert_close(run.values[name], wanted.values[name], rtol=near, atol=near)
    assert run.snapshots["neurons"].shape == wanted.snapshots["neurons"].shape


@EACH
def test_an_interruption_between_steps_is_kept_too(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("extremal.train.flow.driver._PROGRESS_SECONDS", 0.0)
    path, told = tmp_path / "state", []

    def progress(time: float, loss: float, phase: str) -> None:
        told.append(time)
        if time > 2.0:
            raise KeyboardInterrupt

    (net, data), (whole, _) = problem(3.0), problem(3.0)
    settings = {"until": 6.0, "record": Record(at=TIMES), **KINDS[kind]}
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, checkpoint=path, progress=progress, **settings)
    stopped, _ = problem(3.0)
    gradient_flow(stopped, data, until=told[-1], **KINDS[kind])
    near = 1e-8 if kind == "plain" else 5e-3
    assert largest_difference(net, stopped) < near  # the network is where the flow was
    again, _ = problem(3.0)
    run = gradient_flow(again, data, checkpoint=path, **settings)
    wanted = gradient_flow(whole, data, **settings)
    assert run.times.tolist() == wanted.times.tolist()
    assert largest_difference(again, whole) < near


@EACH
def test_going_on_is_no_second_start_and_tells_of_the_whole_run(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("extremal.train.flow.driver._PROGRESS_SECONDS", 0.0)
    path, told = tmp_path / "state", []
    _, data, record = interrupted(path, kind, when=4)
    (net, _), (whole, _) = problem(3.0), problem(3.0)
    settings = {"until": 6.0, "record": record, **KINDS[kind]}
    run = gradient_flow(
        net, data, checkpoint=path, progress=lambda *words: told.append(words), **settings
    )
    assert told[0][0] >= TIMES[2]
    wanted = gradient_flow(whole, data, **settings).info
    assert sorted(run.info) == sorted(wanted)
    assert sorted(run.info["phases"]) == sorted(wanted["phases"])
    for name, time in wanted["phases"].items():
        assert run.info["phases"][name] == pytest.approx(time, abs=1e-9)
    for name in ("steps", "right_hand_sides"):
        assert 0.9 * wanted[name] <= run.info[name] <= 1.5 * wanted[name] + 20
    assert run.info["rejected"] >= wanted["rejected"]


@EACH
def test_phases_are_recorded_once(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("extremal.train.flow.driver._PROGRESS_SECONDS", 0.0)

    def stop(time: float, loss: float, phase: str) -> None:
        if time > 30.0:
            raise KeyboardInterrupt

    (net, data), (again, _), (whole, _) = (problem(3.0, std=0.01) for _ in range(3))
    path = tmp_path / "state"
    settings = {"until": 50.0, "record": Record(at=(20.0, 40.0), phases=True), **KINDS[kind]}
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, checkpoint=path, progress=stop, **settings)
    run = gradient_flow(again, data, checkpoint=path, **settings)
    wanted = gradient_flow(whole, data, **settings)
    assert len(wanted.info["phases"]) == 2
    assert run.info["phases"] == wanted.info["phases"]
    assert run.times.tolist() == wanted.times.tolist()
    assert set(run.info["phases"].values()) <= set(run.times.tolist())


@EACH
def test_a_goal_that_was_met_is_met_again(kind, tmp_path):
    path = tmp_path / "state"
    (net, data), (whole, _) = problem(3.0), problem(3.0)
    record = Record(watch={"size": Interruption(2)})  # while the end is recorded
    settings = {"until": Until(loss=0.6), "record": record, **KINDS[kind]}
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, checkpoint=path, **settings)
    again = problem(3.0)[0]
    run = gradient_flow(again, data, checkpoint=path, **settings)
    wanted = gradient_flow(whole, data, **settings)
    assert run.info["ended_by"] == "loss"
    assert run.info["reached"] == pytest.approx(wanted.info["reached"], rel=1e-3)
    assert largest_difference(again, whole) < (1e-8 if kind == "plain" else 5e-3)


@EACH
def test_the_end_must_not_be_before_the_state(kind, tmp_path):
    path = tmp_path / "state"
    _, data, _ = interrupted(path, kind)
    kept = path.read_bytes()
    net, record = problem(3.0)[0], Record(watch={"size": Interruption(99)}, snapshots=True)
    for until in (1.0, Until(2.4, loss=1e-3)):
        with pytest.raises(ValueError, match=r"^until must not lie before 2\.5, which .* got "):
            gradient_flow(net, data, until=until, checkpoint=path, record=record, **KINDS[kind])
        assert path.read_bytes() == kept
        assert largest_difference(net, problem(3.0)[0]) == 0.0
    run = gradient_flow(net, data, until=2.5, checkpoint=path, record=record, **KINDS[kind])
    assert run.times.tolist() == [0.0, 1.0, 2.5]


@EACH
def test_the_end_may_be_put_off(kind, tmp_path):
    path = tmp_path / "state"
    _, data, record = interrupted(path, kind)
    (net, _), (whole, _) = problem(3.0), problem(3.0)
    gradient_flow(net, data, until=8.0, checkpoint=path, record=record, **KINDS[kind])
    gradient_flow(whole, data, until=8.0, **KINDS[kind])
    assert largest_difference(net, whole) < (1e-8 if kind == "plain" else 5e-3)


@EACH
def test_a_state_is_kept_on_the_way(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoint, "seconds_between", 0.0)
    path = tmp_path / "state"
    seen = []
    net, data = problem(3.0)
    record = Record(at=TIMES, watch={"kept": lambda net: float(seen.append(path.exists()) or 0)})
    gradient_flow(net, data, until=6.0, checkpoint=path, record=record, **KINDS[kind])
    assert not seen[0]
    assert seen[-1]
    assert not path.exists()


def varied(*, seed: int = 0, p: float = 3.0, **settings) -> PReLUNet:
    """The network of `problem` with another power, or another preparation."""
    old, _ = problem(3.0, seed=seed)
    init = Explicit(old.neurons.detach(), old.votes.detach())
    settings |= {"init": init, "dtype": torch.float64, "generator": torch.Generator()}
    return PReLUNet(3, 5, p, **settings)


def test_a_file_of_another_problem_is_told_and_kept(tmp_path):
    path = tmp_path / "state"
    _, data, record = interrupted(path, "plain")
    kept = path.read_bytes()
    watch = {"size": Interruption(99)}
    record = replace(record, watch=watch)
    center = torch.full((3,), 1e-9, dtype=torch.float64)
    cases = [
        (varied(seed=1), data, {}),
        (varied(p=3.0 + 1e-12), data, {}),
        (varied().freeze("votes"), data, {}),
        (varied(preparation=Preparation(normalize=1e-12)), data, {}),
        (varied(preparation=Preparation(scale=1.0 + 1e-12)), data, {}),
        (varied(preparation=Preparation(center=center)), data, {}),
        (varied(), replace(data, x=data.x + 1e-9), {}),
        (varied(), replace(data, y=-data.y), {}),
        (varied(), replace(data, group=torch.zeros(11, dtype=torch.int64)), {}),
        (varied(), data, {"loss": "logistic"}),
        (varied(), data, {"loss": Loss("exp", "sum")}),
        (varied(), data, {"tolerance": 1e-8}),
        (varied(), data, {"tolerance": 1e-3}),
        (varied(), data, {"record": None}),
        (varied(), data, {"record": replace(record, watch={"length": watch["size"]})}),
        (varied(), data, {"record": replace(record, snapshots=False)}),
        (varied(), data, {"record": replace(record, phases=True)}),
    ]
    for one, train, settings in cases:
        chosen = {"until": 6.0, "checkpoint": path, "record": record, **KINDS["plain"]} | settings
        message = f"^checkpoint must belong to the same .* got {re.escape(str(path))}$"
        with pytest.raises(ValueError, match=message):
            gradient_flow(one, train, **chosen)
        assert path.read_bytes() == kept
    same = {"until": 6.0, "checkpoint": path, "record": replace(record, at=(5.0,))}
    assert gradient_flow(varied(), data, **same, **KINDS["plain"]).times.tolist()[-2:] == [5.0, 6.0]


def test_two_losses_of_ones_own_do_not_share_a_file(tmp_path):
    """Both are called "<lambda>" and agree where outputs are zero."""
    path = tmp_path / "state"
    net, data = problem(3.0)
    flat, steep = (lambda f, y, a=a: torch.exp(-a * y * f) for a in (1.0, 2.0))
    watched = Record(at=TIMES, watch={"size": Interruption(3)})
    settings = {"until": 6.0, "checkpoint": path, **KINDS["plain"]}
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, loss=steep, record=watched, **settings)
    again = replace(watched, watch={"size": Interruption(99)})
    with pytest.raises(ValueError, match="checkpoint must belong to the same"):
        gradient_flow(varied(), data, loss=flat, record=again, **settings)
    assert gradient_flow(varied(), data, loss=steep, record=again, **settings).info["converged"]


class Shifted(nn.Module):
    """A linear function of x - shift, to a power that repr() does not tell."""

    def __init__(self, shift: float, power: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float64))
        self.power = power

    def forward(self, x):
        return ((x - self.shift) ** self.power) @ self.weight


def test_any_networks_buffers_and_settings_are_part_of_the_problem():
    _, data = problem(3.0)

    def digest(net: nn.Module) -> str:
        return problem_digest([net, data])

    assert digest(Shifted(0.5, 1)) == digest(Shifted(0.5, 1))
    assert digest(Shifted(0.5, 1)) != digest(Shifted(0.6, 1))
    assert digest(Shifted(0.5, 1)) != digest(Shifted(0.5, 3))
    nested = [digest(nn.Sequential(varied(p=p))) for p in (2.0, 2.0 + 1e-12)]
    assert nested[0] != nested[1]


def test_a_file_that_could_not_be_written_is_told_before_any_work(tmp_path, monkeypatch):
    net, data = problem(3.0)
    rule = "^checkpoint must lie in a folder that exists and can be written to, got "

    def refused(path, message: str) -> None:
        with pytest.raises(ValueError, match=message + re.escape(str(path)) + "$"):
            gradient_flow(net, data, until=6.0, checkpoint=path, **KINDS["plain"])
        assert largest_difference(net, problem(3.0)[0]) == 0.0

    refused(tmp_path / "missing" / "state", rule)
    refused(tmp_path, "^checkpoint must name a file, got ")
    monkeypatch.setattr("extremal.train.checkpoint.os.access", lambda *_: False)
    refused(tmp_path / "state", rule)


def test_a_broken_or_foreign_file_is_told_and_kept(tmp_path):
    path = tmp_path / "state"
    net, data, _ = interrupted(path, "plain")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-100])
    (tmp_path / "text").write_text("no tensors here")
    net.save(tmp_path / "network")
    save_file({"a": torch.ones(2)}, tmp_path / "bare", {"format": "extremal-training-1"})
    for name in ("cut", "text", "network", "bare"):
        file = tmp_path / name
        kept = file.read_bytes()
        start = problem(3.0)[0]
        message = f"^checkpoint must name a state that .* got {re.escape(str(file))} "
        with pytest.raises(ValueError, match=message):
            gradient_flow(start, data, until=6.0, checkpoint=file, **KINDS["plain"])
        assert file.read_bytes() == kept
        assert largest_difference(start, problem(3.0)[0]) == 0.0


def test_without_a_checkpoint_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net, data = problem(3.0)
    with pytest.raises(KeyboardInterrupt):
        gradient_flow(net, data, until=6.0, record=Record(watch={"a": Interruption(2)}))
    assert not list(tmp_path.iterdir())


def test_a_flow_that_goes_on_keeps_the_smaller_errors_of_fitting():
    """The data were being fitted already when it stopped."""
    net, data = problem(3.0)
    first = StagedFlow(net, data, Loss("exp"), 1e-3, 100.0, known=False)
    while first.time < 20.0:
        first.step(20.0)
    first.write(net, 20.0)
    after = StagedFlow(net, data, Loss("exp"), 1e-3, 100.0, known=False, time=20.0)
    after.remember(first.memory())
    while after.time < 21.0:
        after.step(21.0)
    assert "fitting starts" in first.phases
    for flow in (first, after):
        assert isinstance(flow.stage, CoupledStage)
    assert after.stage.stepper.tolerance == first.stage.stepper.tolerance < 1e-4
