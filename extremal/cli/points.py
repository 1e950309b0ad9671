"""The points that a command is to look at: a data set by its name, or a file of x and y."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._files import read_tensors
from extremal.data import Dataset, load
from extremal.data.dataset import Box
from extremal.data.table import TABLE

SPLITS = ("train", "test")
KINDS = (".safetensors", ".npz")
_NAMES = ("x", "y", "low", "high")
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
    known = data in TABLE
    found = load(data, progress=progress)[SPLITS.index(split)] if known else _read(data)
    whole = Dataset(found.x, found.y, box=found.box if box is None else asked)
    rows = torch.arange(min(points, len(whole)))
    if shuffle:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        rows = order[:points].sort().values
    return Points(whole.take(rows), len(whole), shuffle, split if known else None)


def _read(data: str) -> Dataset:
    path = Path(data)
    known = f"be one of {', '.join(TABLE)}, or a file that ends in {' or '.join(KINDS)}"
    _check.require(path.suffix in KINDS, "--data", known, data)
    _check.require(path.is_file(), "--data", "name an existing file", path)
    try:
        tensors = read_tensors(path)[1] if path.suffix == KINDS[0] else _read_npz(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        told = " ".join(str(error).split())
        raise ValueError(
            f"--data must be a readable {path.suffix} file, got {data} ({told})"
        ) from None
    names = sorted(tensors)
    _check.require({"x", "y"} <= set(names), "--data", "hold x and y", f"{data} with {names}")
    x = tensors["x"]
    x = x if x.dtype == torch.float64 else x.float()
    return Dataset(x, tensors["y"], box=_stored_box(tensors, f"{data} with {names}"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    # np.load leaves a file open that it can't read, unless it is given one.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in _NAMES if name in arrays}


def _stored_box(tensors: dict[str, Tensor], seen: str) -> Box | None:
    ends = [tensors[name] for name in ("low", "high") if name in tensors]
    _check.require(len(ends) != 1, "--data", "hold both low and high, or neither", seen)
    if not ends:
        return None
    low, high = ends
    return (low, high) if low.ndim or high.ndim else (low.item(), high.item())


def _box(text: str) -> tuple[float, float] | None:
    if text == "none":
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise ValueError(f"--box must {_BOX}, got {text}") from None
    return low, high
