"""The studies of feature averaging and of finer labels."""

from dataclasses import replace

import pytest
import torch

from extremal import measure, models, train
from extremal.data import OrthogonalClusters
from extremal.evaluate import BracketViolation
from extremal.experiments import get
from extremal.experiments.studies import averaging as study
from extremal.experiments.studies import readings
from extremal.experiments.studies.finer import finer

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
    return study.averaging(params, generator()).numbers


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


def test_sums_are_read_with_a_smaller_radius_than_the_argmax(fine):
    sums = seen("fine", "sums")
    assert sums["half_radius"] < fine["half_radius"]
    assert sums["cosine_own"] == fine["cosine_own"]  # the same network


def test_a_certificate_above_an_attack_is_an_error(monkeypatch):
    wrong = torch.full((12,), 50.0, dtype=torch.float64)
    monkeypatch.setattr(readings.certify, "radius", lambda *args, **kwargs: wrong)
    with pytest.raises(BracketViolation, match="binary"):
        seen("binary")


def test_dynamics_end_where_the_weights_are():
    params = dict(get("li-2025-averaging/dynamics").trials("smoke")[0].params)
    numbers = study.dynamics(params, generator()).numbers
    assert numbers["step"] == [0, 1, 10, 20, params["steps"]]
    assert numbers["own_class"][0] == 0.0
    assert numbers["own_class"][-1] > 3 * abs(numbers["other_class"][-1])
    assert numbers["rest"] <= numbers["rest_of_all"] < 1e-5
    found = study.learned(params, generator())
    unit = float(found.clusters.centers.norm(dim=1).mean())
    parts = measure.decompose(found.net.neurons, found.start, found.learn)
    own = found.signs.unsqueeze(1) == found.clusters.labels.unsqueeze(0)
    assert numbers["own_class"][-1] == pytest.approx(unit * float(parts.features[own].mean()))


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
        numbers = finer(params | {"width": 30}, generator()).numbers
        assert numbers["clean_accuracy"] > 0.6
        assert numbers["attacked"] == sorted(numbers["attacked"], reverse=True)
        assert 0.0 <= numbers["area"] <= 1.0
        assert len(numbers["certified"]) == len(numbers["radius"])


def test_published_points_are_where_they_were_published():
    trial = get("li-2025-averaging/figure-2").trials("smoke")[0]
    numbers = finer(dict(trial.params), generator()).numbers
    known = dict(zip(numbers["radius"], numbers["published_points"], strict=True))
    assert (known[12.0], known[14.0]) == (1.0, 0.912)
    assert known[20.0] != known[20.0]  # nan: nothing was published


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
