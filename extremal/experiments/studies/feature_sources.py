"""Features with their classes, by the name of a source: made by a frozen network, or there already.

Each is had without any setting but its own: the user's Caltech256, CIFAR-10, scikit-learn's digits.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes

from extremal import _check, models
from extremal._files import read_tensors, write_whole
from extremal.data import DataError, Dataset, ImageFolder, image_folder, load
from extremal.data.fetch import cache_folder
from extremal.models.resnet import ResNet, load_resnet

READY = "caltech256-resnet152.safetensors"
WEIGHTS = ("resnet152*.pth", "resnet152*.safetensors")
_ARCHIVE = "256_ObjectCategories"  # the folder that Caltech's own archive makes
_CHUNK = 500  # images in memory at a time, and in one file of the cache
_LARGER = 256 / 224  # images are read so much larger, and their middle is taken


def source(params: Mapping[str, Any]) -> Dataset:
    """Features x (n, dim) with their classes y, by the name in `source`.

    "caltech256": of the user's own files. "cifar10": the first `images` training images through
    EfficientNet-Lite0. "digits": scikit-learn's pixels themselves, which need no download.
    """
    _check.choice("source", params["source"], ("caltech256", "cifar10", "digits"))
    if params["source"] == "caltech256":
        return caltech256(params["image_size"], params["blocks"])
    if params["source"] == "cifar10":
        pictures = load("cifar10")[0].take(slice(params["images"]))
        net = models.extractor("efficientnet-lite0", size=params["image_size"])
        return Dataset(models.features(net, pictures.x), pictures.y)
    first, second = load("digits")
    return Dataset(torch.cat([first.x, second.x]), torch.cat([first.y, second.y]))


def caltech256(size: int, blocks: list[int]) -> Dataset:
    """Features of Caltech256 from the folder `caltech256` of EXTREMAL_DATA or of the cache.

    Either the file `caltech256-resnet152.safetensors` with x (n, width) and y (n,), or the class
    folders (in it or in its `256_ObjectCategories`; clutter is left out) and the weights
    `resnet152*.pth` or `.safetensors`: then images, their shorter side 256/224 `size` and of that
    the middle `size` x `size`, go through the ResNet, and what it makes of them is kept.
    """
    given = os.environ.get("EXTREMAL_DATA")
    places = [Path(given)] if given else []
    reasons = [] if given else ["EXTREMAL_DATA is not set"]
    for folder in [*(place / "caltech256" for place in places), cache_folder() / "caltech256"]:
        if (folder / READY).is_file():
            return _ready(folder / READY)
        weights = sorted(file for pattern in WEIGHTS for file in folder.glob(pattern))
        root = folder / _ARCHIVE if (folder / _ARCHIVE).is_dir() else folder
        pictures = root.is_dir() and any(each.is_dir() for each in root.iterdir())
        if weights and pictures:
            return _extracted(image_folder(root), load_resnet(weights[0], blocks=blocks), size)
        lacks = [READY]
        lacks += [] if pictures else ["class folders such as 001.ak47"]
        lacks += [] if weights else [f"weights {' or '.join(WEIGHTS)}"]
        reasons.append(f"{folder} has no {', no '.join(lacks)}")
    needs = f"it needs a folder with {READY}, or with class folders and weights of ResNet-152"
    raise DataError(f"cannot load caltech256: {needs}; {'; '.join(reasons)}")


def _ready(path: Path) -> Dataset:
    """Features of a file: x (n, width) and y (n,)."""
    try:
        tensors = read_tensors(path)[1]
    except ValueError as error:
        raise DataError(f"cannot read the features {path}: {error}") from error
    for name in ("x", "y"):
        _check.require(name in tensors, str(path), f"hold {name}", sorted(tensors))
    return Dataset(tensors["x"].float(), tensors["y"])


def _extracted(found: ImageFolder, net: ResNet, size: int) -> Dataset:
    """Features of the images of a folder, read again from the cache where all were made before."""
    names = [name for name in found.classes if "clutter" not in name.lower()]
    number = torch.tensor([names.index(n) if n in names else -1 for n in found.classes])
    rows = torch.nonzero(number[found.y] >= 0).squeeze(1)
    seal = hashlib.sha256(f"{net.digest} {size}".encode())
    for row in rows.tolist():
        state = found.files[row].stat()
        seal.update(f"\n{found.files[row]} {state.st_size} {state.st_mtime_ns}".encode())
    kept = cache_folder() / "features" / f"caltech256-{seal.hexdigest()}.safetensors"
    if kept.is_file():
        return _ready(kept)
    large = round(size * _LARGER)
    edge = (large - size) // 2
    parts = []
    for some in rows.split(_CHUNK):
        images = found.pixels(some, large)[:, :, edge : edge + size, edge : edge + size]
        parts.append(models.features(net, images.flatten(1), shape=(3, size, size)))
    made = {"x": torch.cat(parts), "y": number[found.y[rows]]}
    write_whole(kept, to_bytes(made), make_folders=True)
    return Dataset(made["x"], made["y"])
