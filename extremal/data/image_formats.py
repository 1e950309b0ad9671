"""The idx format of the MNIST family: a magic number, the sizes, then one byte a value."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from extremal import _check
from extremal.data.dataset import Dataset

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


def read_images(contents: Mapping[str, bytes]) -> tuple[Dataset, Dataset]:
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
