"""Flat points seen as pictures."""

from __future__ import annotations

from torch import Tensor


def as_picture(x: Tensor) -> Tensor:
    """A point (dim,) as an image (height, width, planes): one or three square planes, else a row.

    Planes come one after the other in a point, as `load` and `load_folder` give them.
    """
    for planes in (1, 3):
        size = round((len(x) / planes) ** 0.5)
        if planes * size * size == len(x):
            return x.reshape(planes, size, size).permute(1, 2, 0)
    return x.reshape(1, -1, 1)
