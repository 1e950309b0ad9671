"""Ablations: does gradient descent average features whatever the start, steps, data and width?"""

from typing import Any

from extremal.experiments import Claim, Experiment, Line, Setting
from extremal.experiments.papers.li_2025_averaging.figure_1 import SMALL, SYNTHETIC

_D = 3072
_WHAT = "theorem on feature averaging; how far it carries is the question"


def _cases(axis: str, name: str, values: list[Any], **given: Any) -> list[dict[str, Any]]:
    """One axis: all else as published; `at` is what it is drawn against."""
    return [{"axis": axis, "at": float(value), name: value, **given} for value in values]


def _norms(spread: float) -> list[float]:
    """Norms from 1 - spread to 1 + spread, in turn for both classes."""
    half = [round(1 + spread * (i - 2) / 2, 4) for i in range(5)]
    return half + half


_CASES = [
    *_cases("initialisation", "init_std", [1e-5, 1e-4, 1e-3, 1e-2, _D**-0.5, 0.1]),
    *_cases("step size", "lr", [1e-4, 1e-3, 1e-2, 1e-1]),
    *_cases("sample size", "train_each", [5, 20, 100, 200]),
    *_cases("noise", "sigma", [0.25, 1.0, 2.0, 4.0, 8.0]),
    *(
        {"axis": "unequal norms", "at": spread, "norms": _norms(spread)}
        for spread in (0.0, 0.25, 0.5, 0.75)
    ),
    *_cases("cosine of features", "cosine", [0.0, 0.1, 0.3, 0.6]),
    *_cases("width", "width", [2, 10, 50, 200]),
    {
        "axis": "as in the talk",
        "at": 1.0,
        "init_std": _D**-0.5,
        "bias_std": 1 / _D,
        "vote": 0.2,
        "lr": _D**-0.5,
    },
    {"axis": "no biases", "at": 1.0, "hidden_bias": False},
]
_AXES = list(dict.fromkeys(case["axis"] for case in _CASES))[:7]
_LOG = {"initialisation", "step size", "sample size", "noise", "width"}


def _panel(axis: str) -> Line:
    return Line(
        axis.capitalize(),
        "at",
        ("averaged_share", "decoupled_share", "over_scale"),
        axis,
        "share; radius / √(d/k)",
        where={"axis": axis},
        labels={
            "averaged_share": "averaged",
            "decoupled_share": "decoupled",
            "over_scale": "attacked radius",
        },
        styles={"over_scale": "dashed"},
        log="x" if axis in _LOG else "",
    )


def _claim(axis: str, at: float) -> Claim:
    where = {"axis": axis, "at": at}
    name = f"{axis} {at:.3g}: averages"
    return Claim(name, "averages", 1.0, 0.0, _WHAT, where, "above", scales=("paper",))


experiment = Experiment(
    name="li-2025-averaging/ablations",
    title="When does gradient descent average features?",
    source="Li, Pan, Lyu & Li 2025: what the theorem assumes, varied one by one",
    study="extremal.experiments.studies.averaging:ablation",
    settings={
        **SYNTHETIC,
        "problem": Setting("synthetic", "S"),
        "labels": Setting("binary", "S"),
        "reading": Setting("binary", "S"),
        "case": Setting(_CASES, "O", "one setting at a time; the others as in the authors' code"),
        "radii": Setting([0.0, 10.0, 14.0, 18.0, 22.0, 30.0], "O"),
        "attacked_points": Setting(100, "O"),
        "certified_points": Setting(10, "O"),
        "seeds": Setting(5, "O"),
    },
    quick={
        "dim": 1000,
        "train_each": 40,
        "test_each": 20,
        "case": [case for case in _CASES if case["axis"] != "sample size"][::2]
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
            for axis, case in {case["axis"]: case for case in _CASES}.items()
        ],
        "attacked_points": 3,
        "certified_points": 1,
        "seeds": 1,
    },
    axes=("case",),
    columns=3,
    panels=tuple(_panel(axis) for axis in _AXES),
    claims=tuple(
        _claim(case["axis"], case["at"])
        for case in _CASES
        if case["axis"] in ("initialisation", "width", "as in the talk", "no biases")
    ),
    version=2,
    notes=(
        "Averaged and decoupled shares are of the coefficients that training has added, each 1 at "
        "most; the attacked radius is the median of the strongest attack's, over sqrt(d/k). The "
        "verdict asks for own coefficients within 0.3 and 3 of each other and foreign ones below "
        "0.3, as shares of the mean own one, of every neuron: one that is silent from the start on "
        "fails it."
    ),
)
