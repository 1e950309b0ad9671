"""The network that is certified in place of a large one, and what that may cost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.attack.recheck import BATCH, batches
from extremal.models import Grouped, PReLUNet, Shallow, shallow

TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-7)  # relative changes of f that are tried, the coarsest first
FEW = 64  # neurons below which nothing is gained
SMALLER = 4  # times fewer neurons are worth a change
WORTH = 0.006  # of the median margin: what a change may cost


@dataclass(frozen=True, eq=False)
class Reduced:
    """A network to certify in place of another, whose margin may be smaller by `slack`.

    That holds for inputs of l2 norm up to `reach`.
    """

    form: Shallow
    slack: float
    reach: float
    margins: Tensor  # (n,): what the original's margins at the points are at least

    def limit(self, x: Tensor, norm: str) -> Tensor:
        """The radius (n,) up to which balls around x stay within reach."""
        left = self.reach - torch.linalg.vector_norm(x.double(), dim=1)
        return left / x.shape[1] ** 0.5 if norm == "linf" else left


def reduced(net: nn.Module, x: Tensor, y: Tensor) -> Reduced:
    """The smallest network that is close enough to `net`, or itself with a slack of zero.

    The difference is bounded within twice the largest norm of a point by `Reduction.bound`, for
    each of the two outputs of a margin.
    """
    inner = net.net if isinstance(net, Grouped) else net
    assert isinstance(inner, PReLUNet)
    if inner.hidden_bias is None and inner.width > FEW:
        reach = 2.0 * float(torch.linalg.vector_norm(x.double(), dim=1).max())
        for tolerance in TOLERANCES:
            small = inner.effective(tolerance)
            if SMALLER * small.width > inner.width:
                break
            assert small.reduction is not None
            slack = small.reduction.bound(reach) * (1.0 if inner.outputs == 1 else 2.0)
            found = _read(net, small, x, y, slack, reach)
            positive = found.margins[found.margins > 0]
            if len(positive) > 0 and slack <= WORTH * float(positive.median()):
                return found
    return _read(net, inner, x, y, 0.0, torch.inf)


def _read(
    net: nn.Module, small: PReLUNet, x: Tensor, y: Tensor, slack: float, reach: float
) -> Reduced:
    """A smaller network in place of `net`."""
    read: nn.Module = small
    if isinstance(net, Grouped):
        read = Grouped(small, net.groups, signed=net.signed)
    form = shallow(read)
    assert form is not None
    own = form.own(y)
    parts = [form.margins(x[at].double(), own[at]) for at in batches(len(x), BATCH)]
    return Reduced(form, slack, reach, torch.cat(parts) - slack)
