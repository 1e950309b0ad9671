"""What searches share: the network they look at, and when a point counts as broken by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal.models import PReLUNet, double

_SEARCH_TOLERANCE = 1e-7  # about the rounding of a search in float32


def search_copy(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy of the network to search with: evaluation mode, the points' dtype.

    Of a shallow network without hidden biases it has the effective neurons only, which are few
    after training from a small start. What the search finds is verified on the network itself.
    """
    if isinstance(net, PReLUNet) and net.hidden_bias is None:
        net = net.effective(_SEARCH_TOLERANCE)
    return double(net).to(x.dtype)


def clearly_broken(start: Tensor) -> Tensor:
    """The margin below which a search may stop, -sqrt(eps) |start|, (n,).

    A margin of zero up to the rounding of the search may turn out positive in float64.
    """
    share: float = torch.finfo(start.dtype).eps ** 0.5
    return -share * start.abs()
