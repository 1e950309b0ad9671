"""Dynamics: coefficients of the weights on features along training, binary and fine labels."""

from extremal.experiments import Claim, Experiment, Line, Setting
from extremal.experiments.papers.li_2025_averaging.figure_1_feature_averaging import (
    SMALL,
    SYNTHETIC,
)

_LEMMA = "Lemma on weight decomposition, talk: weights move in the span of features and noise"
_THEOREM = "theorems of the talk, at the last step"
_LABELS = {
    "own_class": "own class, mean",
    "own_class_least": "own class, least",
    "own_class_most": "own class, largest",
    "other_class": "other class, mean",
    "other_class_most": "other class, largest",
    "own": "own cluster",
    "same_class": "others of its class",
    "noise": "noise, norm",
}


def _panel(title: str, labels: str, names: tuple[str, ...]) -> Line:
    return Line(
        title,
        "step",
        names,
        "step",
        "coefficient, times √d",
        where={"labels": labels},
        labels=_LABELS,
        styles={
            "own_class_least": "dashed",
            "own_class_most": "dashed",
            "other_class_most": "dashed",
            "noise": "dotted",
        },
    )


experiment = Experiment(
    name="li-2025-averaging/dynamics",
    title="Coefficients on features along training",
    source="Li, Pan, Lyu & Li 2025: Lemma and theorems of the talk",
    study="extremal.experiments.studies.averaging:dynamics",
    settings={
        **SYNTHETIC,
        "problem": Setting("synthetic", "S"),
        "labels": Setting(["binary", "fine"], "S"),
        "shown_steps": Setting([1, 2, 3, 4, 5, 7, *range(10, 100, 5)], "O"),
        "seeds": Setting(10, "O"),
    },
    quick={"dim": 1000, "train_each": 40, "seeds": 2},
    smoke={**SMALL, "shown_steps": [1, 10, 20], "seeds": 1},
    axes=("labels",),
    columns=2,
    panels=(
        _panel(
            "Binary labels",
            "binary",
            (
                "own_class",
                "own_class_least",
                "own_class_most",
                "other_class",
                "other_class_most",
                "noise",
            ),
        ),
        _panel(
            "Fine labels",
            "fine",
            ("own", "same_class", "other_class", "other_class_most", "noise"),
        ),
        Line("Loss", "step", ("losses",), "step", "training loss", by="labels"),
    ),
    claims=(
        Claim(
            "share that nothing explains",
            "rest_of_all",
            0.0,
            1e-5,
            _LEMMA,
            rule="below",
        ),
        Claim("binary: averages", "averages", 1.0, 0.0, _THEOREM, {"labels": "binary"}, "above"),
        Claim("fine: averages", "averages", 0.0, 0.0, _THEOREM, {"labels": "fine"}, "below"),
        Claim("fine: decouples", "decouples", 1.0, 0.0, _THEOREM, {"labels": "fine"}, "above"),
    ),
    version=3,
    notes=(
        "Networks are trained in float32, so that a share of 1e-7 or so is rounding; in float64 "
        "the decomposition is exact to 1e-8 (tests/measure/test_decomposition.py). Noise has small "
        "coefficients on each of many points: the norm of what they add to a weight is drawn, the "
        "mean over neurons, in the same units as a coefficient times its feature's norm. The "
        "theorem bounds foreign coefficients from above: the largest is drawn with its sign."
    ),
)
