"""The idx format of the MNIST family: a magic number, the sizes, then one byte a value.

CIFAR-10 in the binary form of its authors: each image a byte of label, then 3 x 1024 bytes.

Red, green and blue planes one after the other, rows of 32 pixels within each.

The digits of scikit-learn: small, real, and there without a download.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
_PIXELS = 1024
_IMAGES = 10_000  # in a batch


def cifar_from_png(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """The binary batches from pictures that have one image in each row, and lists of labels."""
    train, test = (json.loads(contents[f"{part}_lables.json"]) for part in ("train", "test"))
    labels = np.array([*train, *test], dtype=np.uint8).reshape(len(BATCHES), _IMAGES, 1)
    made = {}
    for name, part in zip(BATCHES, labels, strict=True):
        with Image.open(io.BytesIO(contents[f"{name}.png"])) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        planes = pixels.transpose(0, 2, 1).reshape(_IMAGES, 3 * _PIXELS)
        made[f"{name}.bin"] = np.concatenate([part, planes], axis=1).tobytes()
    return made


def read_cifar(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """The training and the test set: x = values / 255, 3072 of them, planes one after the other."""
    files = [contents[f"{name}.bin"] for name in BATCHES]
    return _joined(files[:-1]), _joined(files[-1:])


def _joined(files: list[bytes]) -> Dataset:
    """The images of some batches, one batch at a time: the whole is four times its bytes."""
    wide = 1 + 3 * _PIXELS
    counts = [len(content) // wide for content in files]
    x, y = torch.empty(sum(counts), wide - 1), torch.empty(sum(counts), dtype=torch.int64)
    for content, own_x, own_y in zip(files, x.split(counts), y.split(counts), strict=True):
        rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, wide)
        own_x.copy_(rows[:, 1:]).div_(255.0)
        own_y.copy_(rows[:, 0])
    return Dataset(x, y, box=(0.0, 1.0))


_TRAIN = 1437  # of 1797: four fifths
_LEVELS = 16.0  # the largest pixel


def read_digits(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """1437 training and 360 test images of 8 x 8 pixels, x = pixels / 16, y the digit.

    The images come in the order of their writers, so that they are shuffled first, always alike.
    """
    # Here, since scikit-learn takes longer to import than all of this package's own modules.
    from sklearn.datasets import load_digits  # noqa: PLC0415

    del contents
    bunch = load_digits()
    x = torch.from_numpy(bunch.data).float().div_(_LEVELS)
    y = torch.from_numpy(bunch.target).to(torch.int64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    whole = Dataset(x[order], y[order], box=(0.0, 1.0))
    return whole.take(slice(_TRAIN)), whole.take(slice(_TRAIN, None))


_BYTES = 0x08  # the format's code for unsigned bytes, the only kind that these data sets use


def read_idx(name: str, content: bytes, *, axes: int) -> Tensor:
    """The uint8 tensor of an idx file's content, of `axes` axes; anything else is a ValueError.

    Layout: two zero bytes, the code of the type, the number of axes; each size as a big-endian
    32-bit integer; the values, last axis fastest.
    """
    wanted = bytes([0, 0, _BYTES, axes])
    if content[:4] != wanted:
        rule = f"be an idx file of bytes with {axes} axes, which begins 0x{wanted.hex()}"
        raise ValueError(f"{name} must {rule}, got 0x{content[:4].hex()}")
    begin = 4 + 4 * axes
    sizes = [int.from_bytes(content[k : k + 4], "big") for k in range(4, begin, 4)]
    whole = begin + math.prod(sizes)
    if len(content) < begin or len(content) != whole:
        raise ValueError(f"{name} must have {whole} bytes for its sizes, got {len(content)}")
    # A copy, since a tensor on a bytes object could write to what can't be written.
    values = torch.frombuffer(bytearray(content[begin:]), dtype=torch.uint8)
    return values.reshape(sizes)


def read_mnist(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
    """The two sets of the MNIST family from its four files: x = pixels / 255, flat."""
    return read_part("train", contents), read_part("t10k", contents)


def read_part(name: str, contents: Mapping[str, bytes]) -> Dataset:
    """One of the two sets, "train" or "t10k", from its two files."""
    images, labels = f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"
    pixels = read_idx(images, contents[images], axes=3)
    y = read_idx(labels, contents[labels], axes=1)
    rule = f"have a label for each of {len(pixels)} images"
    _check.require(len(y) == len(pixels), labels, rule, len(y))
    return Dataset(pixels.flatten(1).float().div_(255.0), y.to(torch.int64), box=(0.0, 1.0))
