"""Feature learning on images: which pictures networks read along both trainings."""

from extremal.experiments import Claim, Experiment, Line
from extremal.experiments.papers.li_li_2025.table_2_image_features import (
    IMAGES,
    NOTES,
    QUICK,
    SMOKE,
    STUDY,
)

_SOURCE = "the talk's experiments on real images, as a pattern; the measure is ours"
_LABELS = {
    "clean": "test images",
    "robust": "test images under all attacks",
    "robust_features": "pictures of robust features",
    "non_robust_features": "pictures of non-robust features",
}


def _panel(kind: str) -> Line:
    return Line(
        f"{kind.capitalize()} training",
        "epoch",
        tuple(f"{kind}_{name}" for name in _LABELS),
        "epoch",
        "accuracy",
        labels={f"{kind}_{name}": label for name, label in _LABELS.items()},
        styles={f"{kind}_robust": "dashed"},
    )


experiment = Experiment(
    name="li-li-2025/real-dynamics",
    title="Which features of images does training learn, and when?",
    source="Li & Li 2025, the talk's experiments on real images",
    study=STUDY,
    settings=IMAGES,
    quick=QUICK,
    smoke=SMOKE,
    axes=(),
    columns=2,
    panels=(_panel("standard"), _panel("adversarial")),
    claims=tuple(
        Claim(f"{text}, accuracy", name, 0.0, 0.0, _SOURCE, rule="above")
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
    notes=(
        "Pictures of features are found by inverting the representations of two other networks "
        "(see `features`); a network that reads them, with the label of the image that they are "
        f"of, has learned such features. {NOTES}"
    ),
)
