"""Figure 4's study on CIFAR-10, whose images and extractor can be had by anyone."""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_4_frozen_features import THREE_WAYS, claims
from extremal.experiments.papers.min_vidal_2024.figure_4_frozen_features import (
    experiment as figure_4,
)

_CALTECH = ("source", "blocks", "image_size", "interpolation")

experiment = replace(
    figure_4,
    name="min-vidal-2024/figure-4-cifar10",
    title="Figure 4 on CIFAR-10: features of a frozen EfficientNet-Lite0, two groups of classes",
    source="ours, after Min & Vidal 2024, Section 5.2.2; data and extractor are other ones",
    settings={
        "source": Setting("cifar10", "O", "through EfficientNet-Lite0; the paper has Caltech256"),
        "images": Setting(5000, "O", "the first of CIFAR-10's training images"),
        "image_size": Setting(160, "O", "to which the extractor resizes them, bilinear"),
        **{name: each for name, each in figure_4.settings.items() if name not in _CALTECH},
        "groups": Setting(2, "O", "superclasses of five classes each: class index mod 2"),
        "seeds": Setting(3, "O", "repetitions; Figure 3 has 10"),
        "rank_points": Setting(2000, "O", "training samples of the stable rank; Figure 3: all"),
        "attacked_points": Setting(100, "O", "test points, attacked within the box"),
        "certified_points": Setting(100, "O", "of them with certificates"),
    },
    claims=claims("ours, after Section 5.2.2"),
    notes=(
        "The paper has no such figure: this asks whether Section 5.2.2 holds on other images, "
        "through another extractor. Both are fetched, or read from folders cifar10 and "
        "efficientnet-lite0 below EXTREMAL_DATA; features are made once and kept. " + THREE_WAYS
    ),
)
