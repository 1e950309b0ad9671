"""Features with labels from a file of the user's."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal._files import as_path, read_tensors
from extremal.data.dataset import Box, Dataset

KINDS = (".safetensors", ".npz")
_NAMES = ("x", "y", "low", "high")


def load_features(path: str | os.PathLike[str]) -> Dataset:
    """Points from a safetensors or npz file with x (n, dim), y (n,), and perhaps a box.

    The box is low and high, numbers or (dim,). x is float64 where the file has it so, else
    float32. Nothing in the file is executed; one that is missing, broken or without x and y is a
    ValueError.
    """
    file = as_path(path)
    rule = f"name a file that ends in {' or '.join(KINDS)}"
    _check.require(file.suffix in KINDS, "path", rule, file)
    _check.require(file.is_file(), "path", "name an existing file", file)
    try:
        tensors = read_tensors(file)[1] if file.suffix == KINDS[0] else _read_npz(file)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        told = " ".join(str(error).split())
        raise ValueError(
            f"path must be a readable {file.suffix} file, got {file} ({told})"
        ) from None
    names = sorted(tensors)
    _check.require({"x", "y"} <= set(names), "path", "hold x and y", f"{file} with {names}")
    x = tensors["x"]
    x = x if x.dtype == torch.float64 else x.float()
    return Dataset(x, tensors["y"], box=_box(tensors, f"{file} with {names}"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    # np.load leaves a file open that it can't read, unless it is given one.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in _NAMES if name in arrays}


def _box(tensors: dict[str, Tensor], seen: str) -> Box | None:
    ends = [tensors[name] for name in ("low", "high") if name in tensors]
    _check.require(len(ends) != 1, "path", "hold both low and high, or neither", seen)
    if not ends:
        return None
    low, high = ends
    return (low, high) if low.ndim or high.ndim else (low.item(), high.item())
