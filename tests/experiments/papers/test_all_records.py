"""Every shipped experiment, at smoke scale: it runs, its panels resolve, its claims hold."""

import math

import pytest
import torch

from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import bracket
from extremal.experiments import SCALES, Store, animation_data, get, names, run, summarise
from extremal.experiments.papers.shared.robust_numbers import (
    radius_at_half_accuracy,
    robust_numbers,
)
from extremal.models import average_classifier


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("papers"))


@pytest.mark.parametrize("name", names())
def test_smoke_scale_runs_and_everything_resolves(name, store):
    experiment = get(name)
    report = run(experiment.trials("smoke"), store, jobs=1)
    summary = summarise(experiment, "smoke", store)
    assert report.failed == 0, summary["failures"]
    assert summary["trials"]["done"] == summary["trials"]["total"]
    assert all(panel["kind"] != "missing" for panel in summary["panels"])
    assert (animation_data(experiment, "smoke", store) is None) == (experiment.movie is None)


@pytest.mark.parametrize("name", names())
def test_every_scale_is_well_formed(name):
    experiment = get(name)
    assert experiment.name == name
    for scale in SCALES:
        trials = experiment.trials(scale)
        assert len({trial.key for trial in trials}) == len(trials) > 0
        for trial in trials:
            assert len(experiment.varied(trial.params)) == len(experiment.axes)
        for row in experiment.provenance(scale):
            assert row["mark"] in "SAO"
        for claim in experiment.claims:
            matched = [t for t in trials if all(t.params[k] == v for k, v in claim.where.items())]
            assert matched or scale not in claim.scales, claim.quantity


def smoke_rows(name, store):
    experiment = get(name)
    run(experiment.trials("smoke"), store, jobs=1)
    return {row["quantity"]: row for row in summarise(experiment, "smoke", store)["rows"]}


def test_theorem_2_holds_in_the_span_and_not_as_printed(store):
    rows = smoke_rows("min-vidal-2024/theorem-2", store)
    assert len(rows) == 2
    assert not any(row["ok"] for row in rows.values())
    found = {
        (trial.params["p"], trial.params["inside"]): store.read(trial).numbers
        for trial in get("min-vidal-2024/theorem-2").trials("smoke")
    }
    assert found[1.0, True]["least_toward_average"] == 1.0  # eq. 7
    assert found[3.0, True]["most_toward_average"] == 0.0
    assert found[4.0, True]["most_toward_average"] == 0.0
    assert found[3.0, True]["least_toward_center"] == 1.0  # eq. 8
    assert found[4.0, False]["least_toward_center"] == 1.0


def test_lemma_1_bounds_the_error(store):
    rows = smoke_rows("min-vidal-2024/lemma-1", store)
    assert all(row["ok"] for row in rows.values())
    # The proof's first step is within a factor of some tens of the truth, so that it can fail.
    assert rows["error as a share of 2 K p max |f|"]["high"] > 0.02
    for trial in get("min-vidal-2024/lemma-1").trials("smoke"):
        assert store.read(trial).numbers["share_of_bound"] <= 1.0


def test_both_flows_of_known_clusters_and_of_samples_end_near_sgd(store):
    trials = get("min-vidal-2024/fidelity-by-spread").trials("smoke")
    run(trials, store, jobs=1)
    found = {(t.params["p"], t.params["training"]): store.read(t).numbers for t in trials}
    for p in (1.0, 3.0):
        sgd, known, samples = (found[p, name] for name in ("sgd", "flow", "sample flow"))
        for flow in (known, samples):
            for name in ("loss", "distance", "half_radius"):
                assert flow[name] == pytest.approx(sgd[name], rel=0.02)
        # They are not one flow: that of the samples has their noise, and so has SGD.
        gap = abs(known["mean_cosine"] - sgd["mean_cosine"])
        assert abs(samples["mean_cosine"] - sgd["mean_cosine"]) < 0.5 * gap


def test_theorem_1_bounds_hold_and_are_met_by_the_attacks(store):
    experiment = get("min-vidal-2024/theorem-1")
    trials = experiment.trials("smoke")
    run(trials, store, jobs=1)
    for trial in trials:
        numbers = store.read(trial).numbers
        assert numbers["bounds_broken"] == 0
        assert numbers["accuracy"][-1] < 0.5  # radius 0.8 is beyond both critical radii


def test_the_smoke_networks_differ_as_the_theory_says(store):
    experiment = get("min-vidal-2024/figure-2")
    run(experiment.trials("smoke"), store, jobs=1)
    by_power = {t.params["p"]: store.read(t).numbers for t in experiment.trials("smoke")}
    assert by_power[1.0]["half_radius"] < by_power[3.0]["half_radius"]
    assert by_power[3.0]["unfollowed"] == 0


@pytest.mark.parametrize("name", ["min-vidal-2024/figure-2", "min-vidal-2024/figure-5"])
def test_the_bounds_of_panel_e_hold(name, store):
    experiment = get(name)
    trials = experiment.trials("smoke")
    run(trials, store, jobs=1)
    for numbers in (store.read(trial).numbers for trial in trials):
        curves = ("certified_accuracy", "robust_accuracy", "robust_accuracy_pgd")
        for low, high, pgd in zip(*(numbers[curve] for curve in curves), strict=True):
            assert low <= high
            assert low <= pgd
        assert numbers["half_radius_certified"] <= numbers["half_radius"]
        assert numbers["half_radius"] * 0.9 < numbers["half_radius_certified"]
        assert 0.0 <= numbers["bracket_gap"] <= numbers["bracket_gap_99"] < 0.2


def test_flow_fidelity_has_no_certificates(store):
    trial = get("min-vidal-2024/flow-fidelity").trials("smoke")[0]
    run([trial], store, jobs=1)
    assert "certified_accuracy" not in store.read(trial).numbers


def test_the_bracket_of_the_average_classifier():
    """F of one centre a class at its centres: both radii are sqrt(2)/2; a wrong label has 0."""
    mixture = OrthonormalMixture(5, 1, 1, 0.0)
    x = mixture.centers[[0, 1, 0, 1]]
    data = Dataset(x, torch.tensor([1, -1, 1, 1]))
    found = bracket(average_classifier(mixture), data, generator=torch.Generator())
    numbers = robust_numbers(found, [0.0, 0.69, 0.72])
    assert numbers["robust_accuracy"] == [0.75, 0.75, 0.0]
    assert numbers["certified_accuracy"] == [0.75, 0.75, 0.0]
    assert numbers["half_radius"] == pytest.approx(0.5**0.5, rel=1e-3)
    assert numbers["attacked_quantiles"][0] == numbers["certified_quantiles"][0] == 0.0
    assert 0.0 <= numbers["bracket_gap_99"] < 0.02


def test_half_radius_is_the_crossing():
    assert radius_at_half_accuracy([0.0, 1.0, 2.0], [1.0, 0.75, 0.25]) == pytest.approx(1.5)
    assert radius_at_half_accuracy([0.0, 1.0], [0.4, 0.1]) == 0.0
    assert math.isinf(radius_at_half_accuracy([0.0, 1.0], [1.0, 0.9]))


def test_the_same_seed_gives_the_same_data_for_every_p(store):
    experiment = get("min-vidal-2024/figure-1")
    run(experiment.trials("smoke"), store, jobs=1)
    first, second = (store.read(trial).arrays for trial in experiment.trials("smoke"))
    assert torch.equal(first["positive_data"], second["positive_data"])
    assert torch.equal(first["neurons_initial"], second["neurons_initial"])
    assert not torch.equal(first["neurons_final"], second["neurons_final"])


def test_the_movie_of_figure_1_begins_and_ends_with_its_stages(store):
    experiment = get("min-vidal-2024/figure-1")
    run(experiment.trials("smoke"), store, jobs=1)
    trials = experiment.trials("smoke")
    shown = animation_data(experiment, "smoke", store)
    assert [scene["title"] for scene in shown["scenes"]] == ["p = 1", "p = 3"]
    assert shown["times"][0] == 0.0
    assert shown["times"][-1] == trials[0].params["flow_time"]
    for trial, scene in zip(trials, shown["scenes"], strict=True):
        stored = store.read(trial)
        frames = [cloud["points"] for cloud in scene["clouds"] if cloud["moves"]]
        for index, stage in ((0, "initial"), (-1, "final")):
            neurons = torch.tensor([point for cloud in frames for point in cloud[index]])
            wanted = stored.arrays[f"neurons_{stage}"]
            assert sorted(neurons.tolist()) == sorted(wanted.tolist())
        assert scene["loss"][-1] == stored.numbers["loss"]
        assert scene["turn"] in shown["times"]
