"""What searches share: the network they look at, and when a point counts as broken by them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal.models import PReLUNet, double

_SEARCH_TOLERANCE = 1e-7  # about the rounding of a search in float32


def search_copy(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy of the network to search with: evaluation mode, the points' dtype.

    Of a shallow network without hidden biases it has the effective neurons only, which are few
    after training from a small start; where all of those are silent it asks the whole network,
    whose small outputs and gradients lead on. What the search finds is verified on the network
    itself.
    """
    whole = double(net).to(x.dtype)
    if not isinstance(net, PReLUNet) or net.hidden_bias is not None:
        return whole
    few = net.effective(_SEARCH_TOLERANCE)
    small = double(few).to(x.dtype)
    assert isinstance(small, PReLUNet)
    assert few.reduction is not None
    lost = ~few.reduction.kept & (few.reduction.mass.amax(0) > 0)
    return _Completed(small, whole) if bool(lost.any()) else small


class _Completed(nn.Module):
    """A reduced network, and the whole one at the points where it is constant."""

    def __init__(self, small: PReLUNet, whole: nn.Module) -> None:
        super().__init__()
        self.small, self.whole = small, whole

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.small(x)
        moved = out if self.small.bias is None else out - self.small.bias
        silent = (moved.reshape(len(x), -1) == 0).all(1)
        rows = torch.nonzero(silent).squeeze(1)
        return out if len(rows) == 0 else out.index_copy(0, rows, self.whole(x[rows]))


def clearly_broken(start: Tensor) -> Tensor:
    """The margin below which a search may stop, -sqrt(eps) |start|, (n,).

    A margin of zero up to the rounding of the search may turn out positive in float64.
    """
    share: float = torch.finfo(start.dtype).eps ** 0.5
    return -share * start.abs()
