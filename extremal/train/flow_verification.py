"""Whether a flow at a finer tolerance, from the same start, ends where a flow has ended."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.measure import contributions, cosines
from extremal.models import PReLUNet, float64_copy
from extremal.train.losses import Loss

# Outputs or a loss that change by more than this share are a warning.
_MOST_CHANGE = 0.01
# The heaviest neurons that carry this share of all contributions must have a counterpart.
_DOMINANT_SHARE = 0.99
# A counterpart is among the neurons that carry this share.
_COUNTERPART_SHARE = 0.999
# A counterpart has at least this cosine.
_COUNTERPART_COSINE = 0.9


class UnverifiedFlowWarning(UserWarning):
    """A flow whose outcome changes with a finer tolerance."""


@dataclass(frozen=True)
class FlowVerification:
    """What a flow at a tenth of the tolerance changed."""

    tolerance: float  # of the finer flow
    output_change: float  # the largest, of f on the data, over the largest |f|
    loss_change: float  # relative
    lost_directions: int  # of the finer flow's dominant neurons, those that ours has none near
    new_directions: int  # of our dominant neurons, those that the finer flow has none near


def compared(
    net: nn.Module, finer: nn.Module, train: Dataset, loss: Loss, tolerance: float
) -> FlowVerification:
    """A flow's network beside that of a finer flow, at `tolerance`; a warning where they differ."""
    x = train.x.double()
    with torch.no_grad():
        ours, theirs = (float64_copy(one)(x) for one in (net, finer))
    losses = [float(loss.value(out, train.y)) for out in (ours, theirs)]
    largest = float(theirs.abs().max().clamp(min=1e-300))
    found = FlowVerification(
        tolerance,
        float((ours - theirs).abs().max()) / largest,
        abs(losses[0] - losses[1]) / max(abs(losses[1]), 1e-300),
        _without_counterpart(finer, net),
        _without_counterpart(net, finer),
    )
    changed = max(found.output_change, found.loss_change) > _MOST_CHANGE
    if changed or found.lost_directions > 0 or found.new_directions > 0:
        message = (
            f"at tolerance {tolerance:g} the flow ends elsewhere: outputs change by "
            f"{found.output_change:.2g}, the loss by {found.loss_change:.2g}; of the dominant "
            f"neurons {found.lost_directions} are missing and {found.new_directions} are new"
        )
        warnings.warn(message, UnverifiedFlowWarning, stacklevel=4)
    return found


def _without_counterpart(net: nn.Module, other: nn.Module) -> int:
    """How many dominant neurons of `net` have none of `other` near them; 0 unless both have any."""
    if not (isinstance(net, PReLUNet) and isinstance(other, PReLUNet)):
        return 0
    mine = net.neurons.detach().double()[_heaviest(net, _DOMINANT_SHARE)]
    theirs = other.neurons.detach().double()[_heaviest(other, _COUNTERPART_SHARE)]
    return int((cosines(mine, theirs).amax(1) < _COUNTERPART_COSINE).sum())


def _heaviest(net: PReLUNet, share: float) -> Tensor:
    """The fewest neurons that carry a share of all contributions."""
    mass, order = contributions(net).sort(descending=True)
    return order[: int((mass.cumsum(0) < share * mass.sum()).sum()) + 1]
