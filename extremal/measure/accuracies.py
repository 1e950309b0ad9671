"""Clean accuracy, as a whole and for each latent subclass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import margin

_BATCH = 4096


def correct(net: nn.Module, data: Dataset) -> Tensor:
    """Whether each point's margin is positive, (n,) bool.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `data`: a `Dataset`, with points in the network's own dtype.
    """
    _check_dataset(data)
    with torch.no_grad():
        parts = [
            margin(net, x, y) > 0
            for x, y in zip(data.x.split(_BATCH), data.y.split(_BATCH), strict=True)
        ]
    return torch.cat(parts)


def accuracy(net: nn.Module, data: Dataset) -> float:
    """The share of points with a positive margin.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `data`: a `Dataset`, with points in the network's own dtype.
    """
    return float(correct(net, data).double().mean())


def accuracy_by_group(net: nn.Module, data: Dataset) -> Tensor:
    """The accuracy on each group 0..K-1, (K,); NaN where a group has no point.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `data`: a `Dataset`, with points in the network's own dtype and with known groups.
    """
    _check_dataset(data)
    _check.require(data.group is not None, "data.group", "be known for accuracies by group", None)
    assert data.group is not None
    right = correct(net, data).double()
    count = int(data.group.max()) + 1
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, data.group, right)
    return sums / torch.bincount(data.group, minlength=count)


def _check_dataset(data: object) -> None:
    _check.instance("data", data, Dataset, "be a Dataset")
