"""Data of the user's own: features with labels from a file, and images in folders of classes."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from extremal import _check
from extremal._files import as_path, read_tensors
from extremal._progress import Bar, Progress
from extremal.data.dataset import Box, Dataset
from extremal.data.fetching.download import DataError

FEATURE_SUFFIXES = (".safetensors", ".npz")
"""The endings of files that `load_features` reads."""

Interpolation = Literal["bicubic", "bilinear"]
"""How images are resized."""

# The arrays of an npz file that are read; others are passed over.
_FEATURE_ARRAYS = ("x", "y", "low", "high")

# Files with these endings are images; others are passed over.
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")

# Pillow's name for each interpolation.
_PILLOW_FILTERS: dict[Interpolation, Image.Resampling] = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
}


def load_features(path: str | os.PathLike[str]) -> Dataset:
    """Points from a safetensors or npz file with x (n, dim), y (n,), and perhaps a box.

    The box is low and high, numbers or (dim,). x is float64 where the file has it so, else
    float32. Nothing in the file is executed; one that is missing, broken or without x and y is a
    ValueError.

    Arguments:

    - `path`: the file, whose name ends in .safetensors or .npz.
    """
    file = as_path(path)
    rule = f"name a file that ends in {' or '.join(FEATURE_SUFFIXES)}"
    _check.require(file.suffix in FEATURE_SUFFIXES, "path", rule, file)
    _check.require(file.is_file(), "path", "name an existing file", file)
    try:
        tensors = read_tensors(file)[1] if file.suffix == ".safetensors" else _read_npz(file)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, TypeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(
            f"path must be a readable {file.suffix} file, got {file} ({why})"
        ) from None
    names = sorted(tensors)
    _check.require({"x", "y"} <= set(names), "path", "hold x and y", f"{file} with {names}")
    x = tensors["x"]
    x = x if x.dtype == torch.float64 else x.float()
    return Dataset(x, tensors["y"], box=_box_of(tensors, f"{file} with {names}"))


def _read_npz(path: Path) -> dict[str, Tensor]:
    # np.load leaves a file open that it can't read, unless it is given one.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in _FEATURE_ARRAYS if name in arrays}


def _box_of(tensors: dict[str, Tensor], seen: str) -> Box | None:
    ends = [tensors[name] for name in ("low", "high") if name in tensors]
    _check.require(len(ends) != 1, "path", "hold both low and high, or neither", seen)
    if not ends:
        return None
    low, high = ends
    return (low, high) if low.ndim or high.ndim else (low.item(), high.item())


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The images below a folder, by class: names of classes, files, and each file's class.

    `interpolation` is how they are resized.
    """

    classes: tuple[str, ...]  # names, in the order of their numbers
    files: tuple[Path, ...]  # n images
    y: Tensor  # (n,), the class 0..C-1 of each file
    interpolation: Interpolation = "bicubic"

    def __len__(self) -> int:
        return len(self.files)

    def pixels(self, rows: range | Tensor, size: int) -> Tensor:
        """Images `rows`, (n, 3, size, size) in [0, 1]: shorter side to `size`, then the middle."""
        files = [self.files[int(row)] for row in rows]
        return torch.stack([read_image(file, size, self.interpolation) for file in files])


def image_folder(
    path: str | os.PathLike[str], *, interpolation: Interpolation = "bicubic"
) -> ImageFolder:
    """The images of a folder whose folders are the classes, in the order of their names.

    Other files, and what begins with a dot, are passed over. A class without any image is an error,
    since it would shift the numbers of all that follow.

    Arguments:

    - `path`: the folder that holds a folder for each class, two or more.
    - `interpolation`: how images are resized when they are read, "bicubic" (the default) or
      "bilinear"; they are smoothed first where they shrink.
    """
    _check.choice("interpolation", interpolation, _PILLOW_FILTERS)
    root = as_path(path)
    _check.require(root.is_dir(), "path", "be a folder of folders", root)
    folders = sorted(each for each in root.iterdir() if each.is_dir() and each.name[0] != ".")
    _check.require(len(folders) >= 2, "path", "hold a folder for each of >= 2 classes", root)
    files: list[Path] = []
    y: list[int] = []
    for k, folder in enumerate(folders):
        inside = sorted(
            each
            for each in folder.iterdir()
            if each.suffix.lower() in _IMAGE_SUFFIXES and each.name[0] != "."
        )
        rule = f"hold images ({', '.join(_IMAGE_SUFFIXES)}) in every class"
        _check.require(len(inside) > 0, "path", rule, f"none in {folder.name}")
        files += inside
        y += [k] * len(inside)
    names = tuple(each.name for each in folders)
    return ImageFolder(names, tuple(files), torch.tensor(y), interpolation)


def load_folder(
    path: str | os.PathLike[str],
    *,
    size: int = 32,
    interpolation: Interpolation = "bicubic",
    progress: bool | Progress = False,
) -> Dataset:
    """All images of an `image_folder` as points x (n, 3 size^2) in [0, 1], planes one by one.

    float32, 12 size^2 bytes an image: 12 KB at size 32, 0.6 MB at 224.

    Arguments:

    - `path`: the folder that holds a folder for each class, two or more.
    - `size`: pixels of a side after resizing, 1 or more; 32 by default.
    - `interpolation`: how images are resized, "bicubic" (the default) or "bilinear".
    - `progress`: False, True for a bar on the standard error, or a function of (what, done, total),
      in images.
    """
    _check.integer("size", size, minimum=1)
    return _pixels_of(image_folder(path, interpolation=interpolation), size, progress)


def load_split(
    path: str | os.PathLike[str],
    *,
    size: int = 32,
    interpolation: Interpolation = "bicubic",
    progress: bool | Progress = False,
) -> tuple[Dataset, Dataset]:
    """The folders `train` and `test` below a folder, each as by `load_folder`.

    Classes are known by their names and numbered as in `train`. Some may be missing in `test`; one
    that `train` lacks is a ValueError.

    Arguments:

    - `path`: the folder that holds `train` and `test`.
    - `size`: pixels of a side after resizing, 1 or more; 32 by default.
    - `interpolation`: how images are resized, "bicubic" (the default) or "bilinear".
    - `progress`: False, True for a bar on the standard error, or a function of (what, done, total),
      in images, for `train` and then for `test`.
    """
    _check.integer("size", size, minimum=1)
    root = as_path(path)
    parts = [root / name for name in ("train", "test")]
    whole = all(part.is_dir() for part in parts)
    _check.require(whole, "path", "hold the folders train and test", root)
    learn, test = (image_folder(part, interpolation=interpolation) for part in parts)
    unknown = sorted(set(test.classes) - set(learn.classes))
    _check.require(not unknown, "path", "have each class of test in train", unknown)
    numbers = torch.tensor([learn.classes.index(name) for name in test.classes])
    test = replace(test, classes=learn.classes, y=numbers[test.y])
    return _pixels_of(learn, size, progress), _pixels_of(test, size, progress)


def _pixels_of(found: ImageFolder, size: int, progress: bool | Progress) -> Dataset:
    x = torch.empty(len(found), 3 * size * size)
    with Bar("images", len(found), progress) as bar:
        for row, file in enumerate(found.files):
            x[row] = read_image(file, size, found.interpolation).flatten()
            bar.done(row + 1)
    return Dataset(x, found.y, box=(0.0, 1.0))


def read_image(path: Path, size: int, interpolation: Interpolation = "bicubic") -> Tensor:
    """One image (3, size, size) in [0, 1]: its shorter side is `size`, and its middle is taken."""
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read the image {path}: {' '.join(str(error).split())}") from error
    width, height = picture.size
    scale = size / min(width, height)
    wide, high = max(size, round(scale * width)), max(size, round(scale * height))
    picture = picture.resize((wide, high), _PILLOW_FILTERS[interpolation])
    left, top = (wide - size) // 2, (high - size) // 2
    picture = picture.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255.0)
