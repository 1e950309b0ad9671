"""PReLUClassifier() beside scikit-learn's MLPClassifier(): as accurate, and more robust."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from bench import estimator
from extremal.sklearn import PReLUClassifier
from tests.project.test_benches import stored

SETS = ("digits", "breast_cancer", "wine", "iris")
RIVALS = ("default", "wide", "p = 1")


def differences(found: list[dict], measure: str, rival: str) -> np.ndarray:
    return np.array([row["ours"][measure] - row[rival][measure] for row in found])


def test_one_split_of_each():
    with threadpool_limits(1):
        found = {f"{name}, split 0": estimator.compared(name, 5, ("default",)) for name in SETS}
    rows = list(found.values())
    lost = "\n".join(estimator.losses(found))
    print(f"ours loses in:\n{lost or 'nothing'}")
    assert differences(rows, "accuracy", "default").mean() >= -0.01, lost
    assert differences(rows, "area", "default").mean() > 0.0, lost
    digits = found["digits, split 0"]
    assert digits["ours"]["area"] > 1.2 * digits["default"]["area"]


@pytest.mark.parametrize("rival", RIVALS[:2])
def test_the_stored_bench(rival):
    bench = stored("estimator")
    splits = range(bench["settings"]["splits"])
    rows = [bench["figures"][f"{name}, split {k}"] for name in SETS for k in splits]
    for measure, least in (("accuracy", -0.01), ("area", 0.0)):
        mean = differences(rows, measure, rival).mean()
        assert mean == pytest.approx(bench["ratios"][f"our {measure} minus that of {rival}, mean"])
        assert mean >= least


def test_the_stored_list_of_losses_is_whole():
    bench = stored("estimator")
    told = bench["figures"]["losses"]
    lost = 0
    for name in SETS:
        for k in range(bench["settings"]["splits"]):
            row = bench["figures"][f"{name}, split {k}"]
            for rival in RIVALS:
                for measure in ("accuracy", "area"):
                    ours, theirs = row["ours"][measure], row[rival][measure]
                    if ours < theirs:
                        lost += 1
                        where = f"{name}, split {k}, {measure} against {rival}: "
                        assert f"{where}{ours:.4f} < {theirs:.4f}" in told
    assert len(told) == lost


@pytest.mark.parametrize("name", ["breast_cancer", "iris", "digits"])
def test_both_are_brought_over_as_the_same_classifiers(name, monkeypatch):
    """For two classes and for three: outputs of the networks are those of the estimators."""
    split = estimator._split(name, 0)
    z, _ = split.points()
    ours = PReLUClassifier(width=20, epochs=2, random_state=0).fit(split.x, split.y)
    moved = estimator._rescaled(ours.net_, split.center, split.unit)
    with torch.no_grad():
        assert moved(z).softmax(1).numpy() == pytest.approx(ours.predict_proba(split.x_test))
    center, spread = split.center + 0.5 * split.unit, 2.0 * split.unit
    theirs = MLPClassifier((7,), max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit((split.x - center) / spread, split.y)
    monkeypatch.setattr(theirs, "fit", lambda *_: theirs)
    monkeypatch.setattr(estimator, "MLPClassifier", lambda *_, **__: theirs)
    net = estimator._mlp(split, 7, 0, center, spread)
    with torch.no_grad():
        found = net(z).softmax(1).numpy()
    assert found == pytest.approx(theirs.predict_proba((split.x_test - center) / spread))
