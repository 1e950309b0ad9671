"""Figure 3: robust and non-robust features along standard and adversarial training on patches."""

from typing import Any, Literal

from extremal.experiments import Claim, Experiment, Line, Setting

_FIGURE = "Figure 3 of the talk, as a pattern; the limits are ours"
_KNOWN = "Theorem 1 of the talk: perturbations made from non-robust features"

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


_LEARNED = ("robust_feature", "dense_feature")
_ACCURACIES = ("clean", "robust", "by_trained_attack")


def _claim(
    training: str,
    text: str,
    value: str,
    published: float,
    rule: Literal["above", "below"],
    source: str = _FIGURE,
) -> Claim:
    where: dict[str, Any] = {"training": training}
    return Claim(f"{training}: {text}", value, published, 0.0, source, where, rule)


experiment = Experiment(
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
        _panel("Standard training", "standard", _LEARNED, "correlation"),
        _panel("Adversarial training", "adversarial", _LEARNED, "correlation"),
        _panel("Standard training", "standard", _ACCURACIES, "test accuracy"),
        _panel("Adversarial training", "adversarial", _ACCURACIES, "test accuracy"),
    ),
    claims=(
        _claim("standard", "clean accuracy", "clean_accuracy", 1.0, "above"),
        _claim("standard", "robust accuracy", "robust_accuracy", 0.05, "below"),
        _claim("standard", "non-robust over robust features", "dense_over_robust", 5.0, "above"),
        _claim("standard", "left by the known attack", "inside_accuracy", 0.05, "below", _KNOWN),
        _claim("standard", "left by replacing", "replaced_accuracy", 0.05, "below", _KNOWN),
        _claim("adversarial", "records in phase I", "phase_one", 1.0, "above"),
        _claim("adversarial", "clean accuracy", "clean_accuracy", 1.0, "above"),
        _claim("adversarial", "robust accuracy", "robust_accuracy", 0.9, "above"),
        _claim("adversarial", "non-robust over robust", "dense_over_robust", 1.0, "below"),
        _claim("adversarial", "left by the known attack", "inside_accuracy", 0.9, "above", _KNOWN),
        _claim("adversarial", "left by replacing", "replaced_accuracy", 0.9, "above", _KNOWN),
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
