"""Real data by name, and the split that published numbers are of."""

from __future__ import annotations

import os
from dataclasses import replace

from extremal import _check
from extremal._progress import Progress
from extremal.data.dataset import Dataset
from extremal.data.fetching.download import fetch
from extremal.data.table import TABLE

_PUBLISHED = 50_000


def load(
    name: str,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> tuple[Dataset, Dataset]:
    """The training and the test set of a known data set: x flat in [0, 1], y in 0..C-1.

    x is float32, box (0, 1). The files are taken from the folder `name` below EXTREMAL_DATA, from
    the cache (`cache`, or EXTREMAL_CACHE, or `~/.cache/extremal`), or fetched and kept there, and
    their SHA-256 is checked every time. `progress` is False, True for a bar on the standard error,
    or a function of (what, done, total), in megabytes. "mnist": 60,000 and 10,000 images of 784
    pixels, pixels / 255.
    """
    _check.choice("name", name, TABLE)
    row = TABLE[name]
    return row.read(fetch(name, row.files, row.sources, cache=cache, progress=progress))


def published_split(train: Dataset) -> tuple[Dataset, Dataset]:
    """The images that Min & Vidal 2024's MNIST numbers are of, from MNIST's training set.

    The authors train on the first 50,000 of its 60,000 images, "test" on the last 10,000, and
    divide pixels by 256 [A: found in their code; the paper does not say it]. x is k/256 exactly.
    """
    _check.instance("train", train, Dataset, "be a Dataset")
    rule = "be MNIST's training set of 60,000 images"
    _check.require(len(train) == 60_000, "train", rule, f"{len(train)} points")
    scaled = replace(train, x=(train.x * 255.0).round_().div_(256.0))
    return scaled.take(slice(_PUBLISHED)), scaled.take(slice(_PUBLISHED, None))
