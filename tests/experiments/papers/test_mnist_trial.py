"""The study of images: its splits, its three ways to say how robust a network is, its panels."""

import pytest
import torch

from extremal import data
from extremal.attack import accuracy_curve
from extremal.data import Dataset, OrthonormalMixture
from extremal.evaluate import BracketViolation
from extremal.experiments.papers.min_vidal_2024 import mnist_trial as images
from extremal.experiments.papers.shared import robust_numbers as robust
from extremal.models import average_classifier, subclass_classifier

MIXTURE = OrthonormalMixture(12, 3, 2, spread=0.1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def points():
    clean = MIXTURE.sample(30, generator=seeded())
    wrong = Dataset(clean.x[:3], -clean.y[:3])
    return Dataset(torch.cat([wrong.x, clean.x]).double(), torch.cat([wrong.y, clean.y]))


@pytest.fixture(scope="module")
def found(points):
    return robust.accuracy_by_attack_and_proof(
        subclass_classifier(MIXTURE, 3).double(),
        points,
        [0.75, 0.5, 0.65],
        norm="l2",
        steps=20,
        certified=20,
        generator=seeded(),
    )


def test_the_strongest_attack_meets_what_apgd_leaves(found, points):
    assert found.radii == [0.0, 0.5, 0.65, 0.75]
    assert (found.attacked <= found.apgd).all()
    net = subclass_classifier(MIXTURE, 3).double()
    alone = accuracy_curve(net, points, found.radii, generator=seeded())
    curves = found.curves()
    assert curves["attacked"] == pytest.approx(alone.accuracy.tolist())
    assert curves["attacked"][0] == pytest.approx(30 / 33)


def test_a_misclassified_point_has_radius_zero(found):
    for way in (found.apgd, found.attacked, found.certified):
        assert (way[:3] == 0).all()
        assert (way[3:] > 0).all()


def test_certificates_are_below_attacks_on_the_same_points(found):
    curves = found.curves()
    assert len(found.certified) == 20
    pairs = zip(curves["certified"], curves["attacked_few"], strict=True)
    assert all(held <= left for held, left in pairs)
    assert curves["certified"][1] == pytest.approx(17 / 20)  # F^(3) holds at 0.5


def test_no_certificates_where_none_are_asked_for(points):
    net = average_classifier(MIXTURE).double()
    found = robust.accuracy_by_attack_and_proof(
        net, points, [0.1], norm="linf", steps=5, certified=0, generator=seeded()
    )
    assert set(found.curves()) == {"apgd", "attacked"}


def test_a_certificate_that_an_attack_breaks_is_an_error(points, monkeypatch):
    class Wrong:
        radius = torch.full((20,), 2.0, dtype=torch.float64)

    monkeypatch.setattr(robust.certify, "certificate", lambda *a, **k: Wrong)
    net = average_classifier(MIXTURE).double()
    with pytest.raises(BracketViolation):
        robust.accuracy_by_attack_and_proof(
            net, points, [0.5], norm="l2", steps=5, certified=20, generator=seeded()
        )


def test_the_area_is_the_mean_of_a_curve():
    assert robust.mean_over_radii([0.0, 1.0, 3.0], [1.0, 0.5, 0.0]) == pytest.approx(
        (0.75 + 0.5) / 3
    )
    assert robust.mean_over_radii([0.0, 0.2], [0.4, 0.4]) == pytest.approx(0.4)


def pictures(count):
    """Two pixels k/255, labels 0..9 in turn."""
    y = torch.arange(count) % 10
    x = torch.stack([y, torch.arange(count) % 256], 1) / 255.0
    return Dataset(x, y, box=(0.0, 1.0))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(data, "load", lambda name: (pictures(60_000), pictures(20)))


def test_the_published_split_holds_out_training_images(fake):
    learn, test, official = images._split(
        {"dataset": "mnist", "split": "published", "labels": "class"}
    )
    assert (len(learn), len(test), len(official)) == (50_000, 10_000, 20)
    for part in (learn, test, official):
        assert torch.equal((part.x * 256).round(), part.x * 256)
    assert torch.equal(official.x[:, 0] * 256, official.y.float())


def test_the_official_split_is_the_data_sets_own(fake):
    learn, test, official = images._split(
        {"dataset": "mnist", "split": "official", "labels": "parity"}
    )
    assert (len(learn), len(test)) == (60_000, 20)
    assert official is None
    assert torch.equal(test.y, torch.arange(20) % 2)
    assert torch.equal(test.group, torch.arange(20) % 10)


@pytest.mark.parametrize(("name", "value"), [("split", "random"), ("labels", "colour")])
def test_an_unknown_split_or_labelling_is_refused(name, value):
    good = {"dataset": "digits", "split": "official", "labels": "class"}
    with pytest.raises(ValueError, match=name):
        images._split({**good, name: value})


def test_correlations_are_sorted_by_class():
    x = torch.eye(3).repeat(4, 1)
    y = torch.arange(12) % 3
    learn = Dataset(x, y, group=y)
    numbers, arrays = images._correlations(learn, {"shown_points": 2})
    cosines = arrays["cosines"]
    assert cosines.shape == (6, 6)
    same = torch.block_diag(*[torch.ones(2, 2)] * 3).bool()
    assert cosines[same] == pytest.approx(1.0)
    assert cosines[~same] == pytest.approx(-0.5)
    assert numbers["contrast"] == pytest.approx(1.5)
