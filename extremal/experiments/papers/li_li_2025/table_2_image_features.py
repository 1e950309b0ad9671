"""Table 2: targeted attacks through robust and non-robust features of images.

The same trials give pictures of such features, by inverting representations (`features`), and which
of them networks read along both trainings (`real-dynamics`).
"""

from typing import Any

from extremal.experiments import Experiment, ImageRows, Line, Setting
from extremal.experiments.papers.shared.claim_rows import claims

STUDY_ID = "extremal.experiments.studies.real_features:real_features"

IMAGE_SETTINGS: dict[str, Setting] = {
    "problem": Setting("cifar10", "S"),
    "classes": Setting(
        {"plane": 0, "car": 1, "cat": 3, "dog": 5}, "O", "those of the table; the talk has ten"
    ),
    "pairs": Setting([["cat", "dog"], ["dog", "cat"], ["car", "plane"], ["plane", "car"]], "S"),
    "train_each": Setting(1000, "O", "images of each class, chosen for time"),
    "test_each": Setting(100, "O", "images of each class, chosen for time"),
    "pooled": Setting(2, "O", "means over squares of 2x2 pixels: images of 16x16, for time"),
    "channels": Setting([16, 32, 64], "O", "3x3 convolutions with ReLUs; the talk names none"),
    "lr": Setting(0.002, "O", "Adam"),
    "batch": Setting(100, "O"),
    "epochs": Setting(12, "O", "chosen for time"),
    "radius": Setting(8 / 255, "O", "l-inf, in training and in all attacks; no source says"),
    "inner_steps": Setting(3, "O", "of the attack trained with, from a random start"),
    "recorded_every": Setting(2, "O", "epochs"),
    "watched_points": Setting(24, "O", "test images that are attacked at each record"),
    "watched_steps": Setting(5, "O", "of each attack at a record"),
    "attacked_points": Setting(100, "O", "test images that are attacked after training"),
    "attack_steps": Setting(30, "O", "of each attack after training"),
    "inverted_each": Setting(20, "O", "test images of each class whose features are pictured"),
    "inversion_steps": Setting(300, "O"),
    "inversion_lr": Setting(0.1, "O", "of normalised Adam, falling to zero"),
    "inversion_tolerance": Setting(0.05, "O", "of the representation's length"),
    "guided_steps": Setting(30, "O", "of RF-PGD and NRF-PGD"),
    "shown_each": Setting(2, "O", "images of each class that are drawn"),
    "seeds": Setting(3, "O"),
}
QUICK_VALUES: dict[str, Any] = {
    "problem": "digits",
    "classes": {"1": 1, "3": 3, "7": 7, "8": 8},
    "pairs": [["3", "8"], ["8", "3"], ["1", "7"], ["7", "1"]],
    "train_each": 130,
    "test_each": 40,
    "pooled": 1,
    "channels": [8, 16],
    "batch": 20,
    "epochs": 24,
    "radius": 0.15,
    "recorded_every": 4,
    "watched_points": 20,
    "attacked_points": 40,
    "inverted_each": 10,
    "inversion_steps": 200,
    "seeds": 2,
}
SMOKE_VALUES: dict[str, Any] = QUICK_VALUES | {
    "train_each": 10,
    "test_each": 6,
    "channels": [4],
    "epochs": 2,
    "recorded_every": 1,
    "watched_points": 2,
    "watched_steps": 2,
    "attacked_points": 2,
    "attack_steps": 2,
    "inverted_each": 2,
    "inversion_steps": 5,
    "guided_steps": 2,
    "seeds": 1,
}
SHARED_NOTES = (
    "Robust features are those of an adversarially trained network, non-robust ones those of a "
    "standard one. The networks that give them and those under study are four trainings, with "
    "their own starts and batches. At quick scale images are digits of 8x8 pixels and the pairs "
    "are of digits; there a representation has as many entries as an image has pixels, and keeps "
    "nearly all of it."
)

_TABLE_PERCENT = {  # in per cent, Table 2 of the talk
    "standard NRF": (71.41, 80.36, 54.08, 76.74),
    "standard RF": (11.30, 9.58, 1.24, 2.63),
    "adversarial NRF": (9.60, 15.16, 0.34, 0.40),
    "adversarial RF": (19.38, 26.00, 2.64, 1.96),
}
_TABLE_DEVIATIONS = {  # the same, of the published runs; 0.00 is less than 0.005
    "standard NRF": (1.17, 0.28, 0.99, 0.77),
    "standard RF": (0.55, 0.58, 0.10, 0.13),
    "adversarial NRF": (0.18, 0.23, 0.04, 0.005),
    "adversarial RF": (0.29, 0.67, 0.18, 0.13),
}
_PAIR_NAMES = [f"{start}→{end}" for start, end in IMAGE_SETTINGS["pairs"].value]
_ORDER_SOURCE = "Table 2 of the talk: NRF over RF on the standard network, RF over NRF on the other"
_NUMBERS_SOURCE = (
    "Table 2 of the talk, of other networks at full size; within three of its standard deviations"
)
_OURS_SOURCE = "ours: the networks under study, on test images"


def _bars(kind: str) -> Line:
    return Line(
        f"{kind.capitalize()} network",
        "pair",
        {
            f"{kind} NRF": "NRF-PGD",
            f"{kind} RF": "RF-PGD",
            f"{kind} own": "led by its own features",
        },
        "",
        "targeted success",
        styles={f"{kind} own": "dotted"},
        joined=False,
    )


table_2 = Experiment(
    name="li-li-2025/table-2",
    title="Which features do targeted attacks need?",
    source="Li & Li 2025, Table 2 of the talk",
    study=STUDY_ID,
    settings=IMAGE_SETTINGS,
    quick=QUICK_VALUES,
    smoke=SMOKE_VALUES,
    axes=(),
    columns=2,
    panels=(_bars("standard"), _bars("adversarial")),
    claims=(
        *claims(
            _OURS_SOURCE,
            {},
            ("standard network: accuracy", "standard clean", None, 0.0),
            ("standard network: left by all attacks", "standard attacked", None, 0.0),
            ("adversarial network: accuracy", "adversarial clean", None, 0.0),
            ("adversarial network: left by all attacks", "adversarial attacked", None, 0.0),
            rule="reported",
            against="question",
        ),
        *claims(
            _ORDER_SOURCE,
            {},
            ("standard: NRF minus RF, mean of pairs", "standard gain", 0.0, 0.0),
            ("adversarial: RF minus NRF, mean of pairs", "adversarial gain", 0.0, 0.0),
            rule="over",
            against="published",
        ),
        *claims(
            _ORDER_SOURCE,
            {},
            *(
                (f"standard: NRF minus RF, {pair}", f"standard gain {pair}", 0.0, 0.0)
                for pair in _PAIR_NAMES
            ),
            *(
                (f"adversarial: RF minus NRF, {pair}", f"adversarial gain {pair}", 0.0, 0.0)
                for pair in _PAIR_NAMES
            ),
            rule="over",
            scales=("paper",),
            against="published",
        ),
        *claims(
            _NUMBERS_SOURCE,
            {},
            *(
                (f"{row}-PGD, {pair}", f"{row} {pair}", value / 100, 3.0 * deviation / 100)
                for row, values in _TABLE_PERCENT.items()
                for pair, value, deviation in zip(
                    _PAIR_NAMES, values, _TABLE_DEVIATIONS[row], strict=True
                )
            ),
            scales=("paper",),
            against="published",
        ),
    ),
    notes=(
        "Success is the share, of test images that the network has right, that it takes for the "
        "target class after the attack. An order must hold in every seed, and a tie is none. "
        "RF-PGD and NRF-PGD minimise ||G(X') - G(Z)|| within the l-inf ball around X, Z a random "
        "training image of the target class, G the representation of a network that is not the "
        f"one attacked: the choice is ours. {SHARED_NOTES}"
    ),
)


_CONVERGED_SOURCE = (
    "ours: without it a picture shows the search and not the features; the limit is ours"
)
_OWN_SOURCE = "ours: how much of an image is in the picture of its features"
_ILYAS_SOURCE = "the talk's pictures, after Ilyas et al. 2019: robust features look like the image"
_GAP_CURVES = {
    "robust_features gaps": "robust features",
    "non_robust_features gaps": "non-robust features",
}

features = table_2.variant(
    "li-li-2025/features",
    title="What networks keep of an image",
    source="Li & Li 2025, robust and non-robust features in the talk",
    panels=(
        ImageRows(
            "Images and their features",
            {
                "original": "image",
                "robust_features": "robust",
                "non_robust_features": "non-robust",
            },
        ),
        Line(
            "Convergence of the inversion",
            "inversion_step",
            _GAP_CURVES,
            "step",
            "‖G(X′) − G(X)‖ / ‖G(X)‖, median",
            log="y",
        ),
    ),
    claims=(
        *claims(
            _CONVERGED_SOURCE,
            {},
            ("robust: share that converged", "robust_features converged", 0.8, 0.0),
            ("non-robust: share that converged", "non_robust_features converged", 0.8, 0.0),
            rule="above",
            against="question",
        ),
        *claims(
            _OWN_SOURCE,
            {},
            ("cosine with the image, robust", "robust_features likeness", None, 0.0),
            ("cosine with the image, non-robust", "non_robust_features likeness", None, 0.0),
            rule="reported",
            against="question",
        ),
        *claims(
            _ILYAS_SOURCE,
            {},
            ("cosine with the image, robust minus non-robust", "likeness_gain", 0.0, 0.0),
            rule="above",
            against="published",
        ),
    ),
    notes=(
        "Each picture X' minimises ||G(X') - G(X)|| from noise in the box of pixels, G the network "
        "without its last layer; converged is a gap of at most a twentieth of ||G(X)||. Cosines "
        f"are of images without their mean. {SHARED_NOTES}"
    ),
)


_SOURCE_SOURCE = "the talk's experiments on real images, as a pattern; the measure is ours"
_READING_CURVES = {
    "clean": "test images",
    "robust": "test images under all attacks",
    "robust_features": "pictures of robust features",
    "non_robust_features": "pictures of non-robust features",
}


def _panel(kind: str) -> Line:
    return Line(
        f"{kind.capitalize()} training",
        "epoch",
        {f"{kind}_{name}": label for name, label in _READING_CURVES.items()},
        "epoch",
        "accuracy",
        styles={f"{kind}_robust": "dashed"},
    )


real_dynamics = table_2.variant(
    "li-li-2025/real-dynamics",
    title="Which features of images does training learn, and when?",
    source="Li & Li 2025, the talk's experiments on real images",
    panels=(_panel("standard"), _panel("adversarial")),
    claims=claims(
        _SOURCE_SOURCE,
        {},
        *(
            (f"{text}, accuracy", name, 0.0, 0.0)
            for text, name in (
                (
                    "adversarial network: robust over non-robust pictures",
                    "adversarial: robust over non-robust",
                ),
                (
                    "non-robust pictures: standard over adversarial network",
                    "non-robust: standard over adversarial",
                ),
                (
                    "robust pictures: adversarial over standard network",
                    "robust: adversarial over standard",
                ),
            )
        ),
        rule="above",
        against="published",
    ),
    notes=(
        "Pictures of features are found by inverting the representations of two other networks "
        "(see `features`); a network that reads them, with the label of the image that they are "
        f"of, has learned such features. {SHARED_NOTES}"
    ),
)
