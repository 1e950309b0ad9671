"""Transition: where adversarial training on patches shows both phases, and where it should."""

from typing import Any

from extremal.experiments import Claim, Diagram, Experiment, Setting
from extremal.experiments.papers.li_li_2025.figure_3 import PATCHES

_OURS = "ours: the three inequalities of the window, on a grid fixed beforehand"


def _around(middle: float) -> list[float]:
    """An interval of a tenth to both sides."""
    return [round(0.9 * middle, 4), round(1.1 * middle, 4)]


def _cases(diagram: str, rows: list[float], columns: list[float]) -> list[dict[str, Any]]:
    """A diagram's grid: its row and column are the two settings that its name gives."""
    down, across = diagram.split(" against ")
    cases = []
    for row in rows:
        for column in columns:
            given = {**_setting(down, row), **_setting(across, column)}
            cases.append({"diagram": diagram, "row": row, "column": column, **given})
    return cases


def _setting(name: str, value: float) -> dict[str, Any]:
    if name == "strength":
        return {"alpha": _around(value)}
    if name in ("density", "width"):
        return {{"density": "dense"}.get(name, name): int(value)}
    return {name: value}


_GRID = [
    *_cases(
        "strength against radius",
        [3.0, 3.5, 4.0, 4.5, 5.0, 5.5],
        [0.35, 0.45, 0.55, 0.65, 0.75, 0.85],
    ),
    *_cases("density against radius", [9, 16, 25, 36, 49], [0.45, 0.55, 0.65, 0.75]),
    *_cases("q against strength", [1.5, 2.0, 2.5, 3.0], [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0]),
    *_cases("width against radius", [1, 5, 80], [0.55]),
]
_DIAGRAMS = list(dict.fromkeys(case["diagram"] for case in _GRID))
_QUICK = {  # rows and columns of the grid
    "strength against radius": ((3.0, 4.0), (0.35, 0.55, 0.75)),
    "density against radius": ((16, 25), (0.55, 0.65)),
    "q against strength": ((2.0, 3.0), (3.0, 4.0)),
}
_AXES = {
    "strength": "robust coefficient α",
    "density": "non-robust patches",
    "radius": "radius ε",
    "q": "power q",
}


def _panel(diagram: str, value: str, title: str, most: float) -> Diagram:
    down, across = diagram.split(" against ")
    return Diagram(
        title,
        "column",
        "row",
        value,
        _AXES[across],
        _AXES[down],
        outline="predicted",
        where={"diagram": diagram},
        high=most,
    )


experiment = Experiment(
    name="li-li-2025/transition",
    title="When does adversarial training turn to robust features?",
    source="Li & Li 2025: the assumptions of the talk's theorems, varied",
    study="extremal.experiments.studies.patches:window",
    settings={
        **PATCHES,
        "case": Setting(_GRID, "O", "radius, strength, density, width and q, around the window"),
        "training": Setting("adversarial", "S"),
        "train_each": Setting(10, "O", "training points of each class"),
        "test_each": Setting(15, "O", "test points of each class"),
        "attack_steps": Setting(50, "O", "of each attack after training"),
        "recorded_every": Setting(25, "O", "epochs"),
        "watched_points": Setting(9, "O", "test points that are attacked at each record"),
        "watched_steps": Setting(10, "O", "of each attack at a record"),
        "seeds": Setting(1, "O", "of each of 87 settings"),
    },
    quick={
        "case": [
            case
            for case in _GRID
            if case["diagram"] in _QUICK
            and case["row"] in _QUICK[case["diagram"]][0]
            and case["column"] in _QUICK[case["diagram"]][1]
        ],
        "attack_steps": 30,
        "recorded_every": 50,
        "seeds": 1,
    },
    smoke={
        "case": [
            next(case for case in _GRID if case["diagram"] == diagram) for diagram in _DIAGRAMS
        ],
        "epochs": 4,
        "recorded_every": 2,
        "watched_points": 3,
        "watched_steps": 2,
        "test_each": 2,
        "attack_steps": 3,
        "seeds": 1,
    },
    axes=("case",),
    columns=3,
    panels=tuple(
        _panel(diagram, value, title, most)
        for value, title, most in (
            ("both_phases", "Both phases", 1.0),
            ("robust_accuracy", "Robust accuracy", 1.0),
            ("transition", "Epoch of the transition", float(PATCHES["epochs"].value)),
        )
        for diagram in _DIAGRAMS[:3]
    ),
    claims=tuple(
        Claim(
            f"share as predicted{of}, with its 95 % interval",
            "agrees",
            1.0,
            0.1,
            _OURS,
            where,
            interval="share",
            scales=("paper",),
        )
        for of, where in (
            ("", {}),
            *((f", {diagram}", {"diagram": diagram}) for diagram in _DIAGRAMS),
        )
    ),
    notes=(
        "A cell is the share of seeds in which both phases came: a record with clean accuracy 1 "
        "and less than 0.05 left by all attacks, and more than 0.9 left in the end. The fence is "
        "what ex.theory.patch_window says: non-robust features grow first, |J_NR| beta^q > "
        "|J_R| alpha^q; an attack turns them, 2 radius > beta; robust ones exceed what it adds "
        "to all patches, |J_R| (alpha - radius)^q > P radius^q. The transition is the first epoch "
        "recorded from which on more than one half is left; it is empty where there is none in "
        "some seed. Widths of 1, 5 and 80 filters a "
        "class are run at radius 0.55 and counted in the shares."
    ),
)
