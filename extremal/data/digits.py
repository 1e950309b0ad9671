"""The digits of scikit-learn: small, real, and there without a download."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from extremal.data.dataset import Dataset

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
