"""Figure 4's study on CIFAR-10, whose images and extractor can be had by anyone."""

from dataclasses import replace

from extremal.experiments import Setting
from extremal.experiments.papers.min_vidal_2024.figure_4 import experiment as figure_4

_OURS = {
    "source": Setting("cifar10", "O", "in place of Caltech256"),
    "image_size": Setting(160, "O", "EfficientNet-Lite0's, in place of ResNet-152"),
    "images": Setting(5000, "O", "the first of CIFAR-10's training images"),
    "groups": Setting(2, "O", "superclasses of five classes each: class index mod 2"),
    "seeds": Setting(3, "O", "repetitions; the paper has 10"),
    "rank_points": Setting(2000, "O", "training samples of the stable rank; the paper: all"),
    "attacked_points": Setting(100, "O", "test points, in the box [0, 1] of the features"),
    "certified_points": Setting(100, "O", "of them with certificates"),
}

experiment = replace(
    figure_4,
    name="min-vidal-2024/figure-4-cifar10",
    title="Figure 4 on CIFAR-10: features of a frozen EfficientNet-Lite0, two groups of classes",
    source="Min & Vidal 2024, Section 5.2.2; data and extractor are ours",
    settings={
        name: _OURS.get(name, setting)
        for name, setting in figure_4.settings.items()
        if name != "blocks"
    },
)
