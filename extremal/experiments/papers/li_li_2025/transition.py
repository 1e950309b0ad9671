"""Transition: where adversarial training on patches shows both phases, and where it should."""

from collections.abc import Mapping
from typing import Any

from extremal.experiments import Claim, Diagram, Experiment, Setting
from extremal.experiments.papers.li_li_2025.figure_3_patches import PATCHES
from extremal.theory import patch_window

_OURS = "ours: the three inequalities of the window, on a grid fixed beforehand"
_EACH = 10  # training points of a class on the grid
_BASE = {"strength": 4.0, "radius": 0.55, "density": 25, "q": 2.0, "width": 20}

Lists = tuple[list[float], list[float]]  # the values of a diagram's rows and of its columns

_DIAGRAMS: dict[str, Lists] = {
    "strength against radius": (
        [3.0, 3.5, 4.0, 4.5, 5.0, 5.5],
        [0.35, 0.45, 0.55, 0.65, 0.75, 0.85],
    ),
    "density against radius": ([9, 16, 25, 36, 49], [0.45, 0.55, 0.65, 0.75]),
    "q against strength": ([1.5, 2.0, 2.5, 3.0], [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0]),
    "width against radius": ([1, 5, 20, 80], [0.45, 0.55, 0.6, 0.65]),
}
_QUICK: dict[str, Lists] = {
    "strength against radius": ([3.0, 4.0], [0.35, 0.55, 0.75]),
    "density against radius": ([16, 25], [0.55, 0.65]),
    "q against strength": ([2.0, 3.0], [3.0, 4.0]),
    "width against radius": ([5, 20], [0.55, 0.65]),
}
_AXES = {
    "strength": "robust coefficient α",
    "density": "non-robust patches",
    "radius": "radius ε",
    "q": "power q",
    "width": "filters of a class",
}


def _grid(diagrams: Mapping[str, Lists]) -> list[dict[str, Any]]:
    """Each setting once, with the diagrams that it is a point of, and where the window has it."""
    found: dict[tuple[float, ...], dict[str, Any]] = {}
    for diagram, (rows, columns) in diagrams.items():
        down, across = diagram.split(" against ")
        for row in rows:
            for column in columns:
                point = {**_BASE, down: row, across: column}
                case = found.setdefault(tuple(point.values()), _case(point))
                case[diagram] = True
    return list(found.values())


def _case(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point's parameters, as yet on no diagram."""
    window = patch_window(
        PATCHES["robust"].value,
        point["density"],
        point["strength"],
        sum(PATCHES["beta"].value) / 2,
        point["radius"],
        point["q"],
    )
    ends = [round(share * point["strength"], 4) for share in (0.9, 1.1)]
    side = {"inside": window.inside, "edge": window.edge}
    return {
        **point,
        "dense": point["density"],
        "alpha": ends,
        **side,
        **dict.fromkeys(_DIAGRAMS, False),
    }


_AS_FIGURE_3 = {  # the radius of the prototypes, at the sizes of figure-3; on no diagram
    **_case({**_BASE, "radius": 0.6}),
    **{name: PATCHES[name].value for name in ("train_each", "test_each", "attack_steps")},
}


def _panel(diagram: str, value: str, title: str, most: float) -> Diagram:
    down, across = diagram.split(" against ")
    return Diagram(
        title,
        across,
        down,
        value,
        _AXES[across],
        _AXES[down],
        outline="predicted",
        where={diagram: True},
        high=most,
    )


def _share(
    text: str, value: str, expected: float | None, where: Mapping[str, Any] | None = None
) -> Claim:
    """A share of the grid's trials off the edge; with nothing to expect it is only reported."""
    return Claim(
        f"{text}, with its 95 % interval",
        value,
        expected,
        0.1,
        _OURS,
        {"edge": False, "train_each": _EACH, **(where or {})},
        "near" if expected is not None else "reported",
        ("paper",),
        "share",
    )


experiment = Experiment(
    name="li-li-2025/transition",
    title="When does adversarial training turn to robust features?",
    source="Li & Li 2025: the assumptions of the talk's theorems, varied",
    study="extremal.experiments.studies.patches:window",
    version=2,
    settings={
        **PATCHES,
        "case": Setting(
            [*_grid(_DIAGRAMS), _AS_FIGURE_3],
            "O",
            "radius, strength, density, width and q, around the window",
        ),
        "training": Setting("adversarial", "S"),
        "train_each": Setting(_EACH, "O", "training points of each class"),
        "test_each": Setting(15, "O", "test points of each class"),
        "attack_steps": Setting(30, "O", "of each attack after training"),
        "recorded_every": Setting(25, "O", "epochs"),
        "recorded_also": Setting([2, 5, 10, 15, 20], "O", "epochs, for a short phase I"),
        "watched_points": Setting(9, "O", "test points that are attacked at each record"),
        "watched_steps": Setting(6, "O", "of each attack at a record"),
        "seeds": Setting(3, "O", "of each of 91 settings"),
    },
    quick={"case": _grid(_QUICK), "recorded_every": 50, "seeds": 1},
    smoke={
        "case": _grid({name: (rows[:1], columns[:1]) for name, (rows, columns) in _QUICK.items()}),
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
        for diagram in _DIAGRAMS
        for value, title, most in (
            ("both_phases", "Both phases", 1.0),
            ("robust_accuracy", "Robust accuracy", 1.0),
            ("transition", "Epoch of the transition", float(PATCHES["epochs"].value)),
        )
    ),
    claims=(
        _share("both phases, inside the window", "both_phases", 1.0, {"inside": True}),
        _share("both phases, outside the window", "both_phases", 0.0, {"inside": False}),
        *(
            _share(f"{text}{of}", value, expected, where)
            for of, where in (
                ("", {}),
                *((f", {diagram}", {diagram: True}) for diagram in _DIAGRAMS),
            )
            for text, value, expected in (
                ("share as predicted", "agrees", 1.0),
                ("share if never predicted", "never", None),
            )
        ),
        *(
            Claim(
                f"robust accuracy at radius 0.6, {text}",
                "robust_accuracy",
                None,
                0.0,
                "ours: why figure-3 has radius 0.55",
                {"radius": 0.6, "width": 20, "train_each": points},
                "reported",
                ("paper",),
            )
            for text, points in (("sizes as here", _EACH), ("sizes of figure-3", 20))
        ),
    ),
    notes=(
        "A cell is the share of seeds in which both phases came: a record after the start with "
        "clean accuracy 1 and less than 0.05 left by all attacks, and more than 0.9 left in the "
        "end. The fence is what ex.theory.patch_window says: non-robust features grow first, "
        "|J_NR| beta^q > |J_R| alpha^q; an attack turns them, 2 radius > beta; robust ones exceed "
        "what it adds to all patches, |J_R| (alpha - radius)^q > P radius^q. At ten of the "
        "grid's 90 settings the sides of an inequality are equal, and the window says neither: "
        "they are drawn outside and left out of all shares. A setting on several diagrams is run "
        "and counted once. Whoever says that both phases never come is right in the share given "
        "beside the window's. Intervals count each trial; the three seeds of a setting are not as "
        "good as three settings, so they are somewhat too narrow. The transition is the first "
        "epoch recorded from which on more than one half is left; it is empty where there is none "
        "in some seed. One more setting, on no diagram and in no share, has the radius of our "
        "prototypes at the sizes of `figure-3`."
    ),
)
