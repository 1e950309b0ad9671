"""What is searched in the place of a network: fewer neurons, in the coordinates of their span.

A search on such a surrogate is cheaper and loses nothing: whatever it finds is verified on the
network itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from extremal._tensors import SHARED_BY_ROWS, RowRecord
from extremal.attack.ball import Ball
from extremal.models import (
    PReLUNet,
    Preparation,
    TwoLayerForm,
    as_two_layer_form,
    float64_copy,
    inner_network,
    reduced_networks,
    with_readout_of,
)

# A search may change f by this share, which is about the rounding of float32.
FINE_TOLERANCE = 1e-7
# Exploring may change f by this share, where that leaves far fewer neurons.
COARSE_TOLERANCE = 1e-3
# A coarser network is looked for only where a fine one has more neurons than this.
_MANY_NEURONS = 200
# A coarser network is used only where it has this many times fewer neurons than the fine one.
_WORTHWHILE_REDUCTION = 8
# Singular values below this share of the largest count as zero.
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class ReducedProblem(RowRecord):
    """Points x (n, dim') with their own outputs, and where each may go.

    For l2 without a box the coordinates are those of the neurons' span (`basis`), and one more, if
    inputs are normalised, for what a point has outside of it (`beyond`): f depends on nothing else,
    and norms are the same. Else they are the points' own.
    """

    form: TwoLayerForm
    x: Tensor
    own: Tensor  # (n, C) bool
    ball: Ball
    fine: TwoLayerForm  # of the network up to the rounding of float32, in the data's coordinates
    basis: Tensor | None = field(default=None, metadata=SHARED_BY_ROWS)  # (r, dim)
    beyond: Tensor | None = None  # (n, dim) unit rows, or zero

    def __len__(self) -> int:
        return len(self.x)

    @property
    def widest(self) -> int:
        """The number of neurons or of coordinates, whichever is larger."""
        return max(self.x.shape[1], len(self.form.directions))

    def lift(self, delta: Tensor) -> Tensor:
        """Perturbations of all points in the coordinates of the data."""
        if self.basis is None:
            return delta
        if self.beyond is None:
            return delta @ self.basis
        return delta[:, :-1] @ self.basis + delta[:, -1:] * self.beyond

    def broken_below(self) -> Tensor:
        """The margin (n,) at which a point counts as broken by a search in this dtype."""
        return stopping_margin(self.form.margins(self.x, self.own))


def reduced_problem(
    net: nn.Module, x: Tensor, y: Tensor, ball: Ball, *, tolerance: float = FINE_TOLERANCE
) -> ReducedProblem:
    """The search problem for a network that has a `TwoLayerForm` form.

    The network may be changed by a share `tolerance`: `FINE_TOLERANCE`, or `COARSE_TOLERANCE` where
    that leaves few neurons. With 0 no neuron is left out, for points where the others are silent.
    """
    forms = [as_two_layer_form(part, x.dtype) for part in _reduced(net, tolerance)]
    fine, form = forms[0], forms[-1]
    assert fine is not None  # since `inner_network` asks for a network that has one
    assert form is not None
    own = form.own(y)
    if ball.norm != "l2" or ball.box is not None:
        return ReducedProblem(form, x, own, ball, fine)
    basis = _span(form.directions)
    normalised = form.preparation.normalize > 0.0
    if len(basis) + normalised >= form.dim:
        return ReducedProblem(form, x, own, ball, fine)
    center = form.preparation.center
    moved = x if center is None else x - center
    inside = moved @ basis.T
    directions = form.directions @ basis.T
    preparation = Preparation(form.preparation.scale, None, form.preparation.normalize)
    beyond = None
    if normalised:
        outside = moved - inside @ basis
        length = torch.linalg.vector_norm(outside, dim=1, keepdim=True)
        beyond = outside / torch.where(length > 0, length, 1.0)
        inside = torch.cat([inside, length], 1)
        directions = nn.functional.pad(directions, (0, 1))
    small = replace(form, directions=directions, preparation=preparation)
    return ReducedProblem(small, inside, own, ball, fine, basis, beyond)


def _reduced(net: nn.Module, tolerance: float) -> list[nn.Module]:
    """The network without neurons that do not matter to a search in float32.

    And a coarser one that differs by `tolerance`, if that is allowed and leaves far fewer neurons.
    """
    inner = inner_network(net)
    if tolerance == 0.0 or inner.hidden_bias is not None:
        return [net]
    made = reduced_networks(inner, (FINE_TOLERANCE, tolerance))
    found = [next(made)]
    if tolerance > FINE_TOLERANCE and found[0].width > _MANY_NEURONS:
        fewer = next(made)
        if _WORTHWHILE_REDUCTION * fewer.width < found[0].width:
            found.append(fewer)
    return [with_readout_of(part, net) for part in found]


def _span(directions: Tensor) -> Tensor:
    """An orthonormal basis (r, dim) of the rows' span."""
    _, s, v = torch.linalg.svd(directions.double(), full_matrices=False)
    # Where all neurons are zero, any direction will do.
    rank = max(1, int((s > _RANK_TOLERANCE * s[0]).sum()))
    return v[:rank].to(directions.dtype)


def surrogate_network(net: nn.Module, x: Tensor) -> nn.Module:
    """A copy of the network to search with: evaluation mode, the points' dtype.

    Of a shallow network without hidden biases it has the effective neurons only, which are few
    after training from a small start; where all of those are silent it asks the whole network,
    whose small outputs and gradients lead on. What the search finds is verified on the network
    itself.

    Arguments:

    - `net`: the network, a `torch.nn.Module`; it is not changed.
    - `x`: the points, or any tensor of their dtype: its values are not looked at.
    """
    whole = float64_copy(net).to(x.dtype)
    if not isinstance(net, PReLUNet) or net.hidden_bias is not None:
        return whole
    few = net.effective(FINE_TOLERANCE)
    small = float64_copy(few).to(x.dtype)
    assert few.reduction is not None
    lost = ~few.reduction.kept & (few.reduction.contribution_sizes.amax(0) > 0)
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


def stopping_margin(start: Tensor) -> Tensor:
    """The margin below which a search may stop, -sqrt(eps) |start|, (n,).

    A margin of zero up to the rounding of the search may turn out positive in float64.
    """
    share: float = torch.finfo(start.dtype).eps ** 0.5
    return -share * start.abs()
