"""The points that a command is to look at: a data set by its name, or a file of x and y."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from extremal import _check
from extremal.data import DATASETS, FEATURE_SUFFIXES, Dataset, load, load_features

SPLITS = ("train", "test")
_BOX = "be none, or low,high such as 0,1"


@dataclass(frozen=True, eq=False)
class Points:
    """Points that were chosen from a data set."""

    data: Dataset
    total: int  # how many there were to choose from
    shuffled: bool
    split: str | None  # None for a file, which has none

    @property
    def sampled(self) -> bool:
        """Whether they are a random sample, or all: then they speak for the population."""
        return self.shuffled or len(self.data) == self.total

    @property
    def sentence(self) -> str:
        """Which points these are, in words."""
        if len(self.data) == self.total:
            return f"all {self.total} points"
        if self.shuffled:
            return f"{len(self.data)} of {self.total} points, drawn at random"
        return (
            f"the first {len(self.data)} of {self.total} points, which are not drawn at random: "
            "no interval for the population"
        )


def read_points(
    data: str, *, split: str, box: str | None, points: int, shuffle: bool, seed: int, progress: bool
) -> Points:
    """As many random points of a data set as asked for, by the seed, or its first ones.

    `data` is a name that `data.load` knows, or a safetensors or npz file with x (n, dim), y (n,)
    and perhaps a box: low and high, numbers or (dim,). `box` says another.
    """
    _check.choice("--split", split, SPLITS)
    _check.integer("--points", points, minimum=1)
    asked = None if box is None else _box(box)
    known = data in DATASETS
    found = (
        load(data, progress=progress)[SPLITS.index(split)] if known else read_file(data, "--data")
    )
    whole = Dataset(found.x, found.y, box=found.box if box is None else asked)
    rows = torch.arange(min(points, len(whole)))
    if shuffle:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        rows = order[:points].sort().values
    return Points(whole.take(rows), len(whole), shuffle, split if known else None)


def read_file(data: str, option: str) -> Dataset:
    """The points of a file; what is wrong with it is said of the option that named it."""
    known = (
        f"be one of {', '.join(DATASETS)}, or a file that ends in {' or '.join(FEATURE_SUFFIXES)}"
    )
    _check.require(Path(data).suffix in FEATURE_SUFFIXES, option, known, data)
    try:
        return load_features(data)
    except ValueError as error:
        told = str(error)
        own = told.startswith("path ")  # what is said of the file; else of its points
        raise ValueError(f"{option}{told.removeprefix('path')}" if own else told) from None


def _box(text: str) -> tuple[float, float] | None:
    if text == "none":
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise ValueError(f"--box must {_BOX}, got {text}") from None
    return low, high
