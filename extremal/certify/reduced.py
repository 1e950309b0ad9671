"""The network that is certified in place of a large one, and what that may cost."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal.models import Grouped, PReLUNet, Shallow, shallow

TOLERANCES = (1e-3, 1e-5, 1e-7)  # relative changes of f that are tried, the coarsest first
FEW = 64  # neurons below which nothing is gained
SMALLER = 4  # times fewer neurons are worth a change
WORTH = 0.004  # of the median margin: what a change may cost


def reduced(net: nn.Module, x: Tensor, margins: Tensor) -> tuple[Shallow, float]:
    """A network to certify, and by how much the margin of `net` may be smaller anywhere near.

    "Near" is within twice the largest norm of a point: the difference is bounded there by
    `Reduction.bound`, for each of the two outputs of a margin. Networks that do not get much
    smaller for little are certified as they are, with a difference of zero.
    """
    inner = net.net if isinstance(net, Grouped) else net
    assert isinstance(inner, PReLUNet)
    whole = shallow(net)
    assert whole is not None
    if inner.hidden_bias is not None or inner.width <= FEW:
        return whole, 0.0
    reach = 2.0 * float(torch.linalg.vector_norm(x.double(), dim=1).max())
    worth = WORTH * float(margins[margins > 0].median()) if bool((margins > 0).any()) else 0.0
    for tolerance in TOLERANCES:
        small = inner.effective(tolerance)
        if SMALLER * small.width > inner.width:
            break
        assert small.reduction is not None
        change = small.reduction.bound(reach) * (1.0 if inner.outputs == 1 else 2.0)
        if change <= worth:
            read = (
                Grouped(small, net.groups, signed=net.signed) if isinstance(net, Grouped) else small
            )
            form = shallow(read)
            assert form is not None
            return form, change
    return whole, 0.0
