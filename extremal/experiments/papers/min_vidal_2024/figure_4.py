"""Figure 4: Caltech256's classes in ten groups, told apart by features of a frozen ResNet-152."""

from extremal.experiments import Claim, Experiment, Heat, Line, Setting

_P1, _P3 = {"p": 1.0}, {"p": 3.0}
_CURVES = {
    "certified_accuracy": "certified",
    "robust_accuracy": "attacked",
    "robust_accuracy_apgd": "APGD-CE alone",
}
_MORE_ROBUST = "Section 5.2.2: more robust when p gets larger"
_SCALED = (
    "At smoke and quick scale the features are the pixels of scikit-learn's digits, which need no "
    "download, in two groups, even and odd."
)

experiment = Experiment(
    name="min-vidal-2024/figure-4",
    title="Figure 4: Caltech256 in ten groups, on features of a frozen ResNet-152",
    source="Min & Vidal 2024, Figure 4 and Section 5.2.2",
    study="extremal.experiments.studies.features:features",
    settings={
        "source": Setting("caltech256", "S", "features of the 256 classes, without clutter"),
        "blocks": Setting([3, 8, 36, 3], "S", "ResNet-152, the layer before its classifier"),
        "image_size": Setting(224, "O", "the middle of images whose shorter side is 256"),
        "images": Setting(30_000, "O", "of CIFAR-10, where that is the source"),
        "groups": Setting(10, "S", "superclasses; class index mod 10 in the authors' code"),
        "train_share": Setting(0.8, "A", "drawn anew by each seed"),
        "p": Setting([1.0, 2.0, 3.0, 4.0], "S", "Figure 4"),
        "seeds": Setting(10, "S", "repetitions, as on MNIST"),
        "width": Setting(2000, "S", "h, Section 5.2.2"),
        "normalize": Setting(
            "power", "A", "activations / ||x - c||^(p-1), as on MNIST; the paper: unit vectors"
        ),
        "lr": Setting(1e-3, "A", "of Adam, on the cross-entropy, from Kaiming's start"),
        "batch": Setting(1000, "S", "as on MNIST, Section 5.2.1"),
        "epochs": Setting(50, "S", "as on MNIST, Section 5.2.1"),
        "recorded": Setting([1, 2, 3, 5, 10, 15, 20, 30, 40], "O", "epochs, beside first and last"),
        "rank_points": Setting(24_000, "S", "of the stable rank: every training sample"),
        "radii": Setting(
            [round(0.1 * i / 14, 5) for i in range(15)], "A", "15 from 0 to 0.1, in l-inf"
        ),
        "attacked_points": Setting(500, "O", "test points, in the box [0, 1] of the features"),
        "certified_points": Setting(500, "O", "of them with certificates"),
        "apgd_steps": Setting(100, "A", "of APGD-CE, one random start"),
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
        Heat("Cosines of centred features", "cosines", "point, by class", "point, by class"),
        Line(
            "Accuracy during training",
            "epoch",
            ("test_accuracy", "train_accuracy"),
            "epoch",
            "accuracy",
            by="p",
            labels={"test_accuracy": "test", "train_accuracy": "training"},
            styles={"train_accuracy": "dotted"},
        ),
        Line(
            "Stable rank of the hidden values",
            "epoch",
            ("stable_rank",),
            "epoch",
            "stable rank",
            by="p",
        ),
        Line(
            "Robust accuracy against l-inf radius",
            "radius",
            ("robust_accuracy", "robust_accuracy_apgd", "certified_accuracy"),
            "attack radius",
            "robust accuracy",
            by="p",
            labels=_CURVES,
            styles={"certified_accuracy": "dashed", "robust_accuracy_apgd": "dotted"},
        ),
    ),
    claims=(
        Claim(
            "cosine within classes minus between",
            "contrast",
            0.0,
            0.0,
            "Section 5.2.2: features of a class are clustered; > 0",
            rule="above",
        ),
        Claim(
            "p = 3: stable rank, above p = 1's",
            "final_stable_rank",
            _P1,
            0.0,
            "the paper's panel c",
            where=_P3,
            rule="above",
        ),
        Claim(
            "p = 3: test accuracy, above p = 1's",
            "final_test_accuracy",
            _P1,
            0.0,
            "Section 5.2.2: higher test accuracy when p gets larger",
            where=_P3,
            rule="above",
        ),
        *(
            Claim(
                f"p = {p:g}: mean {label} accuracy, above p = {p - 1:g}'s",
                f"{value}_mean",
                {"p": p - 1},
                0.0,
                source,
                where={"p": p},
                rule="above",
            )
            for value, label, source in (
                ("robust_accuracy_apgd", "APGD-CE", _MORE_ROBUST),
                ("robust_accuracy", "attacked", f"{_MORE_ROBUST}; ours: all attacks"),
            )
            for p in (2.0, 3.0, 4.0)
        ),
    ),
    notes=(
        "The images are the user's: a folder caltech256 below EXTREMAL_DATA or in the cache with "
        "either caltech256-resnet152.safetensors, x (n, 2048) and y (n,), or the class folders and "
        "torchvision's resnet152-*.pth (or .safetensors). Features are made once and "
        "kept; a run that was stopped goes on, and --jobs 1 keeps two trials from making the same "
        "ones. One affine map, of the training features' least and largest value, puts them in "
        "the box [0, 1]; test features are clipped to it. Robust accuracy is given three ways: "
        "under APGD-CE as published, under all attacks, and certified. A mean is over all radii. "
        "Certificates are linear bounds within the box, looser the larger p is. " + _SCALED
    ),
)
