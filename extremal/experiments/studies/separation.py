"""How far apart the classes of a data set are, held against brute force on some points.

The study behind `li-2022/separation` and `separation-folders`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extremal import data, measure
from extremal.data import DataError, Dataset
from extremal.data.pictures import as_picture
from extremal.experiments.trial import Outcome
from extremal.measure import Separation

_LEVELS = 101  # of the distribution of nearest distances that is kept


def separation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """Nearest points of other classes, train-train and test-train, exactly, in `norm`.

    `train` and `test` are the smallest distances, `train_mean` and `test_mean` means over points;
    `brute_force_gap` is the largest difference to a plain loop over all pairs of the first
    `checked_points` test points. `ratio` is half of the smaller distance over the `radius` in use:
    above 1 some classifier has no robust error on all these points. The pictures are the closest
    pairs.
    """
    learn, test = _data(params, generator)
    norm = params["norm"]
    inside = measure.separation(learn, norm=norm)
    across = measure.separation(test, learn, norm=norm)
    level = torch.linspace(0.0, 1.0, _LEVELS, dtype=torch.float64)
    least = min(inside.minimum, across.minimum)
    return Outcome(
        {
            **_told("train", inside),
            **_told("test", across),
            "ratio": least / 2.0 / params["radius"],
            "brute_force_gap": _gap(across, test, learn, params["checked_points"]),
            "level": level.tolist(),
            "train_quantiles": inside.distance.quantile(level).tolist(),
            "test_quantiles": across.distance.quantile(level).tolist(),
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


def _gap(found: Separation, test: Dataset, learn: Dataset, count: int) -> float:
    """The largest difference to distances in float64 of all pairs, of the first test points."""
    power = {"linf": float("inf"), "l2": 2.0, "l1": 1.0}[found.norm]
    gaps = []
    parts = list(zip(learn.x.split(1024), learn.y.split(1024), strict=True))
    for i in range(min(count, len(test))):
        point, label = test.x[i].double(), test.y[i]
        least = [
            torch.linalg.vector_norm(x.double() - point, ord=power, dim=1)
            .where(y != label, torch.inf)
            .min()
            for x, y in parts
        ]
        gaps.append(abs(float(torch.stack(least).min()) - float(found.distance[i])))
    return max(gaps)


def _picture(one: Tensor, two: Tensor, pair: tuple[int, int]) -> Tensor:
    """Two images side by side, (height, 2 width + 1), colours averaged."""
    left, right = (as_picture(x.float()).mean(2) for x in (one[pair[0]], two[pair[1]]))
    return torch.cat([left, torch.zeros(len(left), 1), right], 1)


def _data(params: Mapping[str, Any], generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """A data set by name, or the folders `train` and `test` of EXTREMAL_DATA/name."""
    if params.get("image_size"):
        return _folders(params["problem"], params["image_size"])
    learn, test = data.load(params["problem"])
    if params["points"]:
        learn = learn.subset(min(params["points"], len(learn)), generator=generator)
        test = test.subset(min(params["points"], len(test)), generator=generator)
    return learn, test


def _folders(name: str, size: int) -> tuple[Dataset, Dataset]:
    place = os.environ.get("EXTREMAL_DATA")
    root = Path(place or ".") / name
    if place is None or not all((root / part).is_dir() for part in ("train", "test")):
        unset = "" if place else "; EXTREMAL_DATA is not set"
        raise DataError(
            f"cannot load {name}: it needs folders {name}/train and {name}/test below "
            f"EXTREMAL_DATA, each with a folder of images for every class{unset}"
        )
    learn, test = (data.load_folder(root / part, size=size) for part in ("train", "test"))
    return learn, test
