"""The rows of the talk's table for data that a user has: SVHN and restricted ImageNet."""

from extremal.experiments import Experiment, Line, Setting
from extremal.experiments.papers.li_2022.separation_of_images import published

_CASES = [
    {"panel": "svhn", "problem": "svhn", "radius": 0.031, "image_size": 32},
    {
        "panel": "restricted-imagenet",
        "problem": "restricted-imagenet",
        "radius": 0.005,
        "image_size": 224,
    },
]

experiment = Experiment(
    name="li-2022/separation-folders",
    title="How far apart are classes of images of your own?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, the talk's table of separations",
    study="extremal.experiments.studies.separation:separation",
    settings={
        "case": Setting(_CASES, "S", "with the talk's radii; the size of ImageNet's is ours"),
        "norm": Setting("linf", "S"),
        "points": Setting(0, "S", "all training and test images"),
        "checked_points": Setting(20, "O", "points of each search that brute force looks at, too"),
        "seeds": Setting(1, "O", "nothing is random"),
    },
    smoke={
        "case": [{"panel": "svhn", "problem": "digits", "radius": 0.1, "image_size": 0}],
        "points": 100,
        "checked_points": 2,
    },
    axes=("case",),
    panels=(
        Line(
            "Nearest point of another class",
            "level",
            ("train_quantiles", "test_quantiles"),
            "share of points",
            "l-inf distance",
            by="panel",
            labels={"train_quantiles": "train-train", "test_quantiles": "test-train"},
        ),
    ),
    claims=(
        *published("svhn", (0.094, 0.110)),
        *published("restricted-imagenet", (0.180, 0.224)),
    ),
    version=2,
    notes=(
        "Needs EXTREMAL_DATA/svhn/train and test, and EXTREMAL_DATA/restricted-imagenet/train and "
        "test, each with one folder of images for every class. Without them trials fail and say "
        "so, and the published values stand alone. Of digits at smoke scale."
    ),
)
