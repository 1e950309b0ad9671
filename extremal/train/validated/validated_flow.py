"""Gradient flow with a proof: directions and contributions at a time, and what stays for ever.

The flow is computed as polynomials in time (`taylor_solution`), then their distance from the true
flow is bounded (`error_bound`), whatever the way in which they were found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.flow.gradient_flow import can_be_staged
from extremal.train.validated.error_bound import error_bound
from extremal.train.validated.flow_tube import SUM_ERROR
from extremal.train.validated.interval_arithmetic import Array, IntervalArray, intervals
from extremal.train.validated.taylor_solution import FlowEquation, taylor_solution

# Rounding of sums of more terms than this is not covered by `SUM_ERROR`.
_MOST_SUMMANDS = 1000
# Own samples are on for all neurons of a trap where its cosine is above cos(45 degrees).
_LEAST_TRAP_COSINE = 0.7072


@dataclass(frozen=True, eq=False)
class ValidatedFlow:
    """Where the exact gradient flow of the mean exponential loss is at `time`: a proven enclosure.

    It is proven from two assumptions: + - * / and sqrt of float64 are rounded to nearest (numbers
    below 1e-307 may become zero), and numpy's exp, expm1, log and powers are right to four units in
    the last place.
    """

    time: float  # the sum of the steps, to rounding; less than asked for where the proof broke off
    complete: bool  # whether that is the time asked for
    directions: Tensor  # (width, dim), unit vectors to rounding
    direction_error: Tensor  # (width,), the true direction is at most so far from that
    contributions: tuple[Tensor, Tensor]  # (width,) twice: v_j ||w_j|| lies between them
    pieces: int  # polynomials that were checked

    def cosines(self, directions: Tensor) -> Tensor:
        """Proven lower bounds (width, K) on the cosines with `directions` (K, dim)."""
        _check.matrix("directions", directions, columns=self.directions.shape[1])
        return torch.from_numpy(_cosines(self._place(), directions.double().numpy()).low)

    def dominant(self, share: float = 0.99) -> tuple[int, ...]:
        """The fewest neurons that are proven to carry a `share` of all |v_j| ||w_j||, by size."""
        _check.number("share", share, above=0.0, maximum=1.0)
        low, high = self.contributions
        most = torch.maximum(low.abs(), high.abs())
        least = torch.where(low * high > 0, torch.minimum(low.abs(), high.abs()), 0.0)
        order = torch.argsort(least, descending=True, stable=True)
        inside = least[order].cumsum(0)
        outside = most.sum() - most[order].cumsum(0) + SUM_ERROR * most.sum()
        enough = inside * (1.0 - SUM_ERROR) >= share * (inside + outside)
        return tuple(order[: len(order) - int(enough.sum()) + 1].tolist())

    def trapped(self, train: Dataset, centres: Tensor, cosine: float) -> tuple[Tensor, Tensor]:
        """Which neurons are proven to stay near a centre, or to stand still, for all later time.

        Returns the index (width,) of the centre within whose `cosine` a neuron remains, -1 where
        none is proven, and whether (width,) it never moves again, since no sample reaches it.

        A cone of half-angle d < 45 degrees about a centre is a trap where each sample either has
        the cone's label and lies in the cone, or is at least 90 degrees + d away from its axis:
        whatever the other neurons do, samples of the first kind pull neurons of that sign into the
        cone, and those of the second kind do not reach them. If all neurons are trapped or stand
        still, contributions in each cone that has a neuron grow without bound, since bounded ones
        would leave a constant pull; so the share of those that stand still goes to 0.

        Arguments:

        - `train`: the data of the flow.
        - `centres`: the axes of the cones (K, dim).
        - `cosine`: cos d, above 0.7072.
        """
        _check.number("cosine", cosine, minimum=_LEAST_TRAP_COSINE, maximum=1.0)
        _check.matrix("centres", centres, columns=self.directions.shape[1])
        x, axes = train.x.double().numpy(), centres.double().numpy()
        reach = _cosines(intervals(x), axes)  # (n, K)
        own = reach.low >= cosine
        sine = (1.0 - intervals(cosine) * cosine).sqrt().high
        label = np.where(own, train.y.double().numpy()[:, None], 0.0)
        sign = np.sign(label.sum(0))
        trap = (own & (label == sign) | (reach.high <= -sine)).all(0) & own.any(0)
        inside = self.cosines(centres).numpy() >= cosine
        low, high = (part.numpy()[:, None] for part in self.contributions)
        inside &= trap & np.where(sign > 0, low > 0, high < 0)
        centre = np.where(inside.any(1), inside.argmax(1), -1)
        still = (self._place()[:, None] * x).sum(-1).high < 0
        return torch.from_numpy(centre), torch.from_numpy(still.all(1))

    def _place(self) -> IntervalArray:
        rad = np.broadcast_to(self.direction_error.numpy()[:, None], self.directions.shape)
        return IntervalArray(self.directions.numpy(), rad)


def validated_flow(
    net: PReLUNet,
    train: Dataset,
    *,
    until: float,
    tube: float = 1e-5,
    max_pieces: int = 1000,
) -> ValidatedFlow:
    """Follow gradient flow of the mean exponential loss and prove where it is at time `until`.

    The network is not changed. This is for small problems: the cost grows like width^2 n + width^3
    for each of some hundred pieces. Where the proof breaks off, because errors exceed the tube or
    there are too many pieces, the result holds for the time up to which it was proven.

    Arguments:

    - `net`: a one-output `PReLUNet` with p = 2, 3, 4, ..., nothing frozen, no biases, no
      preparation and no zero neuron.
    - `train`: the training data, a `Dataset` with labels -1 and +1.
    - `until`: the flow time to end at.
    - `tube`: the largest error of a direction, of v/||w|| and of log ||w|| that the proof may use.
    - `max_pieces`: the most polynomials.
    """
    rule = "be a one-output PReLUNet with p = 2, 3, 4, ... that can be followed in stages"
    fits = isinstance(net, PReLUNet) and can_be_staged(net) and net.p >= 2 and net.p % 1 == 0
    _check.require(fits, "net", rule, repr(net))
    _check.instance("train", train, Dataset, "be a Dataset")
    _check.signs("train.y", train.y, count=len(train))
    small = max(len(train), train.dim, 3 * net.width) <= _MOST_SUMMANDS
    rule = f"have at most {_MOST_SUMMANDS} samples and dimensions, with a third as many neurons"
    sizes = f"{len(train)} samples in {train.dim} dimensions, {net.width} neurons"
    _check.require(small, "train", rule, sizes)
    _check.number("until", until, above=0.0)
    _check.number("tube", tube, above=0.0, maximum=1e-2)
    _check.integer("max_pieces", max_pieces, minimum=1)
    x, y = train.x.double().numpy(), train.y.double().numpy()
    equation = FlowEquation(x, y, int(net.p))
    start = _start(net)
    pieces = taylor_solution(
        equation, (start[0].mid, start[1].mid, start[2].mid), until, max_pieces
    )
    first = np.stack([_longest(start[0].rad), start[1].rad, start[2].rad])
    bound, count = error_bound(equation, pieces, first, tube)
    ends = (
        intervals(part[:, max(count - 1, 0)]).sum(0) for part in (pieces.u, pieces.r, pieces.lam)
    )
    u, r, lam = ends if count else start
    r, lam = (one + IntervalArray(0.0 * e, e) for one, e in zip((r, lam), bound[1:], strict=True))
    c = r * (lam * 2.0).exp()
    return ValidatedFlow(
        time=math.fsum(pieces.length[:count]),
        complete=count == len(pieces.length) and bool(pieces.length.sum() >= until * (1 - 1e-12)),
        directions=torch.from_numpy(u.mid),
        direction_error=torch.from_numpy(bound[0] * (1.0 + SUM_ERROR) + _longest(u.rad)),
        contributions=(torch.from_numpy(c.low), torch.from_numpy(c.high)),
        pieces=count,
    )


def _longest(sizes: Array) -> Array:
    """Upper bounds on the lengths of vectors whose entries are at most `sizes`."""
    return sizes.sum(-1) * (1.0 + SUM_ERROR)


def _start(net: PReLUNet) -> tuple[IntervalArray, IntervalArray, IntervalArray]:
    """The network's u, v/||w|| and log ||w||, from weights taken as exact numbers."""
    with torch.no_grad():
        w, v = net.neurons.double().numpy(), net.votes[0].double().numpy()
    # A power of two brings each neuron to order one, so that no square is lost.
    exponent = np.frexp(np.abs(w).max(1))[1]
    w, v = np.ldexp(w, -exponent[:, None]), np.ldexp(v, -exponent)
    norm = (intervals(w) * w).sum(-1).sqrt()
    over = norm.inverse()
    log_two = IntervalArray.between(*(math.log(2.0) * (1.0 + sign * 2.0**-50) for sign in (-1, 1)))
    return over[:, None] * w, over * v, norm.log() + log_two * exponent


def _cosines(vectors: IntervalArray, axes: Array) -> IntervalArray:
    """Cosines (m, K) between vectors (m, dim) and axes (K, dim)."""
    inner = (vectors[:, None] * axes).sum(-1)
    with np.errstate(all="ignore"):  # a zero vector has no cosine, and nothing is proven of it
        lengths = [(one * one).sum(-1).sqrt().inverse() for one in (vectors, intervals(axes))]
        return inner * lengths[0][:, None] * lengths[1]
