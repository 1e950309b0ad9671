"""How far apart the classes of a data set are, held against brute force on some points.

The study behind `li-2022/separation` and `separation-folders`.
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
from extremal.data import DataError, Dataset
from extremal.data.pictures import as_picture
from extremal.experiments.trial import Outcome
from extremal.measure import Separation

_LEVELS = 101  # of the distribution of nearest distances that is kept


def separation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
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
    level = torch.linspace(0.0, 1.0, _LEVELS, dtype=torch.float64)
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
    return data.load_split(root, size=size)
