"""The talk's table of separations: how far apart classes of images are, beside radii in use.

`separation-folders` has its rows for data that a user has: SVHN and restricted ImageNet.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extremal import data, measure
from extremal.data import DataError, Dataset, as_picture
from extremal.experiments import ArrayHeatMap, Claim, Experiment, Line, Setting
from extremal.experiments.papers.shared.claim_rows import claims
from extremal.experiments.papers.shared.image_training import random_images
from extremal.experiments.trial import Outcome
from extremal.measure import Separation

_TABLE_SOURCE = "the talk's table, measured by Yang et al. 2020; to the printed digits"
_BOUNDED_SOURCE = (
    "ours: the data and a few tiles; the peak of the process, data and imports included"
)
_ABOVE_SOURCE = "Key observation of the talk: data are farther apart than twice the radius"
_DATASET_NAMES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "digits",
}
_ATTACK_RADII = {"mnist": 0.1, "cifar10": 0.031, "fashion-mnist": 0.1, "digits": 0.1}
PUBLISHED_DISTANCES = {"mnist": (0.737, 0.812), "cifar10": (0.212, 0.220)}
_SEARCH_KINDS = (("train", "train-train"), ("test", "test-train"))


def cases(*problems: str) -> list[dict[str, Any]]:
    """Data sets with the radius that attacks on them use."""
    return [{"panel": name, "problem": name, "radius": _ATTACK_RADII[name]} for name in problems]


def published(problem: str, values: tuple[float, float]) -> tuple[Claim, ...]:
    """The two published distances of a data set, which agree where they round to the same."""
    rows = (
        (f"{_DATASET_NAMES.get(problem, problem)}: {text}", kind, value, 5e-4)
        for (kind, text), value in zip(_SEARCH_KINDS, values, strict=True)
    )
    return claims(_TABLE_SOURCE, {"panel": problem}, *rows, scales=("paper",), against="published")


def _pictures(problem: str) -> list[ArrayHeatMap]:
    where = {"panel": problem}
    return [
        ArrayHeatMap(
            f"{_DATASET_NAMES[problem]}: closest pair, {text}",
            f"{kind}_pair",
            "",
            "",
            None,
            where,
            0.0,
        )
        for kind, text in _SEARCH_KINDS
    ]


def _curves(kind: str, text: str) -> Line:
    return Line(
        f"Nearest point of another class, {text}",
        "level",
        (f"{kind}_quantiles",),
        "share of points",
        "l-inf distance",
        by="panel",
        labels=_DATASET_NAMES,
    )


separation = Experiment(
    name="li-2022/separation",
    title="How far apart are classes of images?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, the talk's table of separations",
    study="extremal.experiments.studies.separation:separation",
    settings={
        "case": Setting(
            cases("mnist", "cifar10", "fashion-mnist", "digits"),
            "S",
            "MNIST and CIFAR-10 with their radii; the other two and their radius are ours",
        ),
        "norm": Setting("linf", "S"),
        "points": Setting(0, "S", "all training and test images"),
        "checked_points": Setting(20, "O", "points of each search that brute force looks at, too"),
        "seeds": Setting(1, "O", "nothing is random"),
    },
    quick={"points": 4000},
    smoke={
        "case": [case | {"problem": "digits"} for case in cases("mnist", "cifar10", "digits")],
        "points": 300,
        "checked_points": 5,
    },
    axes=("case",),
    columns=2,
    panels=(
        *(_curves(kind, text) for kind, text in _SEARCH_KINDS),
        *_pictures("mnist"),
        *_pictures("cifar10"),
    ),
    claims=(
        *published("mnist", PUBLISHED_DISTANCES["mnist"]),
        *published("cifar10", PUBLISHED_DISTANCES["cifar10"]),
        *(
            claim
            for problem, name in _DATASET_NAMES.items()
            for claim in claims(
                _ABOVE_SOURCE,
                {"panel": problem},
                (f"{name}: half the distance over the radius", "ratio", 1.0, 0.0),
                rule="above",
                against="published",
            )
        ),
        *claims(
            _BOUNDED_SOURCE,
            {},
            ("all: peak memory, GB", "peak_memory", 2.0, 0.0),
            rule="below",
            against="question",
        ),
    ),
    version=2,
    notes=(
        "Exact nearest points of other classes. SVHN and restricted ImageNet, .094 / .110 and "
        ".180 / .224 in the talk, are in `separation-folders`, for a user's own images. A ratio "
        "above 1 says that f* has no robust error on these points at the radius in use. Images "
        "are whole multiples of 1/255 and are compared as such."
    ),
)


_FOLDER_CASES = [
    {"panel": "svhn", "problem": "svhn", "radius": 0.031, "image_size": 32},
    {
        "panel": "restricted-imagenet",
        "problem": "restricted-imagenet",
        "radius": 0.005,
        "image_size": 224,
    },
]

separation_folders = separation.variant(
    "li-2022/separation-folders",
    title="How far apart are classes of images of your own?",
    settings={
        "case": Setting(
            _FOLDER_CASES, "S", "with the talk's radii; the size of ImageNet's is ours"
        ),
    },
    quick={},
    smoke={
        "case": [{"panel": "svhn", "problem": "digits", "radius": 0.1, "image_size": 0}],
        "points": 100,
        "checked_points": 2,
    },
    columns=3,
    panels=(
        Line(
            "Nearest point of another class",
            "level",
            {"train_quantiles": "train-train", "test_quantiles": "test-train"},
            "share of points",
            "l-inf distance",
            by="panel",
        ),
    ),
    claims=(
        *published("svhn", (0.094, 0.110)),
        *published("restricted-imagenet", (0.180, 0.224)),
    ),
    notes=(
        "Needs EXTREMAL_DATA/svhn/train and test, and EXTREMAL_DATA/restricted-imagenet/train and "
        "test, each with one folder of images for every class. Without them trials fail and say "
        "so, and the published values stand alone. Of digits at smoke scale."
    ),
)


# The distribution of nearest distances is kept at so many levels.
_QUANTILE_COUNT = 101


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Nearest points of other classes, train-train and test-train, exactly, in `norm`.

    `train` and `test` are the smallest distances, `train_mean` and `test_mean` means over points;
    `brute_force_gap` is the largest difference to a plain loop over all pairs, of both searches at
    `checked_points` evenly spaced points each and at the first pair that attains the minimum.
    `ratio` is half of the smaller distance over the `radius` in use: above 1 some classifier has no
    robust error on all these points. The pictures are the closest pairs. `seconds` are those of the
    processor and `peak_memory` (GB) is the process's, which may have done other trials before.
    """
    begun = time.process_time()
    learn, test = _data(params, generator)
    norm = params["norm"]
    inside = measure.separation(learn, norm=norm)
    across = measure.separation(test, learn, norm=norm)
    level = torch.linspace(0.0, 1.0, _QUANTILE_COUNT, dtype=torch.float64)
    least = min(inside.minimum, across.minimum)
    return Outcome(
        {
            **_told("train", inside),
            **_told("test", across),
            "ratio": least / 2.0 / params["radius"],
            "brute_force_gap": _largest_gap(inside, across, learn, test, params["checked_points"]),
            "level": level.tolist(),
            "train_quantiles": inside.distance.quantile(level).tolist(),
            "test_quantiles": across.distance.quantile(level).tolist(),
            "seconds": time.process_time() - begun,
            "peak_memory": peak_memory(),
        },
        {
            "train_pair": _picture(learn.x, learn.x, inside.pairs[0]),
            "test_pair": _picture(test.x, learn.x, across.pairs[0]),
        },
    )


def _told(kind: str, found: Separation) -> dict[str, Any]:
    """The numbers of one search, by names that begin with its kind."""
    return {
        kind: found.minimum,
        f"{kind}_mean": found.mean,
        f"{kind}_by_class": [least for least, _ in found.by_class.values()],
        f"{kind}_pairs": [list(pair) for pair in found.pairs[:10]],
        f"{kind}_duplicates": float(len(found.duplicates)),
        f"{kind}_conflicts": float(len(found.conflicts)),
    }


def _largest_gap(
    inside: Separation, across: Separation, learn: Dataset, test: Dataset, count: int
) -> float:
    """The larger of both searches' gaps; of the closest training pair both points are looked at."""
    return max(
        _gap(inside, learn, learn, count, inside.pairs[0]),
        _gap(across, test, learn, count, across.pairs[0][:1]),
    )


def _gap(
    found: Separation, own: Dataset, other: Dataset, count: int, also: tuple[int, ...]
) -> float:
    """The largest difference to float64 distances of all pairs, of evenly spaced points and some.

    The reference is gone through in parts, so that it is never there in float64 as a whole.
    """
    power = {"linf": float("inf"), "l2": 2.0, "l1": 1.0}[found.norm]
    gaps = []
    parts = list(zip(other.x.split(1024), other.y.split(1024), strict=True))
    places = torch.linspace(0, len(own) - 1, min(count, len(own))).round().long().tolist()
    for i in {*places, *also}:
        point, label = own.x[i].double(), own.y[i]
        least = [
            torch.linalg.vector_norm(x.double() - point, ord=power, dim=1)
            .where(y != label, torch.inf)
            .min()
            for x, y in parts
        ]
        gaps.append(abs(float(torch.stack(least).min()) - float(found.distance[i])))
    return max(gaps)


def peak_memory() -> float:
    """The largest resident size of this process so far in GB, NaN where the system has no /proc.

    Not getrusage: its maximum is carried over from the process that started this one.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return math.nan
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def _picture(one: Tensor, two: Tensor, pair: tuple[int, int]) -> Tensor:
    """Two images side by side, (height, 2 width + 1), colours averaged."""
    left, right = (as_picture(x.float()).mean(2) for x in (one[pair[0]], two[pair[1]]))
    return torch.cat([left, torch.zeros(len(left), 1), right], 1)


def _data(params: Mapping[str, Any], generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """A data set by name, or the folders `train` and `test` of EXTREMAL_DATA/name."""
    if params.get("image_size"):
        return _folders(params["problem"], params["image_size"])
    if not params["points"]:
        return data.load(params["problem"])
    return random_images(params["problem"], params["points"], params["points"], generator)


def _folders(name: str, size: int) -> tuple[Dataset, Dataset]:
    place = os.environ.get("EXTREMAL_DATA")
    root = Path(place or ".") / name
    if place is None or not all((root / part).is_dir() for part in ("train", "test")):
        unset = "" if place else "; EXTREMAL_DATA is not set"
        raise DataError(
            f"cannot load {name}: it needs folders {name}/train and {name}/test below "
            f"EXTREMAL_DATA, each with a folder of images for every class{unset}"
        )
    return data.load_split(root, size=size)
