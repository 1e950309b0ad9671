"""Clean accuracy, as a whole and for each latent subclass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import margin

# Points that are put through the network at a time.
_BATCH_POINTS = 4096


def correct(net: nn.Module, data: Dataset) -> Tensor:
    """Whether each point's margin is positive, (n,) bool.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `data`: a `Dataset`, with points in the network's own dtype.
    """
    _check.instance("data", data, Dataset, "be a Dataset")
    with torch.no_grad():
        parts = [
            margin(net, x, y) > 0
            for x, y in zip(data.x.split(_BATCH_POINTS), data.y.split(_BATCH_POINTS), strict=True)
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
    _check.instance("data", data, Dataset, "be a Dataset")
    known = _check.instance("data.group", data.group, Tensor, "be known for accuracies by group")
    right = correct(net, data).double()
    count = int(known.max()) + 1
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, known, right)
    return sums / torch.bincount(known, minlength=count)
