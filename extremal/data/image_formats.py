"""Images in the formats of their authors, read from bytes whose checksum was checked before."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from extremal.data.dataset import Dataset

# The names of CIFAR-10's files without their endings, the test set last.
CIFAR_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")

# A CIFAR-10 image has so many pixels, 32 x 32.
_CIFAR_PIXELS = 1024

# Each of CIFAR-10's files has so many images.
_CIFAR_BATCH_IMAGES = 10_000

# So many of scikit-learn's 1797 digits are for training, four fifths.
_DIGITS_TRAINING_IMAGES = 1437

# The largest value of a pixel of scikit-learn's digits.
_DIGITS_LARGEST_PIXEL = 16.0


def read_mnist(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """The two sets of the MNIST family from its four files: x = pixels / 255, flat."""
    return read_mnist_part("train", contents), read_mnist_part("t10k", contents)


def read_mnist_part(part: Literal["train", "t10k"], contents: Mapping[str, bytes]) -> Dataset:
    """One of the two sets of the MNIST family from its two files, as `read_mnist` reads it.

    Arguments:

    - `part`: "train" for the training set, "t10k" for the test set.
    - `contents`: the content of each file by its name.
    """
    pixels = read_idx(contents[f"{part}-images-idx3-ubyte"])
    y = read_idx(contents[f"{part}-labels-idx1-ubyte"])
    return Dataset(pixels.flatten(1).float().div_(255.0), y.to(torch.int64), box=(0.0, 1.0))


def read_idx(content: bytes) -> Tensor:
    """The uint8 tensor of an idx file, the format of the MNIST family.

    Layout: two zero bytes, the code of the type (8: bytes), the number of axes; each size as a
    big-endian 32-bit integer; the values, last axis fastest.
    """
    begin = 4 + 4 * content[3]
    sizes = [int.from_bytes(content[k : k + 4], "big") for k in range(4, begin, 4)]
    # A copy, since a tensor on a bytes object could write to what can't be written.
    return torch.frombuffer(bytearray(content[begin:]), dtype=torch.uint8).reshape(sizes)


def read_cifar(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """The training and the test set of CIFAR-10: x = values / 255, 3072 of them, in planes.

    In the binary form of its authors an image is a byte of label, then 3 x 1024 bytes: planes of
    red, green and blue one after the other, rows of 32 pixels within each.
    """
    files = [contents[f"{name}.bin"] for name in CIFAR_BATCHES]
    return _joined_batches(files[:-1]), _joined_batches(files[-1:])


def _joined_batches(files: list[bytes]) -> Dataset:
    """The images of some files, one file at a time: the whole takes four times their bytes."""
    row_bytes = 1 + 3 * _CIFAR_PIXELS
    counts = [len(content) // row_bytes for content in files]
    x, y = torch.empty(sum(counts), row_bytes - 1), torch.empty(sum(counts), dtype=torch.int64)
    for content, own_x, own_y in zip(files, x.split(counts), y.split(counts), strict=True):
        rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, row_bytes)
        own_x.copy_(rows[:, 1:]).div_(255.0)
        own_y.copy_(rows[:, 0])
    return Dataset(x, y, box=(0.0, 1.0))


def cifar_from_png(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """CIFAR-10's binary files from pictures with one image in each row, and lists of labels."""
    train, test = (json.loads(contents[f"{part}_lables.json"]) for part in ("train", "test"))
    shape = (len(CIFAR_BATCHES), _CIFAR_BATCH_IMAGES, 1)
    labels = np.array([*train, *test], dtype=np.uint8).reshape(shape)
    files = {}
    for name, own_labels in zip(CIFAR_BATCHES, labels, strict=True):
        with Image.open(io.BytesIO(contents[f"{name}.png"])) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        planes = pixels.transpose(0, 2, 1).reshape(_CIFAR_BATCH_IMAGES, 3 * _CIFAR_PIXELS)
        files[f"{name}.bin"] = np.concatenate([own_labels, planes], axis=1).tobytes()
    return files


def read_digits(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """The digits of scikit-learn: 1437 training and 360 test images of 8 x 8 pixels.

    x = pixels / 16, y the digit. They need no file. The images come in the order of their writers,
    so that they are shuffled first, always alike.
    """
    # Here, since scikit-learn takes longer to import than all of this package's own modules.
    from sklearn.datasets import load_digits  # noqa: PLC0415

    del contents
    bunch = load_digits()
    x = torch.from_numpy(bunch.data).float().div_(_DIGITS_LARGEST_PIXEL)
    y = torch.from_numpy(bunch.target).to(torch.int64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    whole = Dataset(x[order], y[order], box=(0.0, 1.0))
    count = _DIGITS_TRAINING_IMAGES
    return whole.take(slice(count)), whole.take(slice(count, None))


def as_picture(x: Tensor) -> Tensor:
    """A point (dim,) as an image (height, width, planes): one or three square planes, else a row.

    Planes come one after the other in a point, as `load` and `load_folder` give them.

    Arguments:

    - `x`: a tensor (dim,).
    """
    for planes in (1, 3):
        size = round((len(x) / planes) ** 0.5)
        if planes * size * size == len(x):
            return x.reshape(planes, size, size).permute(1, 2, 0)
    return x.reshape(1, -1, 1)
