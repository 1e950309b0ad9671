"""The points that a command is to look at: a data set by its name, or a file of x and y."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._files import read_tensors
from extremal.data import Dataset, load
from extremal.data.table import TABLE

SPLITS = ("train", "test")
KINDS = (".safetensors", ".npz")
_BOX = "be none, or low,high such as 0,1"


def read_points(
    data: str, *, split: str, box: str | None, points: int, seed: int | None, progress: bool
) -> Dataset:
    """The first `points` of a data set, or as many at random where a seed is given.

    `data` is a name that `data.load` knows, with its own box unless `box` says another, or a
    safetensors or npz file with x (n, dim) and y (n,).
    """
    _check.choice("--split", split, SPLITS)
    _check.integer("--points", points, minimum=1)
    limits = None if box is None else _box(box)
    if data in TABLE:
        found = load(data, progress=progress)[SPLITS.index(split)]
        limits = found.box if box is None else limits
        x, y = found.x, found.y
    else:
        x, y = _read(data)
    whole = Dataset(x, y)
    if seed is not None:
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        whole = whole.take(order[:points].sort().values)
    part = whole.take(slice(points))
    return Dataset(part.x, part.y, box=limits)


def _read(data: str) -> tuple[Tensor, Tensor]:
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
    return (x if x.dtype == torch.float64 else x.float()), tensors["y"]


def _read_npz(path: Path) -> dict[str, Tensor]:
    # np.load leaves a file open that it can't read, unless it is given one.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in ("x", "y") if name in arrays}


def _box(text: str) -> tuple[float, float] | None:
    if text == "none":
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise ValueError(f"--box must {_BOX}, got {text}") from None
    return low, high
