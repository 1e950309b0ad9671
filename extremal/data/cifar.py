"""CIFAR-10 in the binary form of its authors: each image a byte of label, then 3 x 1024 bytes.

Red, green and blue planes one after the other, rows of 32 pixels within each.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np
import torch
from PIL import Image

from extremal.data.dataset import Dataset

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
_PIXELS = 1024
_IMAGES = 10_000  # in a batch


def from_pictures(contents: Mapping[str, bytes]) -> dict[str, bytes]:
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
