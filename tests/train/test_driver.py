"""What a flow tells on its way and at its end: progress, the method chosen, the info."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from extremal.data import Dataset, OrthonormalMixture
from extremal.experiments import Outcome, Trial
from extremal.experiments.running.local_pool import compute_trial
from extremal.models import Gaussian, PReLUNet
from extremal.train import Record, Until, gradient_flow
from extremal.train.flow.coupled_stage import CoupledStage
from extremal.train.flow.driver import check_progress
from extremal.train.flow.neuron_groups import Groups
from tests.train.flow_problem import problem


def mixture(count: int = 200) -> Dataset:
    mix = OrthonormalMixture(12, 2, 2, 0.1)
    return mix.sample(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network(p: float = 3.0, std: float = 1e-3, dim: int = 12, width: int = 30, **more) -> PReLUNet:
    generator = torch.Generator().manual_seed(1)
    init = Gaussian(std)
    return PReLUNet(dim, width, p, init=init, dtype=torch.float64, generator=generator, **more)


@pytest.mark.parametrize("kind", ["plain", "general", "mixture"])
def test_progress_tells_time_loss_and_phase(kind, monkeypatch):
    monkeypatch.setattr("extremal.train.flow.driver._PROGRESS_SECONDS", 0.0)
    told = []
    method = "mixture" if kind == "mixture" else "general"
    tolerance = 1e-6 if kind == "plain" else 1e-3
    net = network()
    run = gradient_flow(
        net,
        mixture(),
        until=150.0,
        method=method,
        tolerance=tolerance,
        progress=lambda *words: told.append(words),
    )
    times, losses, phases = zip(*told, strict=True)
    assert len(told) > 10
    for one, other in itertools.pairwise(told):  # a new phase may begin at the same time
        assert one[0] < other[0] or (one[0] == other[0] and one[2] != other[2])
    # The closure's loss is the mean output's: it may differ from the samples' where they take over.
    slack = 0.01 if kind == "mixture" else 1e-9
    assert all(b <= a * (1.0 + slack) for a, b in itertools.pairwise(losses))
    order = ["alignment", "waking", "fitting"]
    assert set(phases) <= set(order)
    assert phases[0] == "alignment"
    assert phases[-1] == "fitting"
    assert [order.index(p) for p in phases] == sorted(order.index(p) for p in phases)
    assert times[-1] == 150.0
    assert losses[-1] == pytest.approx(float(run.values["loss"][-1]), rel=1e-9)


def test_progress_true_writes_to_the_standard_error(monkeypatch, capsys):
    monkeypatch.setattr("extremal.train.flow.driver._PROGRESS_SECONDS", 0.0)
    net, data = problem(2.0)
    gradient_flow(net, data, until=1.0, progress=True)
    shown = capsys.readouterr()
    assert not shown.out
    assert "flow time 1 " in shown.err
    assert "loss" in shown.err
    assert shown.err.rstrip().endswith("until time 1")
    assert shown.err.count("flow time") == 1  # only a terminal sees the lines before the last
    monkeypatch.setattr("extremal.train.flow.driver._LONG_RUN_SECONDS", 0.0)
    for progress in (None, False):
        gradient_flow(net, data, until=1.0, progress=progress)
        assert not capsys.readouterr().err


@pytest.fixture
def on_terminal(monkeypatch):
    """A function that runs another, with a terminal as standard error, and returns what it shows.

    Every run is a long one.
    """
    monkeypatch.setenv("TERM", "xterm")
    for name in ("_LONG_RUN_SECONDS", "_PROGRESS_SECONDS"):
        monkeypatch.setattr(f"extremal.train.flow.driver.{name}", 0.0)

    def shown(work) -> str:
        found, (ours, theirs) = "", os.openpty()
        with monkeypatch.context() as patch, os.fdopen(theirs, "w") as stream:
            patch.setattr(sys, "stderr", stream)  # Here, since pytest sets it before each test.
            work()
            print("the end", file=stream, flush=True)
            while "the end" not in found:
                found += os.read(ours, 100_000).decode()
        os.close(ours)
        return found.partition("the end")[0]

    return shown


def test_a_long_run_in_a_terminal_tells_its_progress_unasked(on_terminal):
    net, data = problem(2.0)
    shown = on_terminal(lambda: gradient_flow(net, data, until=Until(loss=0.5)))
    assert "flow time" in shown
    assert "until loss 0.5" in shown
    assert not on_terminal(lambda: gradient_flow(net, data, until=1.0, progress=False))


def test_a_short_run_and_a_trial_tell_nothing_unasked(on_terminal, monkeypatch):
    trial = Trial(f"{__name__}:flow_trial", {}, 0)
    assert "flow time" in on_terminal(lambda: flow_trial({}, None))
    assert not on_terminal(lambda: compute_trial(trial, 1).numbers["loss"])
    monkeypatch.setattr("extremal.train.flow.driver._LONG_RUN_SECONDS", 60.0)
    assert not on_terminal(lambda: flow_trial({}, None))


def flow_trial(params, generator):
    net, data = problem(2.0)
    return Outcome({"loss": float(gradient_flow(net, data, until=1.0).values["loss"][-1])})


@pytest.mark.parametrize("progress", [1, "yes", [print]])
def test_progress_is_a_bool_or_a_function(progress):
    rule = "be True, False, None or a function of flow time, loss and phase"
    for use in (check_progress, flow_with):
        with pytest.raises(ValueError, match=f"^progress must {rule}, got "):
            use(progress)


def flow_with(progress):
    (net, data), (start, _) = problem(2.0), problem(2.0)
    try:
        gradient_flow(net, data, until=1.0, progress=progress)
    finally:
        assert torch.equal(net.neurons, start.neurons)


def test_auto_takes_the_mixture_where_the_data_say_so(monkeypatch):
    known = mixture(60)
    run = gradient_flow(network(), known, until=1.0)
    assert run.info["method"] == "general"  # of few samples all are followed: it is cheap
    monkeypatch.setattr("extremal.train.flow.gradient_flow._MOST_GENERAL_PRODUCTS", 0)
    bare = Dataset(known.x, known.y)
    grouped = Dataset(known.x, known.y, group=known.group)
    cases = [
        (network(), known, {}, "mixture"),
        (network(), bare, {}, "general"),
        (network(), grouped, {}, "general"),
        (network(), known, {"tolerance": 1e-5}, "general"),
        (network(), known, {"method": "general"}, "general"),
        (network(), grouped, {"method": "mixture"}, "mixture"),
        (network(bias=True), known, {}, "general"),
        (network().freeze("votes"), known, {}, "general"),
    ]
    for net, data, settings, wanted in cases:
        run = gradient_flow(net, data, until=1.0, **settings)
        assert run.info["method"] == wanted
        staged = wanted == "mixture" or not (
            "tolerance" in settings or net.bias is not None or not net.votes.requires_grad
        )
        assert ("directions_left" in run.info) == staged
        default = 1e-3 if staged else 3e-4
        assert run.info["tolerance"] == settings.get("tolerance", default)


@pytest.mark.parametrize("method", ["general", "mixture"])
def test_info_of_the_stages(method):
    run = gradient_flow(network(), mixture(), until=150.0, method=method)
    info = run.info
    assert info["converged"]
    assert info["tolerance"] == 1e-3
    assert 0 < info["steps"] < info["right_hand_sides"]
    assert info["rejected"] >= 0
    assert 4 <= info["directions_left"] <= 30
    assert 0.0 <= info["residual"] < 0.1
    assert 0.0 < info["phases"]["alignment ends"] <= info["phases"]["fitting starts"] < 150.0


@dataclass(frozen=True)
class Gathering:
    """What a flow said of its groups when it made them, and the neurons then."""

    groups: Groups
    said: dict
    directions: Tensor
    mass: Tensor
    x: Tensor


def first_gathering(p: float) -> Gathering:
    """The beginning of the last stage, in as many coordinates as there are."""
    x = sphere(50, 4, 3)
    data = Dataset(x, torch.where(x[:, 0] > 0, 1, -1))
    made = []
    close = CoupledStage.fitting_if_few

    def look(self):
        found = close(self)
        if found is not None:
            place, theta = self.stepper.state
            assert not bool(place[:, -1].any())
            system = self.plan.system
            directions, mass = system.field.frame.lift(place), system.invariants.contribution(theta)
            made.append(Gathering(found.groups, found.report(), directions, mass, data.x))
            raise KeyboardInterrupt  # enough

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("extremal.train.flow.coupled_stage._FEW_PRODUCTS", 0)
        patch.setattr(CoupledStage, "fitting_if_few", look)
        with pytest.raises(KeyboardInterrupt):
            gradient_flow(network(p, 1e-4, 4, 40), data, until=200.0, tolerance=1e-2)
    return made[0]


def sphere(count: int, dim: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(points, dim=1)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_change_is_what_gathering_changed_and_bound_holds_on_the_ball(p):
    found = first_gathering(p)
    assert len(found.groups.leaders) < len(found.mass)  # some did gather
    merged = torch.nn.functional.normalize(found.groups.mean(found.directions), dim=1)
    total = found.groups.total(found.mass[found.groups.owner >= 0])

    def difference(x: Tensor) -> tuple[float, float]:
        whole = torch.relu(x @ found.directions.T) ** p @ found.mass
        gap = torch.relu(x @ merged.T) ** p @ total - whole
        return float(gap.abs().max()), float(whole.abs().max())

    gap, scale = difference(found.x)
    rounding = 1e-3 if p == 1.0 else 1e-6  # of kinks
    assert found.said["change"] == pytest.approx(gap / max(scale, 1.0), rel=rounding)
    assert 0.0 < found.said["change"] <= 1e-2
    worst, _ = difference(sphere(4000, 4, 4))
    assert worst <= found.said["bound"] * float(found.mass.abs().sum())


def test_recorded_losses_are_the_networks_own():
    data = mixture()
    net = network()
    record = Record(at=(40.0, 80.0, 120.0), snapshots=True)
    run = gradient_flow(net, data, until=150.0, method="general", record=record)
    for index in range(len(run)):
        with torch.no_grad():
            true = float(torch.exp(-data.y * run.at(index, net)(data.x)).mean())
        assert float(run.values["loss"][index]) == pytest.approx(true, rel=3e-3)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_phases_are_recorded_where_asked_for(tolerance):
    data = mixture()
    settings = {"until": 150.0, "method": "general", "tolerance": tolerance}
    run = gradient_flow(network(), data, record=Record(at=(60.0,), phases=True), **settings)
    begins = set(run.info["phases"].values())
    assert begins
    assert set(run.times.tolist()) == {0.0, 60.0, 150.0} | begins
    assert bool((run.times.diff() > 0.0).all())
