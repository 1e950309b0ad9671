"""The studies of feature averaging and of finer labels."""

import math
from dataclasses import replace

import pytest
import torch

from extremal import attack, measure, models, train
from extremal.data import Dataset, OrthogonalClusters
from extremal.experiments import get
from extremal.experiments.papers.li_2025_averaging import averaging_trial as study
from extremal.experiments.papers.li_2025_averaging import binary_reading as readings
from extremal.experiments.papers.li_2025_averaging.finer_labels_trial import trial as finer

BASE = dict(get("li-2025-averaging/figure-1").trials("smoke")[0].params)
ATTACKS = {
    "dim": 200,
    "train_each": 20,
    "test_each": 10,
    "steps": 100,
    "lr": 0.01,
    "radii": [0.0, 4.0, 8.0, 12.0],
    "attacked_points": 12,
    "certified_points": 12,  # the same points
}


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def seen(labels, reading="binary", **changes):
    params = BASE | ATTACKS | {"labels": labels, "reading": reading} | changes
    return study.figure_1_trial(params, generator()).numbers


@pytest.fixture(scope="module")
def binary():
    return seen("binary")


@pytest.fixture(scope="module")
def fine():
    return seen("fine", "argmax")


def test_binary_labels_average_and_fine_ones_decouple(binary, fine):
    assert (binary["averages"], binary["decouples"]) == (1.0, 0.0)
    assert (fine["averages"], fine["decouples"]) == (0.0, 1.0)
    assert binary["averaged_share"] > 0.9 > fine["averaged_share"]
    assert fine["decoupled_share"] > 0.9 > binary["decoupled_share"]
    assert 0.6 < binary["cosine_own_class"] < 0.5**0.5  # of an average of two, less some noise
    assert fine["cosine_own_smallest"] > 0.9
    assert fine["covered"] == 1.0


def test_margins_of_cosines_and_both_sizes_of_foreign_coefficients(binary, fine):
    margin = binary["cosine_own_class"] - binary["cosine_other_class"]
    assert binary["cosine_margin"] == pytest.approx(margin)
    assert margin > 0.5
    others = fine["cosine_own"] - fine["cosine_class_others"]
    assert fine["cosine_own_margin"] == pytest.approx(others)
    # The class's mean is of two features: the own one and the other.
    both = 0.5 * (fine["cosine_own"] + fine["cosine_class_others"])
    assert fine["cosine_own_class"] == pytest.approx(both)
    for numbers in (binary, fine):
        assert numbers["scale"] > 0
        assert numbers["most_foreign"] <= numbers["foreign_size"]


def test_fine_labels_are_more_robust_and_brackets_hold(binary, fine):
    assert fine["half_radius"] > 1.2 * binary["half_radius"]
    for numbers in (binary, fine):
        assert numbers["clean_accuracy"] == 1.0
        assert numbers["half_radius_certified"] <= numbers["half_radius"] * (1 + 1e-6)
        pairs = zip(numbers["attacked"], numbers["published"], strict=True)
        assert all(strong <= weak for strong, weak in pairs)


def test_the_universal_attack_breaks_averaged_features_alone(binary, fine):
    assert binary["universal_reached"] < 0.05
    assert binary["universal"][0] == 1.0
    assert fine["universal_reached"] > 0.5


def test_a_last_step_outside_the_ball_reads_as_a_smaller_radius(binary, fine):
    for numbers in (binary, fine):
        pairs = zip(numbers["overstepped"], numbers["published"], strict=True)
        assert all(beyond <= within for beyond, within in pairs)
        assert numbers["half_radius_overstepped"] < 0.95 * numbers["half_radius_published"]


def test_a_step_outside_the_ball_is_no_weaker_where_losses_saturate():
    """Margins of thousands, at which the slope of the logistic loss is zero in float32."""
    clusters = OrthogonalClusters(3072, 5, 5, generator=generator())
    few = clusters.sample_each(4, generator=generator())
    net = models.averaged_classifier(clusters).float()
    assert float((few.y * net(few.x).detach()).min()) > 1000.0
    for radius in (14.0, 16.0, 18.0, 20.0):
        within = readings._published(net, net, few, radius, generator())
        assert readings._overstepped(net, net, few, radius, generator()) <= within
    assert readings._overstepped(net, net, few, 18.0, generator()) < 0.7  # where it was blind: 1


def test_steps_on_a_linear_function_reach_as_far_as_stated():
    """f = <e_1, x>: the last step ends 1.137 radii on, up to the start's share along e_1."""
    first = torch.nn.Linear(3072, 1, bias=False)
    torch.nn.init.eye_(first.weight)
    net = torch.nn.Sequential(first, torch.nn.Flatten(0))
    x = torch.zeros(40, 3072)
    for distance, left in ((1.11, 0.0), (1.17, 1.0)):
        x[:, 0] = 2.0 * distance
        data = Dataset(x, torch.ones(40, dtype=torch.int64))
        assert readings._overstepped(net, net, data, 2.0, generator()) == left


def test_certified_and_attacked_medians_are_of_the_same_points():
    numbers = seen("binary", certified_points=4)
    assert 0.9 < numbers["certified_share"] <= 1.0 + 1e-6
    ratio = numbers["half_radius_certified"] / numbers["half_radius_same"]
    assert numbers["certified_share"] == pytest.approx(ratio)
    upper = torch.tensor([0.0, 1.0, 2.0])
    found = readings.certified_numbers(torch.tensor([0.0, 0.8, 1.9]), upper, [0.0, 0.9])
    assert found["certified"] == pytest.approx([2 / 3, 1 / 3])
    assert found["certified_share"] == pytest.approx(0.8)
    assert "certified" not in seen("binary", certified_points=0)


@pytest.mark.parametrize(
    "changes", [{"norms": [1.0, 0.6, 1.4, 0.8]}, {"cosine": 0.3}, {}], ids=["norms", "cosine", ""]
)
def test_the_averaged_radius_is_what_attacks_find(changes):
    clusters = OrthogonalClusters(100, 2, 2, 0.3, generator=generator(), **changes)
    data = clusters.sample_each(3, generator=generator(), dtype=torch.float64)
    net = models.averaged_classifier(clusters)
    found = attack.minimal(net, data.x, data.y, generator=generator()).radius
    assert readings.averaged_radius(data) == pytest.approx(float(found.median()), rel=1e-3)
    if not changes:
        assert readings.averaged_radius(data) == pytest.approx(5.0, rel=0.1)


def test_sums_are_read_with_a_smaller_radius_than_the_argmax(fine):
    sums = seen("fine", "sums")
    assert sums["half_radius"] < fine["half_radius"]
    assert sums["cosine_own"] == fine["cosine_own"]  # the same network


def test_dynamics_end_where_the_weights_are():
    params = dict(get("li-2025-averaging/dynamics").trials("smoke")[0].params)
    numbers = study.dynamics_trial(params, generator()).numbers
    assert numbers["step"] == [0, 1, 10, 20, params["steps"]]
    assert numbers["own_class"][0] == 0.0
    assert numbers["own_class"][-1] > 3 * abs(numbers["other_class"][-1])
    assert numbers["rest"] <= numbers["rest_of_all"] < 1e-5
    found = study.learned(params, generator())
    unit = float(found.clusters.centers.norm(dim=1).mean())
    parts = measure.decompose(found.net.neurons, found.start, found.learn)
    own = found.signs.unsqueeze(1) == found.clusters.labels.unsqueeze(0)
    assert numbers["own_class"][-1] == pytest.approx(unit * float(parts.features[own].mean()))
    foreign = unit * float(parts.features[~own].max())
    assert numbers["other_class_most"][-1] == pytest.approx(foreign, abs=1e-9)
    # Features, noise and nothing else: what is left without the features is the noise's norm.
    moved = found.net.neurons.detach().double() - found.start.double()
    left = moved - parts.features @ found.clusters.centers
    assert numbers["noise"][-1] == pytest.approx(float(left.norm(dim=1).mean()), rel=1e-4)
    assert numbers["noise"][0] == 0.0


def test_radii_are_held_against_those_of_averages_whatever_the_norms():
    params = BASE | ATTACKS | {"labels": "binary", "reading": "binary"}
    even, uneven = (
        study.ablation_trial(params | {"norms": norms}, generator()).numbers
        for norms in ([], [0.6, 1.4, 0.6, 1.4])
    )
    assert even["over_averaged"] == pytest.approx(even["over_scale"], rel=0.1)
    assert 0.7 < even["over_averaged"] < 1.1
    assert uneven["over_averaged"] > uneven["over_scale"]


def test_votes_of_two_over_the_width_leave_the_step_in_f_as_it_is():
    record = get("li-2025-averaging/ablations")
    cases = [t.params for t in record.trials("paper", seeds=1) if "votes 2" in t.params["axis"]]
    assert [case["width"] for case in cases] == [2, 10, 50, 200]
    for case in cases:
        assert case["vote"] == 2 / case["width"]
        assert case["lr"] * case["vote"] ** 2 * case["width"] == pytest.approx(0.01)
    # One claim for each case.
    wheres = [claim.where for claim in record.claims]
    assert wheres == [
        {"axis": t.params["axis"], "at": t.params["at"]} for t in record.trials("paper", seeds=1)
    ]


def test_features_of_images_have_their_classes_as_clusters():
    trial = next(
        trial
        for trial in get("li-2025-averaging/figure-1").trials("smoke")
        if trial.params["panel"] == "CIFAR-10 centred, fine"
    )
    found = study.learned(trial.params, generator())
    assert found.clusters.labels.tolist() == [1] * 5 + [-1] * 5
    means = torch.stack([found.learn.x[found.learn.group == k].mean(0) for k in range(10)])
    torch.testing.assert_close(found.clusters.centers.float(), means, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.learn.x.mean(0), torch.zeros(64), atol=1e-5, rtol=0)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="labels must be one of"):
        seen("coarse")
    with pytest.raises(ValueError, match="reading must be one of"):
        seen("fine", "mean")


def test_images_are_read_alike_with_both_labels():
    trials = get("li-2025-averaging/figure-2").trials("smoke")
    coarse, fine = (
        dict(trial.params) | {"train_points": 400, "epochs": 5, "attacked_points": 10}
        for trial in trials
        if trial.params["panel"] == "mnist"
    )
    for params in (coarse, fine):
        numbers = finer(params | {"width": 30, "longer_points": 0}, generator()).numbers
        assert numbers["clean_accuracy"] > 0.6
        assert numbers["attacked"] == sorted(numbers["attacked"], reverse=True)
        assert 0.0 <= numbers["area"] <= 1.0
        assert len(numbers["certified"]) == len(numbers["radius"])
        assert numbers["half_radius_certified"] <= numbers["half_radius_same"] * (1 + 1e-6)
        assert "longer_share" not in numbers  # of convolutional networks alone
        assert all(math.isnan(point) for point in numbers["published_points"])  # digits: none


def test_longer_attacks_on_a_convolutional_network_are_compared():
    trial = get("li-2025-averaging/figure-2").trials("smoke")[-1]
    assert trial.params["run"] == "2-class, conv"
    numbers = finer(trial.params, generator()).numbers
    assert 0.0 < numbers["longer_share"] <= 1.0
    assert "certified" not in numbers
    none = dict(trial.params) | {"longer_points": 0}
    assert "longer_share" not in finer(none, generator()).numbers
    assert "published_points" not in numbers


def test_published_points_of_mnist_are_at_half_of_their_radii():
    trials = get("li-2025-averaging/figure-2").trials("paper", seeds=1)
    known = {
        t.params["run"]: t.params["published_points"]
        for t in trials
        if t.params["problem"] == "mnist" and "published_points" in t.params
    }
    assert list(known) == ["2-class", "10-class"]
    assert known["10-class"]["0.2"] == 0.978  # at 0.4 in [-1, 1]
    radii = next(t.params["radii"] for t in trials if t.params["problem"] == "mnist")
    assert set(known["2-class"]) <= {f"{radius:g}" for radius in radii}


def test_published_points_are_where_they_were_published():
    trial = get("li-2025-averaging/figure-2").trials("smoke")[0]
    numbers = finer(dict(trial.params), generator()).numbers
    known = dict(zip(numbers["radius"], numbers["published_points"], strict=True))
    assert (known[12.0], known[14.0]) == (1.0, 0.912)
    assert math.isnan(known[20.0])  # nothing was published
    ours = dict(zip(numbers["radius"], numbers["overstepped"], strict=True))
    gaps = [abs(ours[radius] - known[radius]) for radius in (12.0, 14.0, 16.0, 18.0)]
    assert numbers["published_gap"] == max(gaps)


def test_gradient_flow_averages_features_as_small_steps_do():
    """The network with biases and a fixed second layer, float64, from the same start."""
    clusters = OrthogonalClusters(40, 2, 2, 0.5, generator=generator())
    data = clusters.sample_each(6, generator=generator())
    data = replace(data, x=data.x.double())
    nets = [
        models.PReLUNet(
            40,
            4,
            1.0,
            hidden_bias=True,
            init=models.Blocks(1e-3, 0.0, 1.0),
            dtype=torch.float64,
            generator=generator(),
        ).freeze("votes")
        for _ in range(2)
    ]
    train.gradient_flow(nets[0], data, loss="logistic", until=0.05, tolerance=1e-4)
    train.gd(nets[1], data, loss="logistic", lr=5e-5, steps=1000)
    flow, steps = (net.neurons.detach() for net in nets)
    assert float((flow - steps).norm() / flow.norm()) < 0.01
    signs = 1 - 2 * (nets[0].votes.detach()[0] < 0).long()
    cosines = measure.cosines(flow, clusters.centers)
    own = signs.unsqueeze(1) == clusters.labels.unsqueeze(0)
    assert float(cosines[own].mean()) > 0.55
    assert float(cosines[~own].max()) < 0.1
