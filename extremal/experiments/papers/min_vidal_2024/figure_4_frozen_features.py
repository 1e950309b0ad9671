"""Figure 4: classes in groups, told apart by features of a frozen network.

On Caltech256 through a ResNet-152 as published, and on CIFAR-10, whose images and extractor can be
had by anyone.
"""

from dataclasses import replace

from extremal.experiments import Against, ArrayHeatMap, Claim, Experiment, Line, Setting
from extremal.experiments.papers.shared.claim_rows import claims, learning_curves, rises_with_p

_ACCURACY_CURVES = {
    "robust_accuracy": "attacked",
    "robust_accuracy_apgd": "APGD-CE alone",
    "certified_accuracy": "certified",
}
THREE_WAYS = (
    "Robust accuracy is given three ways: under APGD-CE alone, under all attacks, and "
    "certified. A mean is over all radii. Certificates are linear bounds within the box, looser "
    "the larger p is. At smoke and quick scale the features are the pixels of scikit-learn's "
    "digits, which need no download, in two groups, even and odd."
)


def _said_of_larger_p(source: str, against: Against) -> tuple[Claim, ...]:
    """What Section 5.2.2 says of larger p, as claims whose sources begin with `source`."""
    more_robust = f"{source}: more robust when p gets larger"
    return (
        *claims(
            f"{source}: features of a class are clustered; > 0",
            {},
            ("cosine within classes minus between", "contrast", 0.0, 0.0),
            rule="above",
            against=against,
        ),
        *rises_with_p(
            "stable rank",
            "final_stable_rank",
            f"{source}, panel c of Figure 4",
            3.0,
            over=1.0,
            against=against,
        ),
        *rises_with_p(
            "test accuracy",
            "final_test_accuracy",
            f"{source}: higher test accuracy when p gets larger",
            3.0,
            over=1.0,
            against=against,
        ),
        *rises_with_p(
            "mean APGD-CE accuracy",
            "robust_accuracy_apgd_mean",
            more_robust,
            2.0,
            3.0,
            4.0,
            against=against,
        ),
        *rises_with_p(
            "mean attacked accuracy",
            "robust_accuracy_mean",
            f"{more_robust}; ours: all attacks",
            2.0,
            3.0,
            4.0,
            against="question",
        ),
    )


figure_4 = Experiment(
    name="min-vidal-2024/figure-4",
    title="Figure 4: Caltech256 in ten groups, on features of a frozen ResNet-152",
    source="Min & Vidal 2024, Figure 4 and Section 5.2.2",
    study="extremal.experiments.studies.features:features",
    settings={
        "source": Setting("caltech256", "S", "Section 5.2.2: 256 classes, so without clutter"),
        "blocks": Setting([3, 8, 36, 3], "S", "ResNet-152, the layer before its classifier"),
        "image_size": Setting(224, "O", "the middle of images whose shorter side is 256"),
        "interpolation": Setting("bilinear", "O", "of the resizing, as torchvision does it"),
        "groups": Setting(10, "S", "superclasses; class index mod 10 in the authors' code"),
        "train_share": Setting(0.8, "A", "that each seed draws it anew is ours"),
        "box": Setting(
            "training",
            "O",
            "one affine map, of the training features' least and largest value to 0 and 1; test "
            "features are clipped; that features are rescaled to a box is the authors' code's",
        ),
        "p": Setting([1.0, 2.0, 3.0, 4.0], "O", "as on MNIST"),
        "seeds": Setting(10, "O", "repetitions, as in Figure 3"),
        "width": Setting(2000, "S", "h, Section 5.2.2"),
        "normalize": Setting(
            "power",
            "O",
            "activations / ||x - c||^(p-1), as the authors' code does on MNIST; Section 5.2.2: "
            "centred and normalised, same as MNIST",
        ),
        "lr": Setting(1e-3, "O", "of Adam, as in the authors' code for MNIST"),
        "batch": Setting(1000, "S", "Section 5.2.2: trained exactly as on MNIST, 5.2.1"),
        "epochs": Setting(50, "S", "Section 5.2.2: trained exactly as on MNIST, 5.2.1"),
        "recorded": Setting([1, 2, 3, 5, 10, 15, 20, 30, 40], "O", "epochs, beside first and last"),
        "rank_points": Setting(24_000, "O", "of the stable rank: all that train, as in Figure 3"),
        "radii": Setting(
            [round(0.1 * i / 14, 5) for i in range(15)], "A", "15 from 0 to 0.1, in l-inf"
        ),
        "attacked_points": Setting(500, "O", "test points, attacked within the box"),
        "certified_points": Setting(500, "O", "of them with certificates"),
        "apgd_steps": Setting(100, "O", "of APGD-CE, one random start, as on MNIST"),
        "shown_classes": Setting(10, "O", "in panel a"),
        "shown_points": Setting(10, "O", "of each class in panel a"),
    },
    quick={
        "source": "digits",
        "groups": 2,
        "seeds": 2,
        "width": 500,
        "batch": 100,
        "recorded": [1, 2, 5, 10, 20, 30],
        "rank_points": 1000,
        "radii": [round(0.2 * i / 10, 2) for i in range(11)],
        "attacked_points": 100,
        "certified_points": 100,
    },
    smoke={
        "source": "digits",
        "groups": 2,
        "p": [1.0, 3.0],
        "seeds": 1,
        "width": 60,
        "batch": 100,
        "epochs": 8,
        "recorded": [1, 4],
        "rank_points": 200,
        "radii": [0.0, 0.1, 0.2],
        "attacked_points": 20,
        "certified_points": 20,
        "apgd_steps": 20,
        "shown_points": 3,
    },
    axes=("p",),
    columns=2,
    panels=(
        ArrayHeatMap(
            "Cosines of centred features", "cosines", "point, by class", "point, by class"
        ),
        *learning_curves("Stable rank of the hidden values", "stable rank"),
        Line(
            "Robust accuracy against l-inf radius",
            "radius",
            _ACCURACY_CURVES,
            "attack radius",
            "robust accuracy",
            by="p",
            styles={"certified_accuracy": "dashed", "robust_accuracy_apgd": "dotted"},
        ),
    ),
    claims=_said_of_larger_p("Section 5.2.2", "published"),
    notes=(
        "The images are the user's. The folders caltech256 below EXTREMAL_DATA and in the cache "
        "are searched for caltech256-resnet152.safetensors, x (n, 2048) and y (n,), or else for "
        "the class folders and for torchvision's resnet152-*.pth (or .safetensors), which may lie "
        "apart. Features are made once and kept; a run that was stopped goes on, and --jobs 1 "
        "keeps two trials from making the same ones. " + THREE_WAYS
    ),
)


_CALTECH_SETTINGS = ("source", "blocks", "image_size", "interpolation")

figure_4_cifar10 = replace(
    figure_4,
    name="min-vidal-2024/figure-4-cifar10",
    title="Figure 4 on CIFAR-10: features of a frozen EfficientNet-Lite0, two groups of classes",
    source="ours, after Min & Vidal 2024, Section 5.2.2; data and extractor are other ones",
    settings={
        "source": Setting("cifar10", "O", "through EfficientNet-Lite0; the paper has Caltech256"),
        "images": Setting(5000, "O", "the first of CIFAR-10's training images"),
        "image_size": Setting(160, "O", "to which the extractor resizes them, bilinear"),
        **{name: each for name, each in figure_4.settings.items() if name not in _CALTECH_SETTINGS},
        "groups": Setting(2, "O", "superclasses of five classes each: class index mod 2"),
        "seeds": Setting(3, "O", "repetitions; Figure 3 has 10"),
        "rank_points": Setting(2000, "O", "training samples of the stable rank; Figure 3: all"),
        "attacked_points": Setting(100, "O", "test points, attacked within the box"),
        "certified_points": Setting(100, "O", "of them with certificates"),
    },
    claims=_said_of_larger_p("ours, after Section 5.2.2", "question"),
    notes=(
        "The paper has no such figure: this asks whether Section 5.2.2 holds on other images, "
        "through another extractor. Both are fetched, or read from folders cifar10 and "
        "efficientnet-lite0 below EXTREMAL_DATA; features are made once and kept. " + THREE_WAYS
    ),
)
