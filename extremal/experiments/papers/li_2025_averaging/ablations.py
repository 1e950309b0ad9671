"""Ablations: does gradient descent average features whatever the start, steps, data and width?"""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting
from extremal.experiments.papers.li_2025_averaging.figure_1_feature_averaging import (
    SMALL,
    SYNTHETIC,
)

_INPUT_DIMENSIONS = 3072
_WHAT_SOURCE = "theorem on feature averaging; how far it carries is the question"
_SCALED_VOTES_AXIS = "width, votes 2/width"


def _cases(axis: str, name: str, values: list[Any], **given: Any) -> list[dict[str, Any]]:
    """One axis: all else as published; `at` is what it is drawn against."""
    return [{"axis": axis, "at": float(value), name: value, **given} for value in values]


def _norms(spread: float) -> list[float]:
    """Norms from 1 - spread to 1 + spread, in turn for both classes."""
    half = [round(1 + spread * (i - 2) / 2, 4) for i in range(5)]
    return half + half


def _scaled(width: int) -> dict[str, Any]:
    """Votes of 1/m for m neurons a side, as in the talk, and steps that are as long in f.

    One step moves f by lr vote^2 width times what does not depend on these: 0.01 as published.
    """
    vote = 2 / width
    lr = round(0.01 / (vote**2 * width), 6)
    return {"axis": _SCALED_VOTES_AXIS, "at": float(width), "width": width, "vote": vote, "lr": lr}


_TALK_SETTINGS = {
    "at": 1.0,
    "bias_std": 1 / _INPUT_DIMENSIONS,
    "vote": 0.2,
    "lr": _INPUT_DIMENSIONS**-0.5,
}
_ALL_CASES = [
    *_cases("initialisation", "init_std", [1e-5, 1e-4, 1e-3, 1e-2, _INPUT_DIMENSIONS**-0.5, 0.1]),
    *_cases("step size", "lr", [1e-4, 1e-3, 1e-2, 1e-1]),
    *_cases("sample size", "train_each", [5, 20, 100, 200]),
    *_cases("noise", "sigma", [0.25, 1.0, 2.0, 4.0, 8.0]),
    *(
        {"axis": "unequal norms", "at": spread, "norms": _norms(spread)}
        for spread in (0.0, 0.25, 0.5, 0.75)
    ),
    *_cases("cosine of features", "cosine", [0.0, 0.1, 0.3, 0.6]),
    *_cases("width, votes of 1", "width", [2, 10, 50, 200]),
    *(_scaled(width) for width in (2, 10, 50, 200)),
    {"axis": "as in the talk", "init_std": _INPUT_DIMENSIONS**-0.5, **_TALK_SETTINGS},
    {"axis": "talk, small start", "init_std": 1e-5, **_TALK_SETTINGS},
    {"axis": "no biases", "at": 1.0, "hidden_bias": False},
]
_DRAWN_AXES = list(dict.fromkeys(case["axis"] for case in _ALL_CASES))[:8]
_LOGARITHMIC_AXES = {
    "initialisation",
    "step size",
    "sample size",
    "noise",
    "width, votes of 1",
    _SCALED_VOTES_AXIS,
}
_OTHER_SCALE = {"unequal norms", "cosine of features"}  # where √(d/k) is not that of averages


def _panel(axis: str) -> Line:
    radius = "over_averaged" if axis in _OTHER_SCALE else "over_scale"
    unit = "averaged classifier's" if axis in _OTHER_SCALE else "√(d/k)"
    return Line(
        axis.capitalize(),
        "at",
        ("averaged_share", "decoupled_share", radius, "averages"),
        axis,
        f"share; radius / {unit}",
        where={"axis": axis},
        labels={
            "averaged_share": "averaged",
            "decoupled_share": "decoupled",
            "over_scale": "attacked radius",
            "over_averaged": "attacked radius",
            "averages": "verdict",
        },
        styles={"over_scale": "dashed", "over_averaged": "dashed", "averages": "dotted"},
        log="x" if axis in _LOGARITHMIC_AXES else "",
    )


def _claim(axis: str, at: float) -> Claim:
    where = {"axis": axis, "at": at}
    name = f"{axis} {at:.3g}: averages"
    return Claim(
        name,
        "averages",
        1.0,
        0.0,
        _WHAT_SOURCE,
        where,
        "above",
        scales=("paper",),
        against="question",
    )


ablations = Experiment(
    name="li-2025-averaging/ablations",
    title="When does gradient descent average features?",
    source="Li, Pan, Lyu & Li 2025: what the theorem assumes, varied one by one",
    study="extremal.experiments.studies.averaging:ablation",
    settings={
        **SYNTHETIC,
        "problem": Setting("synthetic", "S"),
        "labels": Setting("binary", "S"),
        "reading": Setting("binary", "S"),
        "case": Setting(
            _ALL_CASES, "O", "one setting at a time; the others as in the authors' code"
        ),
        "radii": Setting([0.0, 14.0, 18.0, 22.0], "O"),
        "attacked_points": Setting(100, "O"),
        "certified_points": Setting(10, "O"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "dim": 1000,
        "train_each": 40,
        "test_each": 20,
        "case": [case for case in _ALL_CASES if case["axis"] != "sample size"][::2]
        + _cases("sample size", "train_each", [5, 40]),
        "attacked_points": 30,
        "certified_points": 4,
        "seeds": 1,
    },
    smoke={
        **{name: value for name, value in SMALL.items() if name not in ("positive", "negative")},
        "positive": 5,
        "negative": 5,
        "case": [
            case | ({"train_each": 4} if axis == "sample size" else {})
            for axis, case in {case["axis"]: case for case in _ALL_CASES}.items()
            if axis in _DRAWN_AXES
        ],
        "attacked_points": 1,
        "certified_points": 0,
        "seeds": 1,
    },
    axes=("case",),
    columns=3,
    panels=tuple(_panel(axis) for axis in _DRAWN_AXES),
    claims=tuple(_claim(case["axis"], case["at"]) for case in _ALL_CASES),
    version=3,
    notes=(
        "Averaged and decoupled shares are of the coefficients that training has added, each 1 at "
        "most; the second also counts how many clusters are the largest of some neuron. The "
        "attacked radius is the median of the strongest attack's, over sqrt(d/k); for unequal "
        "norms and correlated features, where that is not the scale, over the median distance of "
        "the same points to the boundary of sum mu_+ - sum mu_-. The verdict asks for own "
        "coefficients within 0.3 and 3 of each other and foreign ones below 0.3, as shares of the "
        "mean own one, of every neuron: one that has lost some of its class's features fails it. "
        "With votes of 1 a step moves f by more the wider the network is; with votes of 2/width "
        "the step size is set so that it moves f by as much at every width."
    ),
)
