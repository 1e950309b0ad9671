"""Figure 3: robust and non-robust features along standard and adversarial training on patches.

`transition` asks where adversarial training shows both phases, and where it should.
"""

from collections.abc import Mapping
from typing import Any, Literal

from extremal.experiments import Against, Claim, Experiment, Line, ParameterHeatMap, Setting
from extremal.theory import patch_window

_FIGURE_SOURCE = "Figure 3 of the talk, as a pattern; the limits are ours"
_KNOWN_SOURCE = "Theorem 1 of the talk: perturbations made from non-robust features"

PATCHES: dict[str, Setting] = {
    "classes": Setting(3, "O", "k; no source gives sizes"),
    "dim": Setting(10, "O", "coordinates of a patch, with features along axes"),
    "robust": Setting(1, "O", "patches with the robust feature, |J_R|"),
    "dense": Setting(25, "O", "patches with the non-robust feature, |J_NR|"),
    "alpha": Setting([3.6, 4.4], "O", "robust coefficients, uniform"),
    "beta": Setting([0.9, 1.1], "O", "non-robust coefficients, uniform"),
    "noise": Setting(0.05, "O", "standard deviation"),
    "train_each": Setting(20, "O", "training points of each class"),
    "test_each": Setting(30, "O", "test points of each class"),
    "width": Setting(20, "O", "filters for each class"),
    "q": Setting(2.0, "O", "power of the smoothed ReLU"),
    "rho": Setting(5.0, "O", "where the smoothed ReLU turns linear"),
    "init_std": Setting(1e-3, "O", "of the filters"),
    "lr": Setting(0.05, "O", "full-batch gradient descent, as stated"),
    "epochs": Setting(400, "O", "the talk's transition is at about 150"),
    "radius": Setting(0.55, "O", "l-inf, in training and in attacks"),
    "inner_steps": Setting(5, "O", "of the attack trained with, from zero"),
    "inner_step": Setting(30.0, "O", "of plain gradient ascent on each point's loss"),
    "attack_steps": Setting(200, "O", "of each attack after training"),
}


def _panel(title: str, training: str, y: tuple[str, ...], ylabel: str) -> Line:
    return Line(
        title,
        "epoch",
        y,
        "epoch",
        ylabel,
        where={"training": training},
        labels={
            "robust_feature": "robust features, max ⟨w, u⟩",
            "dense_feature": "non-robust features, max ⟨w, v⟩",
            "clean": "clean",
            "robust": "under all attacks",
            "by_trained_attack": "under the attack trained with",
        },
        styles={"by_trained_attack": "dotted"},
    )


_LEARNED_CURVES = ("robust_feature", "dense_feature")
_ACCURACY_CURVES = ("clean", "robust", "by_trained_attack")


def _claim(
    training: str,
    text: str,
    value: str,
    published: float,
    rule: Literal["above", "below"],
    source: str = _FIGURE_SOURCE,
) -> Claim:
    where: dict[str, Any] = {"training": training}
    against: Against = "published" if source == _FIGURE_SOURCE else "theory"
    return Claim(f"{training}: {text}", value, published, 0.0, source, where, rule, against=against)


figure_3 = Experiment(
    name="li-li-2025/figure-3",
    title="Which features training learns, and when",
    source="Li & Li 2025, Figure 3 of the talk",
    study="extremal.experiments.studies.patches:patches",
    settings={
        **PATCHES,
        "training": Setting(["standard", "adversarial"], "S"),
        "recorded_every": Setting(10, "O", "epochs"),
        "watched_points": Setting(45, "O", "test points that are attacked at each record"),
        "watched_steps": Setting(20, "O", "of each attack at a record"),
        "seeds": Setting(10, "O"),
    },
    quick={"recorded_every": 20, "watched_points": 30, "watched_steps": 10, "seeds": 1},
    smoke={
        "epochs": 6,
        "dense": 4,
        "recorded_every": 3,
        "watched_points": 3,
        "watched_steps": 2,
        "test_each": 2,
        "attack_steps": 3,
        "seeds": 1,
    },
    axes=("training",),
    columns=2,
    panels=(
        _panel("Standard training", "standard", _LEARNED_CURVES, "correlation"),
        _panel("Adversarial training", "adversarial", _LEARNED_CURVES, "correlation"),
        _panel("Standard training", "standard", _ACCURACY_CURVES, "test accuracy"),
        _panel("Adversarial training", "adversarial", _ACCURACY_CURVES, "test accuracy"),
    ),
    claims=(
        _claim("standard", "clean accuracy", "clean_accuracy", 1.0, "above"),
        _claim("standard", "robust accuracy", "robust_accuracy", 0.05, "below"),
        _claim("standard", "non-robust over robust features", "dense_over_robust", 5.0, "above"),
        _claim(
            "standard", "left by the known attack", "inside_accuracy", 0.05, "below", _KNOWN_SOURCE
        ),
        _claim("standard", "left by replacing", "replaced_accuracy", 0.05, "below", _KNOWN_SOURCE),
        _claim("adversarial", "records in phase I", "phase_one", 1.0, "above"),
        _claim("adversarial", "clean accuracy", "clean_accuracy", 1.0, "above"),
        _claim("adversarial", "robust accuracy", "robust_accuracy", 0.9, "above"),
        _claim("adversarial", "non-robust over robust", "dense_over_robust", 1.0, "below"),
        _claim(
            "adversarial",
            "left by the known attack",
            "inside_accuracy",
            0.9,
            "above",
            _KNOWN_SOURCE,
        ),
        _claim(
            "adversarial", "left by replacing", "replaced_accuracy", 0.9, "above", _KNOWN_SOURCE
        ),
    ),
    notes=(
        "No source gives numbers: the setting is ours, within the window of three inequalities "
        "(ex.theory.patch_window). Correlations are means over classes of the largest one of a "
        "class's filters. Phase I is clean accuracy 1 with less than 0.05 left by all attacks. The "
        "known attack knows the non-robust features and no network, and stays in the ball; "
        "replacing takes all of the own feature away, which is farther than the ball allows. The "
        "attack trained with says 1 all through phase I: its steps are plain gradients, which are "
        "small while the network is, and it is no evidence of robustness. At radius 0.6, with "
        "which our prototypes showed both phases, all attacks leave less in the end: `transition` "
        "has a row of it."
    ),
)


_OURS_SOURCE = "ours: the three inequalities of the window, on a grid fixed beforehand"
_POINTS_OF_A_CLASS = 10  # training points of a class on the grid
_BASE_POINT = {"strength": 4.0, "radius": 0.55, "density": 25, "q": 2.0, "width": 20}

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
_AXIS_LABELS = {
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
                point = {**_BASE_POINT, down: row, across: column}
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
    **_case({**_BASE_POINT, "radius": 0.6}),
    **{name: PATCHES[name].value for name in ("train_each", "test_each", "attack_steps")},
}


def _map(diagram: str, value: str, title: str, most: float) -> ParameterHeatMap:
    down, across = diagram.split(" against ")
    return ParameterHeatMap(
        title,
        across,
        down,
        value,
        _AXIS_LABELS[across],
        _AXIS_LABELS[down],
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
        _OURS_SOURCE,
        {"edge": False, "train_each": _POINTS_OF_A_CLASS, **(where or {})},
        "near" if expected is not None else "reported",
        ("paper",),
        "share",
        against="question",
    )


transition = Experiment(
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
        "train_each": Setting(_POINTS_OF_A_CLASS, "O", "training points of each class"),
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
        _map(diagram, value, title, most)
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
                against="question",
            )
            for text, points in (("sizes as here", _POINTS_OF_A_CLASS), ("sizes of figure-3", 20))
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
