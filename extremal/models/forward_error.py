"""What rounding may do to a margin, and what follows: when a point is right, broken, or a tie.

**The rule.** The margin of a point is that of exact arithmetic with the weights as stored. It is
computed in float64, and lies between a `lowest` and a `highest` number that its rounding allows. A
point is *right* where the lowest is above zero, *broken* where the highest is not, and a *tie*
where rounding decides. Attacks count as broken what is broken, certificates hold where a network as
it runs, in its own dtype and with sums in whatever order, has a positive margin in the whole ball.
What rounding decides is neither.

**The bounds** are forward errors (Higham 2002, chapter 3). With u = eps / 2 the unit of rounding,
k operations in a row or a sum of k terms in any order are wrong by a share of at most
k u / (1 - k u), and by the smallest normal number each, where results underflow or are flushed to
zero. For a shallow network, sum_j v_j ||w_j|| relu(s_j)^p + b with s_j = <z, w_j> / ||w_j|| + o_j:

- z = preparation(x): one operation for the centre, two for the scale, and where inputs are
  normalised dim / 2 for ||z|| and a few for its powers;
- s_j: dim for the product and dim / 2 for ||w_j||, of sum_i |z_i| |w_ji| / ||w_j|| + |o_j|;
- relu(s_j)^p: convex and growing, so that it lies between its values at s_j minus and plus that;
  a power has its own roundings, ||w_j|| again dim / 2;
- the sum over neurons: width, of the sum of |v_j| times the above.

For p = 1 nothing is divided by ||w_j||. Neurons with the same vote for two outputs do not count in
the difference of these, which is computed from the differences of votes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal._tensors import RowRecord, batches, rounding_share
from extremal.models.activations import relu_power
from extremal.models.classification_margin import float64_copy, margin
from extremal.models.layer_chain import chain_rounding, is_chain
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import directions_and_norms
from extremal.models.two_layer_form import (
    TwoLayerForm,
    as_two_layer_form,
    inner_network,
    is_shallow,
)

# Points whose margins are computed at a time: 2000 neurons then take 16 MB in float64.
_POINTS_AT_A_TIME = 1024
# A power or another elementary function of PyTorch is wrong by at most so many u: 2 of them are a
# unit in the last place, which is what its libraries promise.
_FUNCTION_ROUNDINGS = 4.0
# Powers that are computed as products.
_POWERS_BY_PRODUCTS = (1.0, 2.0, 3.0, 4.0)
# An activation below this is not told from zero: 2^100 times the smallest normal float64.
_LEAST_ACTIVATION = 2.0**-922
# Values up to this share of the largest number of a dtype leave room for their roundings.
_OVERFLOW_SHARE = 0.125


@dataclass(frozen=True, eq=False)
class MarginRange(RowRecord):
    """Margins of n points in float64, and between which numbers exact arithmetic has them."""

    margin: Tensor  # (n,): as computed
    lowest: Tensor  # (n,)
    highest: Tensor  # (n,)

    @property
    def right(self) -> Tensor:
        """Where the class is certain to be the label's, (n,) bool."""
        return self.lowest > 0

    @property
    def broken(self) -> Tensor:
        """Where the class is certain not to win, (n,) bool; outputs that are equal win nothing."""
        return self.highest <= 0

    @property
    def tie(self) -> Tensor:
        """Where rounding decides, (n,) bool."""
        return ~self.right & ~self.broken


MarginJudge = Callable[[Tensor, Tensor], MarginRange]
"""What gives the `MarginRange` of points (n, dim) and labels (n,)."""


def margin_range(net: nn.Module, x: Tensor, y: Tensor) -> MarginRange:
    """The margins of points, and between which numbers exact arithmetic with the same weights is.

    The one rule for what is right, broken or a tie: attacks are checked by it, and certificates
    mean it. A network that is neither shallow nor a chain of known layers is taken at its word:
    nothing is known of its rounding, and the range is the margin alone.

    Arguments:

    - `net`: any module from points (n, dim) to outputs (n,), or (n, C) with C >= 2; a float64 copy
      in evaluation mode is asked.
    - `x`: points (n, dim).
    - `y`: labels (n,), whole numbers: -1 / +1 for one output, 0..C-1 for C outputs.
    """
    judge = margin_judge(net)
    parts = [judge(x[at], y[at]) for at in batches(len(x), _POINTS_AT_A_TIME)]
    return MarginRange(
        torch.cat([part.margin for part in parts]),
        torch.cat([part.lowest for part in parts]),
        torch.cat([part.highest for part in parts]),
    )


def margin_judge(net: nn.Module) -> MarginJudge:
    """`margin_range` of one network as a function of points and labels, for many calls.

    Arguments:

    - `net`: as for `margin_range`; what is later done to it does not change the judge.
    """
    twin = float64_copy(net)
    if is_shallow(twin):
        return _ShallowJudge(twin)
    chain = is_chain(twin)

    def judge(x: Tensor, y: Tensor) -> MarginRange:
        x = x.double()
        with torch.no_grad():
            value = margin(twin, x, y)
        error = torch.zeros_like(value)
        if chain:
            length = torch.linalg.vector_norm(x.flatten(1), dim=1)
            error = chain_rounding(twin, length, torch.float64)
        return MarginRange(value, value - error, value + error)

    return judge


class _ShallowJudge:
    """Margins of a float64 `PReLUNet`, or a `Grouped` one, from the differences of votes."""

    def __init__(self, net: nn.Module) -> None:
        form = as_two_layer_form(net)
        assert form is not None
        self._net, self._form = inner_network(net), form
        self._rounding = two_layer_rounding(net, torch.float64)
        votes: Tensor = self._net.votes
        bias = torch.zeros_like(votes[:, 0]) if self._net.bias is None else self._net.bias
        if self._net.outputs == 1:
            half = torch.tensor([-0.5, 0.5], dtype=votes.dtype, device=votes.device)
            votes, bias = half[:, None] * votes, half * bias
        self._votes, self._bias = votes, bias

    def __call__(self, x: Tensor, y: Tensor) -> MarginRange:
        activations, own = self._activations(x.double()), self._form.own(y)
        best = [torch.full_like(part[:, 0], -torch.inf) for part in activations]
        for output in torch.nonzero(own.any(0)).squeeze(1).tolist():
            rows = torch.nonzero(own[:, output]).squeeze(1)
            for most, each in zip(best, self._gaps(activations, rows, output), strict=True):
                least = each.masked_fill(own[rows], torch.inf).amin(1)
                most[rows] = torch.maximum(most[rows], least)
        return MarginRange(*best)

    def _activations(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """relu(s)^p, and the least and the largest that it may be, (n, h) each."""
        net, rounding = self._net, self._rounding
        directions, _, offsets = net.directions_norms_offsets()
        z = net.preparation(x)
        s = nn.functional.linear(z, directions, offsets)
        before = torch.linalg.vector_norm(net.preparation.scaled_offset(x), dim=1)
        lengths = torch.linalg.vector_norm(directions, dim=1)
        sizes = torch.linalg.vector_norm(z, dim=1).unsqueeze(1) * lengths
        if offsets is not None:
            sizes = sizes + offsets.nan_to_num(neginf=0.0).abs()
        lost = lengths * rounding.lost_preactivation(before, before, net.preparation.normalize)
        shift = rounding.inner * sizes + torch.where(before.unsqueeze(1) > 0, lost, 0.0)
        low = relu_power(s - shift, net.p) * (1.0 - rounding.power) - _LEAST_ACTIVATION
        high = relu_power(s + shift, net.p) * (1.0 + rounding.power) + _LEAST_ACTIVATION
        high = torch.where(s + shift > 0, high, 0.0)
        return relu_power(s, net.p), low.clamp(min=0.0), high

    def _gaps(
        self, activations: tuple[Tensor, Tensor, Tensor], rows: Tensor, output: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One output minus each, (m, C), at `rows`; the least and the largest that it may be."""
        norms = self._net.directions_norms_offsets()[1]
        gap = ((self._votes[output] - self._votes) * norms).T  # (h, C)
        constant = self._bias[output] - self._bias
        value, low, high = (part[rows] for part in activations)
        own, other = gap.clamp(min=0.0), (-gap).clamp(min=0.0)
        share, floor = self._rounding.outer, self._rounding.floor.sum()
        least, against = low @ own + constant.clamp(min=0.0), high @ other - constant.clamp(max=0.0)
        most, beyond = high @ own + constant.clamp(min=0.0), low @ other - constant.clamp(max=0.0)
        lowest = (1.0 - share) * least - (1.0 + share) * against - floor
        highest = (1.0 + share) * most - (1.0 - share) * beyond
        highest = torch.where(most > 0, highest + floor, highest)
        lowest, highest = lowest.nan_to_num(nan=-torch.inf), highest.nan_to_num(nan=torch.inf)
        return value @ gap + constant, lowest, highest


@dataclass(frozen=True, eq=False)
class TwoLayerRounding:
    """What rounding may do to a `PReLUNet` of h neurons and C outputs (two of one output).

    The pre-activation s_j is wrong by at most `inner`_j (sum_i |z_i| |u_ji| + |o_j|) and what
    `lost_preactivation` says, each ||w_j|| relu(s_j)^p by a share `power`_j beyond that, a sum
    over neurons by a share `outer` of its terms' sizes, and an output by `constant` and `floor`
    beyond that.
    """

    inner: Tensor  # (h,)
    absolute: Tensor  # (h,): what underflow may cost a pre-activation, for ||z|| = 0
    power: Tensor  # (h,)
    outer: float
    constant: Tensor  # (C,): that share of what is the same for all inputs
    floor: Tensor  # (C,): what underflow may cost an output
    most_norm: float  # the largest ||prepared(x)|| + largest |offset| at which nothing overflows

    def lost_preactivation(self, least: Tensor, most: Tensor, normalize: float) -> Tensor:
        """What underflow may cost pre-activations, (n, h).

        Preparing z / ||z||^q divides a loss d by ||z||^q as well, and makes at most d^(1 - q) of
        it.

        Arguments:

        - `least`: the least norm of scale (x - center), (n,).
        - `most`: the largest norm of it, (n,).
        - `normalize`: the exponent q that inputs are normalised with, 0 before they are.
        """
        lost = self.absolute * (1.0 + most).unsqueeze(1)
        if normalize == 0.0:
            return lost
        divided = lost * least.clamp(min=1e-300).unsqueeze(1) ** -normalize
        return 4.0 * torch.minimum(divided, lost ** (1.0 - normalize))

    def farthest(self, form: TwoLayerForm, x: Tensor) -> Tensor:
        """The l2 radius (n,) around points within which nothing overflows.

        Arguments:

        - `form`: of the network that this is the rounding of.
        - `x`: points (n, dim).
        """
        q, before = form.preparation.normalize, form.preparation.scaled_offset(x.double())
        most = self.most_norm - float(form.all_offsets.abs().max())
        if q == 1.0:
            most = math.inf if most >= 1.0 else 0.0
        elif most > 0.0:
            most = most ** (1.0 / (1.0 - q)) if q > 0.0 else most
        room = most - torch.linalg.vector_norm(before, dim=1)
        return room.clamp(min=0.0) / form.preparation.scale


def two_layer_rounding(net: nn.Module, dtype: torch.dtype) -> TwoLayerRounding:
    """What rounding may do to a shallow network that runs in some dtype.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one.
    - `dtype`: the floating-point type that the network runs in.
    """
    inner = inner_network(net)
    p, dim, limits = inner.p, float(inner.dim), torch.finfo(dtype)
    with torch.no_grad():
        norms = directions_and_norms(inner.neurons.double())[1].squeeze(-1)
        votes = inner.votes.double().abs()
        bias = torch.zeros_like(votes[:, 0]) if inner.bias is None else inner.bias.double().abs()
    alive = norms > 0
    safe = torch.where(alive, norms, 1.0)
    # Weights themselves may be flushed to zero.
    flushed = torch.where(alive, dim * limits.tiny / safe, 0.0)
    # An exponent is rounded to the dtype, too, which a power feels by the logarithm of its base.
    exponent = 0.0 if dtype == torch.float64 else math.log(limits.max)
    divided = 0.0 if p == 1.0 else 0.5 * dim + 5.0
    products = dim + 2.0 + divided + _preparation_roundings(net, dim, exponent)
    by_products = p in _POWERS_BY_PRODUCTS
    powers = p if by_products else _FUNCTION_ROUNDINGS + 1.0 + p * exponent
    power = 0.0 if p == 1.0 else rounding_share(powers + divided, dtype)
    least = 8.0 * dim * limits.tiny * max(1.0, inner.preparation.scale)
    # For p = 1 products are with w_j itself, and their losses weigh more where it is small.
    weight = torch.where(alive, (1.0 / safe).clamp(min=1.0), 0.0) if p == 1.0 else alive.double()
    sizes = (votes * norms).sum(1)
    outer = rounding_share(inner.width + 5.0, dtype)
    constant = outer * (bias + _silent_weights_constant(inner, alive))
    floor = limits.tiny * ((3.0 * votes * norms + votes + 1.0).sum(1) + 4.0)
    both = 2 if inner.outputs == 1 else inner.outputs
    largest = max(1.0, float(norms.max()), float(sizes.max()))
    room = (_OVERFLOW_SHARE * limits.max - float(bias.max())) / largest
    return TwoLayerRounding(
        inner=rounding_share(products, dtype) + flushed,
        absolute=least * weight,
        power=power + flushed,
        outer=outer,
        constant=constant.expand(both),
        floor=floor.expand(both),
        most_norm=max(room, 0.0) ** (1.0 / p),
    )


def _silent_weights_constant(net: PReLUNet, alive: Tensor) -> Tensor | float:
    """The size (C,) of what neurons without weights add to the outputs, which they do for p = 1."""
    if net.p != 1.0 or net.hidden_bias is None:
        return 0.0
    with torch.no_grad():
        always = torch.where(alive, 0.0, torch.relu(net.hidden_bias.double()))
        return (net.votes.double().abs() * always).sum(1)


def _preparation_roundings(net: nn.Module, dim: float, exponent: float) -> float:
    """Roundings of each coordinate of a prepared input."""
    preparation = inner_network(net).preparation
    q = preparation.normalize
    before = float(preparation.center is not None) + 2.0 * float(preparation.scale != 1.0)
    if q == 0.0:
        return before
    length = 0.5 * dim + 3.0 + exponent * 0.5 * math.log(dim)
    return (1.0 + q) * before + q * length + (1.0 - q) * exponent + 2.0 * _FUNCTION_ROUNDINGS + 4.0


@dataclass(frozen=True, eq=False)
class LowestGaps:
    """One output of a shallow network minus another, as rounding leaves it at worst when it runs.

    It is again of the form of a network, sum_j weight_j relu(s_j + shift_j)^p + constant: neurons
    for the first output speak later and more quietly, those against it earlier and louder.

    Where neurons are merged, `owner` says into which of `count`. Those of a group are taken at its
    direction, the ones for and the ones against it apart; what is shifted both ways is `cancelled`.
    """

    form: TwoLayerForm  # of the network itself, in float64
    rounding: TwoLayerRounding  # in the dtype that it runs in
    owner: Tensor | None = None  # (h,): the merged neuron of each, -1 where it is dropped
    count: int = 0  # merged neurons

    def weights(self, own: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The weights (m, h) of outputs `own` minus `target`, (m,) each, and what is cancelled."""
        outputs = len(self.form.weights)
        pairs, place = (own * outputs + target).unique(return_inverse=True)
        first, second = self.form.weights[pairs // outputs], self.form.weights[pairs % outputs]
        gap = first - second - self.rounding.outer * (first.abs() + second.abs())
        gap = gap - self.rounding.power * gap.abs()
        if self.owner is None:
            return gap[place], torch.zeros_like(gap)[place]
        kept = self.owner >= 0
        into, gap = self.owner[kept], gap[:, kept]
        nothing = gap.new_zeros(len(gap), self.count)
        speaking = nothing.index_add(1, into, gap.clamp(min=0.0))
        opposing = nothing.index_add(1, into, -gap.clamp(max=0.0))
        return (speaking - opposing)[place], torch.minimum(speaking, opposing)[place]

    def constants(self, own: Tensor, target: Tensor) -> Tensor:
        """The constants (m,) of outputs `own` minus `target`, (m,) each."""
        lost = self.rounding.constant + self.rounding.floor
        low, high = self.form.constant - lost, self.form.constant + lost
        return low[own] - high[target]

    def reach(self, sizes: Tensor, lost: Tensor) -> Tensor:
        """How far pre-activations may be off, (m, h).

        Arguments:

        - `sizes`: bounds on sum_i |z_i| |u_ji| + |o_j|, (m, h).
        - `lost`: what `lost` says of the norms in question, (m, h).
        """
        share = self.rounding.inner if self.owner is None else self.rounding.inner.max()
        return share * sizes + lost

    def lost(self, least: Tensor, most: Tensor, normalize: float) -> Tensor:
        """What underflow may cost pre-activations, (m, h), or as much for all neurons, (m, 1).

        Arguments:

        - `least`: as in `TwoLayerRounding.lost_preactivation`, (m,).
        - `most`: as there, (m,).
        - `normalize`: as there.
        """
        lost = self.rounding.lost_preactivation(least, most, normalize)
        return lost if self.owner is None else lost.amax(1, keepdim=True)

    @property
    def growth(self) -> float:
        """By what factor rounding makes a bound on the change of a network larger, at most."""
        part = self.rounding
        inner, power = 1.0 + 2.0 * float(part.inner.max()), 1.0 + float(part.power.max())
        return inner**self.form.p * power * (1.0 + 2.0 * part.outer)


def lowest_margin(gaps: LowestGaps, x: Tensor, y: Tensor) -> Tensor:
    """The least margin (n,) that rounding leaves a network itself when it runs.

    Computed in float64, with a rounding of its own.

    Arguments:

    - `gaps`: those of the network, with no neurons merged.
    - `x`: points (n, dim).
    - `y`: labels (n,), as for `margin_range`.
    """
    form, x = gaps.form, x.double()
    at, before = form.preparation(x), form.preparation.scaled_offset(x)
    s, own = form.active(form.preparation.at(x)), form.own(y)
    length = torch.linalg.vector_norm(before, dim=1)
    sizes = at.abs() @ form.directions.abs().T + form.all_offsets.abs()
    reach = gaps.reach(sizes, gaps.lost(length, length, form.preparation.normalize))
    best = form.outputs(x).masked_fill(~own, -torch.inf).argmax(1)
    least = torch.full_like(length, torch.inf)
    for target in range(own.shape[1]):
        other = torch.full_like(best, target)
        weight, _ = gaps.weights(best, other)
        power = relu_power(s - weight.sign() * reach, form.p)
        value = (weight * power).sum(1) + gaps.constants(best, other)
        least = torch.where(own[:, target], least, torch.minimum(least, value))
    return least.nan_to_num(nan=-torch.inf)
