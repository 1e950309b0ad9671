"""The classifier in scikit-learn's form: its contract, its units, and that radii hold."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from extremal import attack, certify
from extremal.attack import minimal
from extremal.models import Grouped, load_with_note, save
from extremal.sklearn import PReLUClassifier, RobustScoreWarning


def small(**settings) -> PReLUClassifier:
    return PReLUClassifier(**({"width": 20, "epochs": 100, "random_state": 0} | settings))


@pytest.fixture(scope="module")
def blobs():
    x, y = make_blobs(90, 5, centers=3, cluster_std=1.0, random_state=1)
    return x, np.array(["left", "middle", "right"])[y]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_whole_contract_of_scikit_learn():
    check_estimator(PReLUClassifier())


def test_labels_of_any_kind_and_probabilities(blobs):
    x, y = blobs
    model = small().fit(x, y)
    assert model.classes_.tolist() == ["left", "middle", "right"]
    assert model.score(x, y) > 0.95
    chances = model.predict_proba(x)
    assert chances.sum(1) == pytest.approx(1.0)
    assert (model.classes_[chances.argmax(1)] == model.predict(x)).all()
    two = np.isin(y, ["left", "right"])
    pair = small().fit(x[two], y[two])
    assert ((pair.decision_function(x[two]) > 0) == (pair.predict(x[two]) == "right")).all()


def test_the_same_seed_gives_the_same_network(blobs):
    first, second, other = (
        small(random_state=k).fit(*blobs).predict_proba(blobs[0]) for k in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_radii_are_in_the_users_units(blobs):
    """Features in other units, one by a power of two each: the same network, other radii."""
    x, y = blobs
    plain, moved = small().fit(x, y), small().fit(4.0 * x + 8.0, y)
    assert moved.predict_proba(4.0 * x + 8.0) == pytest.approx(plain.predict_proba(x), abs=1e-4)
    few = x[:10]
    radii = (
        plain.certified_radius(few, effort="fast"),
        moved.certified_radius(4.0 * few + 8.0, effort="fast"),
    )
    assert radii[1] == pytest.approx(4.0 * radii[0], rel=1e-2)


def test_a_feature_that_does_not_vary_is_left_out(blobs):
    x, y = blobs
    wide = np.column_stack([x, np.full(len(x), 3.0)])
    model = small().fit(wide, y)
    wide[:, -1] = 99.0
    assert model.score(wide, y) > 0.95


def test_pixels_keep_their_unit_and_other_features_get_one_of_their_own(blobs):
    """A pixel that is nearly always 0 is not blown up; in a table the same column is."""
    g = np.random.RandomState(0)
    pixels = g.randint(0, 17, (60, 6)).astype(float)
    pixels[:, 0] = 0.0
    pixels[:2, 0] = 1.0
    y = (pixels[:, 1] > 8).astype(int)
    table = pixels * [1.0, 1.0, 10.0, 100.0, 0.1, 0.01]
    for x, alike in ((pixels, "one"), (table, "each"), (blobs[0][:60], "each")):
        auto, told, other = (
            small(scale=scale, epochs=2).fit(x, y).predict_proba(x)
            for scale in ("auto", alike, {"one": "each", "each": "one"}[alike])
        )
        assert np.array_equal(auto, told)
        assert not np.allclose(auto, other)


def test_pixels_are_normalised_and_features_that_do_not_vary_have_no_weight():
    g = np.random.RandomState(0)
    pixels = g.randint(0, 17, (60, 6)).astype(float)
    pixels[:, 5] = 4.0
    y = (pixels[:, 1] > 8).astype(int)
    model = small(epochs=2).fit(pixels, y)
    assert (model.scale_, model.net_.preparation.normalize) == ("one", pytest.approx(2 / 3))
    assert not model.net_.neurons[:, 5].any()
    z = (pixels - pixels.mean(0)) * model.net_.preparation.scale
    assert (z[:, :5] ** 2).mean() == pytest.approx(1.0)


def test_columns_of_another_size_keep_a_table_from_being_pixels():
    g = np.random.RandomState(0)
    x = np.column_stack([g.uniform(0, 1000, (200, 3)), g.uniform(0, 1, (200, 2))])
    model = small().fit(x, x[:, 4] > 0.5)
    assert model.scale_ == "each"
    assert model.score(x, x[:, 4] > 0.5) > 0.9


def test_no_attack_breaks_a_certified_radius(blobs):
    model = small(p=2.5).fit(*blobs)
    x, y = (part[:8] for part in blobs)
    right = model.predict(x) == y
    labels = torch.from_numpy(np.searchsorted(model.classes_, y))
    upper = minimal(model.net_, torch.from_numpy(x), labels, generator=torch.Generator()).radius
    lower = model.certified_radius(x)
    assert (lower[right] <= upper.numpy()[right]).all()
    assert np.median(lower[right] / upper.numpy()[right]) > 0.95
    result = model.robustness(x, y)
    radius = float(np.median(lower))
    assert radius > 0.0
    proved = model.robust_score(x, y, radius, certified=True)
    assert proved >= float((lower[right] >= radius).sum()) / len(x)
    fast = model.robust_score(x, y, radius, certified=True, effort="fast")
    with pytest.warns(RobustScoreWarning, match="plain-steps-miss"):
        broken = model.robust_score(x, y, radius)
    assert fast <= proved <= broken + 1e-12 <= model.score(x, y) + 1e-12
    assert model.robust_score(x, y, 0.0, certified=True) == model.score(x, y)
    assert float(result.curve([radius]).certified) <= proved


@pytest.mark.parametrize(
    ("radii", "radius", "chosen"),
    [
        ((1.0, 2.0), 1.5, 3.0),
        ((2.0, 1.0), 1.5, 1.0),
        ((2.0, 1.0), 0.5, 1.0),
        ((2.0, 1.0), None, 1.0),
    ],
)
def test_auto_takes_the_power_that_certifies_most(blobs, monkeypatch, radii, radius, chosen):
    """With radii that are given for p = 1 and 3; equals go to the smaller power."""
    given_radii(monkeypatch, {power: [told] for power, told in zip((1.0, 3.0), radii, strict=True)})
    model = small(p="auto", powers=(3.0, 1.0), radius=radius, epochs=2).fit(*blobs)
    assert model.p_ == model.net_.p == chosen


@pytest.mark.parametrize(
    ("first", "radius"),
    [([1.0, 0.0], 0.0), ([0.0, 0.0], None)],  # half of the points are right for p = 1, or none
)
def test_auto_does_not_count_points_that_are_wrong(blobs, monkeypatch, first, radius):
    given_radii(monkeypatch, {1.0: first, 3.0: [0.5, 0.5]})
    model = small(p="auto", powers=(1.0, 3.0), radius=radius, epochs=2).fit(*blobs)
    assert model.p_ == 3.0


def given_radii(monkeypatch, told):
    """Let networks have these radii, over and over, attacked and certified; 0 where wrong."""

    def radii(net, x):
        return torch.tensor(told[net.p]).repeat(len(x))[: len(x)]

    def holds(net, x, y, radius):
        return (radii(net, x) > 0) & (radii(net, x) >= radius)

    def shortest(net, x, y):
        return SimpleNamespace(radius=radii(net, x))

    monkeypatch.setattr(certify, "holds", holds)
    monkeypatch.setattr(attack, "shortest", shortest)


def test_auto_certifies_what_it_compares(blobs):
    x, y = blobs
    assert small(p="auto", powers=(1.0, 2.0), width=8).fit(x[:20], y[:20]).p_ in (1.0, 2.0)


def test_a_saved_classifier_is_the_same(blobs, tmp_path):
    x, y = blobs
    model = small().fit(x, y)
    model.save(tmp_path / "model.safetensors")
    again = PReLUClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.get_params() | {"powers": (1.0, 2.0, 3.0, 4.0)} == model.get_params()


OTHERS = (
    "",
    "trained on Monday",
    "[1, 2]",
    '{"kind": "head"}',
    '{"classifier": {"q": 3}}',
    "grouped",
)


@pytest.mark.parametrize("note", OTHERS)
def test_other_model_files_hold_no_classifier(blobs, tmp_path, note):
    model = small(epochs=2).fit(*blobs)
    path = tmp_path / "net.safetensors"
    if note == "grouped":
        model.save(path)
        save(Grouped(model.net_, torch.tensor([0, 0, 1])), path, note=load_with_note(path)[1])
    else:
        save(model.net_, path, note=note)
    with pytest.raises(ValueError, match="path must hold a classifier that `save` wrote, got"):
        PReLUClassifier.load(path)


def test_labels_and_settings_of_other_libraries_are_saved(blobs, tmp_path):
    x, y = blobs
    given = {"width": np.int64(8), "epochs": np.int64(3), "powers": [np.int64(1), 2.0], "p": "auto"}
    model = PReLUClassifier(**given, random_state=0).fit(x[:40], y[:40].astype(object))
    model.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    model.save(tmp_path / "model.safetensors")
    again = PReLUClassifier.load(tmp_path / "model.safetensors")
    assert again.get_params()["width"] == again.net_.width == 8
    assert (again.epochs, again.powers, again.p, again.p_) == (3, [1, 2.0], "auto", model.p_)
    assert torch.equal(again.net_.neurons, model.net_.neurons)
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert again.scale_ == model.scale_
    odd = PReLUClassifier(width=4, epochs=1).fit(x[:40], y[:40].astype(object))
    odd.classes_ = np.array([1, "two", None], dtype=object)
    with pytest.raises(ValueError, match="classes_ must be numbers or strings"):
        odd.save(tmp_path / "odd.safetensors")


def test_pipelines_and_searches():
    x, y = load_iris(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), small()), x, y, cv=3)
    assert scores.mean() > 0.9
    search = GridSearchCV(small(epochs=20), {"p": [1.0, 3.0]}, cv=2).fit(x, y)
    assert search.best_params_["p"] in (1.0, 3.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p": 0.5}, "p must be"),
        ({"p": "most"}, "p must be"),
        ({"width": 0}, "width must be"),
        ({"epochs": 1.5}, "epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"lr": 0.0}, "lr must be"),
        ({"scale": "some"}, "scale must be one of 'auto', 'each', 'one', 'none'"),
        ({"powers": ()}, "powers must hold at least one power"),
        ({"radius": -1.0}, "radius must be"),
    ],
)
def test_bad_settings_are_named(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings).fit(*blobs)


def test_bad_calls_are_named(blobs):
    x, y = blobs
    model = small().fit(x, y)
    with pytest.raises(ValueError, match="y must hold labels that fit saw"):
        model.robust_score(x[:2], ["left", "up"], 0.1)
    with pytest.raises(TypeError, match=r"every point has the same weight.*, got sample_weight"):
        model.fit(x, y, sample_weight=np.ones(len(x)))
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        small().fit(x[:3], ["left"] * 3)
