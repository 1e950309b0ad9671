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
from extremal._files import read_tensors, tensor_digest, write_whole
from extremal.data import (
    DataError,
    Dataset,
    ImageFolder,
    Interpolation,
    cache_folder,
    image_folder,
    load,
)
from extremal.models import FrozenResNet, load_resnet

READY_FILE = "caltech256-resnet152.safetensors"
WEIGHT_FILES = ("resnet152*.pth", "resnet152*.safetensors")
# Caltech's own archive makes this folder.
_ARCHIVE_FOLDER = "256_ObjectCategories"
# So many images are in memory at a time, and in one file of the cache.
_CHUNK_IMAGES = 500
# Images are read so much larger than they are used, and their middle is taken.
_READ_SIZE_RATIO = 256 / 224


def source(params: Mapping[str, Any]) -> Dataset:
    """Features x (n, dim) with their classes y, by the name in `source`.

    "caltech256": of the user's own files. "cifar10": the first `images` training images through
    EfficientNet-Lite0. "digits": scikit-learn's pixels themselves, which need no download.
    """
    _check.choice("source", params["source"], ("caltech256", "cifar10", "digits"))
    if params["source"] == "caltech256":
        return caltech256(params["image_size"], params["blocks"], params["interpolation"])
    if params["source"] == "cifar10":
        pictures = load("cifar10")[0].take(slice(params["images"]))
        net = models.extractor("efficientnet-lite0", size=params["image_size"])
        return Dataset(models.features(net, pictures.x), pictures.y)
    first, second = load("digits")
    return Dataset(torch.cat([first.x, second.x]), torch.cat([first.y, second.y]))


def caltech256(size: int, blocks: list[int], interpolation: Interpolation) -> Dataset:
    """Features of Caltech256 from the folders `caltech256` of EXTREMAL_DATA and of the cache.

    Either the file `caltech256-resnet152.safetensors` with x (n, width) and y (n,), or the class
    folders (in one of the two or in its `256_ObjectCategories`; clutter is left out) and the
    weights `resnet152*.pth` or `.safetensors`, which may lie in the other: then images, their
    shorter side 256/224 `size` and of that the middle `size` x `size`, go through the ResNet, and
    what it makes of them is kept. Of two files or class folders that of EXTREMAL_DATA is taken; two
    files of weights are refused, since results would depend on which.
    """
    places = _places()
    for place in places:
        if (place / READY_FILE).is_file():
            return _ready(place / READY_FILE)
    roots = [
        root for place in places for root in (place / _ARCHIVE_FOLDER, place) if _has_classes(root)
    ]
    weights = _weights(places)
    if roots and weights:
        found = image_folder(roots[0], interpolation=interpolation)
        return _extracted(found, load_resnet(weights, blocks=blocks), size)
    lacks = [READY_FILE]
    lacks += [] if roots else ["class folders such as 001.ak47"]
    lacks += [] if weights else [f"weights {' or '.join(WEIGHT_FILES)}"]
    unset = "" if os.environ.get("EXTREMAL_DATA") else "; EXTREMAL_DATA is not set"
    needs = f"it needs a folder with {READY_FILE}, or class folders and weights of ResNet-152"
    none = f"no {', no '.join(lacks)} in {' or '.join(map(str, places))}"
    raise DataError(f"cannot load caltech256: {needs}; {none}{unset}")


def _places() -> list[Path]:
    """The folders to search, the user's first, each once."""
    given = os.environ.get("EXTREMAL_DATA")
    parents = [*([Path(given)] if given else []), cache_folder()]
    folders = [parent / "caltech256" for parent in parents]
    return list({folder.resolve(): folder for folder in folders}.values())


def _has_classes(root: Path) -> bool:
    """Whether it holds a folder that may be a class."""
    folders = root.iterdir() if root.is_dir() else ()
    return any(each.is_dir() and each.name[0] != "." for each in folders)


def _weights(places: list[Path]) -> Path | None:
    """The one file of weights there is in all places, or None; of two, neither is guessed."""
    files = [file for place in places for name in WEIGHT_FILES for file in sorted(place.glob(name))]
    found = list({file.resolve(): file for file in files}.values())
    if len(found) > 1:
        named = ", ".join(map(str, found))
        raise DataError(f"cannot load caltech256: it needs one file of weights, there are {named}")
    return found[0] if found else None


def _ready(path: Path) -> Dataset:
    """Features of a file: x (n, width) and y (n,)."""
    try:
        tensors = read_tensors(path)[1]
    except ValueError as error:
        raise DataError(f"cannot read the features {path}: {error}") from error
    for name in ("x", "y"):
        _check.require(name in tensors, str(path), f"hold {name}", sorted(tensors))
    return Dataset(tensors["x"].float(), tensors["y"])


def _extracted(found: ImageFolder, net: FrozenResNet, size: int) -> Dataset:
    """Features of the images of a folder, read again from the cache where all were made before.

    The file of them all spares decoding the images, which are known by path, size and time. Where
    it is spoilt it is made again, from the files that `models.features` keeps by content.
    """
    names = [name for name in found.classes if "clutter" not in name.lower()]
    number = torch.tensor([names.index(n) if n in names else -1 for n in found.classes])
    rows = torch.nonzero(number[found.y] >= 0).squeeze(1)
    seal = hashlib.sha256(f"{net.digest} {size} {found.interpolation}".encode())
    for row in rows.tolist():
        state = found.files[row].stat()
        seal.update(f"\n{found.files[row]} {state.st_size} {state.st_mtime_ns}".encode())
    kept = cache_folder() / "features" / f"caltech256-{seal.hexdigest()}.safetensors"
    whole = _whole(kept)
    if whole is not None:
        return whole
    large = round(size * _READ_SIZE_RATIO)
    edge = (large - size) // 2
    parts = []
    for some in rows.split(_CHUNK_IMAGES):
        images = found.pixels(some, large)[:, :, edge : edge + size, edge : edge + size]
        parts.append(models.features(net, images.flatten(1), shape=(3, size, size)))
    made = {"x": torch.cat(parts), "y": number[found.y[rows]]}
    header = {"digest": tensor_digest(kept.stem, made)}
    write_whole(kept, to_bytes(made, metadata=header), make_folders=True)
    return Dataset(made["x"], made["y"])


def _whole(path: Path) -> Dataset | None:
    """Features that were kept, or None where there are none or they are not what was written."""
    try:
        header, tensors = read_tensors(path)
    except ValueError:
        return None
    if header.get("digest") != tensor_digest(path.stem, tensors):
        return None
    return Dataset(tensors["x"], tensors["y"])
