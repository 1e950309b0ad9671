"""What searches share: the network they look at, and when a point counts as broken by them.

A shallow network and points to attack, in the fewest coordinates that lose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

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

_FINE = 1e-7  # relative change of f that a search may make; about the rounding of float32
_COARSE = 1e-3  # what exploring may, where it leaves far fewer neurons
_MANY = 200  # neurons from which on fewer are looked for
_RANK = 1e-10  # relative to the largest singular value


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """Points x (n, dim') with their own outputs, and where each may go.

    For l2 without a box the coordinates are those of the neurons' span (`basis`), and one more, if
    inputs are normalised, for what a point has outside of it (`beyond`): f depends on nothing else,
    and norms are the same. Else they are the points' own.
    """

    form: TwoLayerForm
    x: Tensor
    own: Tensor  # (n, C) bool
    ball: Ball
    fine: nn.Module  # the network `form` is of, but not a coarse one
    basis: Tensor | None = None  # (r, dim)
    beyond: Tensor | None = None  # (n, dim) unit rows, or zero

    def __len__(self) -> int:
        return len(self.x)

    @property
    def widest(self) -> int:
        """The number of neurons or of coordinates, whichever is larger."""
        return max(self.x.shape[1], len(self.form.directions))

    def take(self, rows: Tensor) -> ReducedProblem:
        """The problem of the chosen points."""
        beyond = None if self.beyond is None else self.beyond[rows]
        ball = self.ball.take(rows)
        return replace(self, x=self.x[rows], own=self.own[rows], ball=ball, beyond=beyond)

    def lift(self, delta: Tensor) -> Tensor:
        """Perturbations of all points in the coordinates of the data."""
        if self.basis is None:
            return delta
        if self.beyond is None:
            return delta @ self.basis
        return delta[:, :-1] @ self.basis + delta[:, -1:] * self.beyond

    def enough(self) -> Tensor:
        """The margin (n,) at which a point counts as broken by a search in this dtype."""
        return stopping_margin(self.form.margins(self.x, self.own))


def reduced_problem(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    *,
    coarse: bool = False,
    whole: bool = False,
) -> ReducedProblem:
    """The search problem for a network that has a `TwoLayerForm` form.

    With `coarse` the network may be changed by a thousandth, where that leaves few neurons; with
    `whole` none of them is left out, for points where the others are silent.
    """
    fine, coarser = (net, net) if whole else _effective(net)
    form = as_two_layer_form(coarser if coarse else fine, x.dtype)
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


def _effective(net: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The network without neurons that do not matter to a search in float32, and a coarser one.

    The coarser one differs by a thousandth, if it is far smaller for it, or is the first.
    """
    inner = inner_network(net)
    if inner.hidden_bias is not None:
        return net, net
    made = reduced_networks(inner, (_FINE, _COARSE))
    fine = coarse = next(made)
    if fine.width > _MANY:
        fewer = next(made)
        coarse = fewer if 8 * fewer.width < fine.width else fine
    return with_readout_of(fine, net), with_readout_of(coarse, net)


def _span(directions: Tensor) -> Tensor:
    """An orthonormal basis (r, dim) of the rows' span."""
    _, s, v = torch.linalg.svd(directions.double(), full_matrices=False)
    rank = max(1, int((s > _RANK * s[0]).sum()))  # where all neurons are zero, any direction
    return v[:rank].to(directions.dtype)


_SEARCH_TOLERANCE = 1e-7  # about the rounding of a search in float32


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
    few = net.effective(_SEARCH_TOLERANCE)
    small = float64_copy(few).to(x.dtype)
    assert isinstance(small, PReLUNet)
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
