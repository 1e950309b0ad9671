"""Neurons that win late are found: cases in which sleepers that look alike were once merged."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from extremal.data import Dataset, GaussianClusters
from extremal.measure import following
from extremal.models import Gaussian, PReLUNet
from extremal.train import Until, UnverifiedFlowWarning, gradient_flow
from extremal.train.flow import coupled_stage


@functools.cache
def case(unequal: bool, seed: int) -> tuple[GaussianClusters, Dataset]:
    """Ten orthonormal clusters in 200 dimensions, x and y alone."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([1] * 6 + [-1] * 4)
    shares = 0.75 ** torch.arange(10.0) if unequal else None
    centres = torch.eye(10, 200, dtype=torch.float64)
    clusters = GaussianClusters(centres, labels, 0.1 / math.sqrt(200), weights=shares)
    sample = clusters.sample(1000, generator=generator)
    return clusters, Dataset(sample.x, sample.y)


def flow(unequal: bool, seed: int, until: float = 2000.0, **settings):
    """The flow of 100 neurons from a small start: the network, its info and the centres it has."""
    clusters, data = case(unequal, seed)
    generator = torch.Generator().manual_seed(seed)
    net = PReLUNet(200, 100, 3.0, init=Gaussian(1e-7), generator=generator)
    run = gradient_flow(net, data, until=until, method="general", **settings)
    return net, run.info, following(net, clusters.centers).unfollowed


@pytest.mark.parametrize(("unequal", "seed"), [(False, 2), (True, 0)])
def test_all_centres_are_found_with_and_without_a_last_stage(unequal, seed, monkeypatch):
    net, info, unfollowed = flow(unequal, seed)
    assert unfollowed == ()
    assert info["neurons_left"] == 100
    assert math.isnan(info["missed"])
    assert info["checked_samples"] == 0
    monkeypatch.setattr(coupled_stage, "_FEW_PRODUCTS", 0)
    few, info, unfollowed = flow(unequal, seed)
    assert unfollowed == ()
    assert info["neurons_left"] < 60
    assert 0.0 < info["missed"] <= 1e-2
    assert info["checked_samples"] == 1000
    assert info["gathered"] < info["checked_until"] <= 2000.0
    x = case(unequal, seed)[1].x
    with torch.no_grad():
        whole, found = net(x), few(x)
    assert float((found - whole).abs().max() / whole.abs().max()) < 0.01


def test_a_preview_on_a_part_of_the_samples_finds_all_winners(monkeypatch):
    """On 150 of 1000 samples as they come another neuron wins a centre, which is then lost."""
    monkeypatch.setattr(coupled_stage, "_FEW_PRODUCTS", 0)
    monkeypatch.setattr(coupled_stage, "_PREVIEW_SAMPLES", 150)
    monkeypatch.setattr(coupled_stage, "_PREVIEW_PRODUCTS", 0)
    _, info, unfollowed = flow(False, 4, until=1000.0)
    assert info["neurons_left"] < 60
    assert info["checked_samples"] == 1000
    assert unfollowed == ()


def test_the_few_are_not_taken_where_they_would_end_elsewhere(monkeypatch):
    """One neuron for all of them is refused at every look, and all go on."""
    monkeypatch.setattr(coupled_stage, "_FEW_PRODUCTS", 0)
    honest = coupled_stage.heaviest_neurons
    seen = []

    def one(contribution, theta, weight, left_out_share):
        seen.append(len(weight))
        return honest(contribution, theta, weight, 0.9)

    monkeypatch.setattr(coupled_stage, "heaviest_neurons", one)
    _, info, unfollowed = flow(False, 2, until=600.0)
    assert len(seen) > 1
    assert math.isnan(info["gathered"])
    assert info["neurons_left"] == 100
    assert unfollowed == ()


def test_verifying_says_what_a_finer_flow_changes():
    _, info, _ = flow(False, 2, verify=True)
    found = info["verified"]
    assert found["tolerance"] == pytest.approx(1e-4)
    assert found["output_change"] < 0.01
    assert (found["lost_directions"], found["new_directions"]) == (0, 0)
    message = "at tolerance 0.01 the flow ends elsewhere"
    with pytest.warns(UnverifiedFlowWarning, match=message) as warned:
        _, info, _ = flow(False, 1, until=250.0, tolerance=0.1, verify=True)
    assert warned[0].filename == __file__  # where the flow was asked for
    assert info["verified"]["output_change"] > 0.01
    with pytest.raises(ValueError, match="verify must be True or False, got int"):
        flow(False, 2, verify=1)


def test_a_run_that_has_ended_at_once_is_verified():
    _, info, _ = flow(False, 2, until=Until(time=10.0, loss=2.0), verify=True)
    assert info["reached"] == 0.0
    assert info["verified"]["output_change"] < 1e-12


def test_a_verification_that_needs_too_many_steps_says_so():
    with pytest.warns(UnverifiedFlowWarning, match="could not be verified: at tolerance 0.0001"):
        _, info, _ = flow(False, 2, until=300.0, verify=True, max_steps=450)
    assert info["verified"] is None
