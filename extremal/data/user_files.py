"""Images in folders, one folder for each class, as Caltech256 and many others come."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from extremal import _check
from extremal._files import as_path
from extremal._progress import Bar, Progress
from extremal.data.dataset import Dataset
from extremal.data.fetching.download import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
Interpolation = Literal["bicubic", "bilinear"]
_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The images below a folder, by class: names of classes, files, and each file's class.

    `interpolation` is how they are resized.
    """

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    y: Tensor  # (n,)
    interpolation: Interpolation = "bicubic"

    def __len__(self) -> int:
        return len(self.files)

    def pixels(self, rows: range | Tensor, size: int) -> Tensor:
        """Images (n, 3, size, size) in [0, 1]: the shorter side to `size`, then the middle."""
        files = [self.files[int(row)] for row in rows]
        return torch.stack([read_image(file, size, self.interpolation) for file in files])


def image_folder(
    path: str | os.PathLike[str], *, interpolation: Interpolation = "bicubic"
) -> ImageFolder:
    """The images of a folder whose folders are the classes, in the order of their names.

    Other files, and what begins with a dot, are passed over. A class without any image is an error,
    since it would shift the numbers of all that follow. `interpolation`, "bicubic" or "bilinear",
    is how images are resized when they are read; they are smoothed first where they shrink.
    """
    _check.choice("interpolation", interpolation, _FILTERS)
    root = as_path(path)
    _check.require(root.is_dir(), "path", "be a folder of folders", root)
    folders = sorted(each for each in root.iterdir() if each.is_dir() and each.name[0] != ".")
    _check.require(len(folders) >= 2, "path", "hold a folder for each of >= 2 classes", root)
    files: list[Path] = []
    y: list[int] = []
    for k, folder in enumerate(folders):
        inside = sorted(each for each in folder.iterdir() if each.suffix.lower() in ENDINGS)
        inside = [each for each in inside if each.name[0] != "."]
        rule = f"hold images ({', '.join(ENDINGS)}) in every class"
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
    """
    _check.integer("size", size, minimum=1)
    return _loaded(image_folder(path, interpolation=interpolation), size, progress)


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
    """
    _check.integer("size", size, minimum=1)
    root = as_path(path)
    parts = [root / name for name in ("train", "test")]
    whole = all(part.is_dir() for part in parts)
    _check.require(whole, "path", "hold the folders train and test", root)
    learn, test = (image_folder(part, interpolation=interpolation) for part in parts)
    strange = sorted(set(test.classes) - set(learn.classes))
    _check.require(not strange, "path", "have each class of test in train", strange)
    numbers = torch.tensor([learn.classes.index(name) for name in test.classes])
    test = replace(test, classes=learn.classes, y=numbers[test.y])
    return _loaded(learn, size, progress), _loaded(test, size, progress)


def _loaded(found: ImageFolder, size: int, progress: bool | Progress) -> Dataset:
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
    picture = picture.resize((wide, high), _FILTERS[interpolation])
    left, top = (wide - size) // 2, (high - size) // 2
    picture = picture.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255.0)
