"""Pictures of images and of their robust and non-robust features, by inverting representations."""

from extremal.experiments import Claim, Experiment, Line, Pictures
from extremal.experiments.papers.li_li_2025.table_2_image_features import (
    IMAGES,
    NOTES,
    QUICK,
    SMOKE,
    STUDY,
)

_OURS = "ours: without it a picture shows the search and not the features; the limit is ours"
_OWN = "ours: how much of an image is in the picture of its features"
_ILYAS = "the talk's pictures, after Ilyas et al. 2019: robust features look like the image"
_LABELS = {
    "robust_features gaps": "robust features",
    "non_robust_features gaps": "non-robust features",
}

experiment = Experiment(
    name="li-li-2025/features",
    title="What networks keep of an image",
    source="Li & Li 2025, robust and non-robust features in the talk",
    study=STUDY,
    settings=IMAGES,
    quick=QUICK,
    smoke=SMOKE,
    axes=(),
    columns=2,
    panels=(
        Pictures(
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
            tuple(_LABELS),
            "step",
            "‖G(X′) − G(X)‖ / ‖G(X)‖, median",
            labels=_LABELS,
            log="y",
        ),
    ),
    claims=(
        *(
            Claim(
                f"{text}: share that converged", f"{name} converged", 0.8, 0.0, _OURS, rule="above"
            )
            for name, text in (("robust_features", "robust"), ("non_robust_features", "non-robust"))
        ),
        *(
            Claim(
                f"cosine with the image, {text}",
                f"{name} likeness",
                None,
                0.0,
                _OWN,
                rule="reported",
            )
            for name, text in (("robust_features", "robust"), ("non_robust_features", "non-robust"))
        ),
        Claim(
            "cosine with the image, robust minus non-robust",
            "likeness_gain",
            0.0,
            0.0,
            _ILYAS,
            rule="above",
        ),
    ),
    notes=(
        "Each picture X' minimises ||G(X') - G(X)|| from noise in the box of pixels, G the network "
        "without its last layer; converged is a gap of at most a twentieth of ||G(X)||. Cosines "
        f"are of images without their mean. {NOTES}"
    ),
)
