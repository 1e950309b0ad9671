"""Interrupted flows go on where they were, and no file is taken for another's."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import save_file

from extremal.train import Loss, Record, gradient_flow
from extremal.train.checkpoint import Checkpoint
from tests.train.twin import largest_difference, problem

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
    monkeypatch.setattr("extremal.train.follow._SHOW", 0.0)
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


def test_going_on_is_no_second_start(tmp_path):
    # The rest of the flow alone: fewer steps than from the beginning.
    path = tmp_path / "state"
    _, data, record = interrupted(path, "plain", when=4)
    (net, _), (whole, _) = problem(3.0), problem(3.0)
    rest = gradient_flow(net, data, until=6.0, checkpoint=path, record=record, tolerance=1e-9)
    all_of_it = gradient_flow(whole, data, until=6.0, tolerance=1e-9)
    assert rest.info["steps"] < 0.8 * all_of_it.info["steps"]


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
    monkeypatch.setattr(Checkpoint, "every", 0.0)
    path = tmp_path / "state"
    seen = []
    net, data = problem(3.0)
    record = Record(at=TIMES, watch={"kept": lambda net: float(seen.append(path.exists()) or 0)})
    gradient_flow(net, data, until=6.0, checkpoint=path, record=record, **KINDS[kind])
    assert not seen[0]
    assert seen[-1]
    assert not path.exists()


def test_a_file_of_another_problem_is_told_and_kept(tmp_path):
    path = tmp_path / "state"
    _, data, _ = interrupted(path, "plain")
    kept = path.read_bytes()
    other, _ = problem(3.0, seed=1)
    net, points = problem(3.0)
    moved = type(points)(points.x + 1e-9, points.y)
    cases = [
        (other, data, {}),
        (net, moved, {}),
        (net, data, {"loss": "logistic"}),
        (net, data, {"loss": Loss("exp", "sum")}),
        (net, data, {"tolerance": 1e-8}),
        (net, data, {"tolerance": 1e-3}),
    ]
    for one, train, settings in cases:
        message = f"^checkpoint must belong to the same .* got {re.escape(str(path))}$"
        with pytest.raises(ValueError, match=message):
            gradient_flow(one, train, until=6.0, checkpoint=path, **KINDS["plain"] | settings)
        assert path.read_bytes() == kept


def test_a_broken_or_foreign_file_is_told_and_kept(tmp_path):
    path = tmp_path / "state"
    net, data, _ = interrupted(path, "plain")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-100])
    (tmp_path / "text").write_text("no tensors here")
    net.save(tmp_path / "network")
    save_file({"a": torch.ones(2)}, tmp_path / "bare", {"format": "extremal-flow-1"})
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
