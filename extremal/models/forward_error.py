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
        power, error, norms = self._activations(x.double())
        own = self._form.own(y)
        never = torch.full_like(power[:, 0], -torch.inf)
        value, low, high = never, never, never
        for output in torch.nonzero(own.any(0)).squeeze(1).tolist():
            rows = torch.nonzero(own[:, output]).squeeze(1)
            gap = (self._votes[output] - self._votes) * norms  # (C, h)
            constant = self._bias[output] - self._bias
            each = power[rows] @ gap.T + constant
            wrong = error[rows] @ gap.abs().T + self._rounding.outer * constant.abs()
            wrong = torch.where(wrong > 0, wrong + self._rounding.floor.sum(), wrong)
            wrong = wrong.nan_to_num(nan=torch.inf, posinf=torch.inf)
            ends = [each, each - wrong, each + wrong]
            least = [end.masked_fill(own[rows], torch.inf).amin(1) for end in ends]
            value, low, high = (
                so_far.index_copy(0, rows, torch.maximum(so_far[rows], new))
                for so_far, new in zip((value, low, high), least, strict=True)
            )
        return MarginRange(value, low, high)

    def _activations(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """relu(s)^p (n, h), what it and a sum of it may be wrong by (n, h), and ||w_j|| (h,)."""
        net, rounding = self._net, self._rounding
        with torch.no_grad():
            directions, norms, offsets = net.directions_norms_offsets()
            z = net.preparation(x)
            s = nn.functional.linear(z, directions, offsets)
            before = torch.linalg.vector_norm(net.preparation.scaled_offset(x), dim=1)
            lengths = torch.linalg.vector_norm(directions, dim=1)
            sizes = torch.linalg.vector_norm(z, dim=1).unsqueeze(1) * lengths
            if offsets is not None:
                sizes = sizes + offsets.nan_to_num(neginf=0.0).abs()
            least = lengths * rounding.lost_preactivation(before, before, net.preparation.normalize)
            shift = rounding.inner * sizes + torch.where(before.unsqueeze(1) > 0, least, 0.0)
            top = relu_power(s + shift, net.p) * (1.0 + rounding.power)
            top = torch.where(s + shift > 0, top + _LEAST_ACTIVATION, 0.0)
            bottom = relu_power(s - shift, net.p) * (1.0 - rounding.power)
            error = top - bottom + rounding.outer * top
            return relu_power(s, net.p), error, norms


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
        """What underflow may cost pre-activations (n, h) at inputs of norms least to most (n,).

        Norms are those of scale (x - center). Preparing z / ||z||^q divides a loss d by ||z||^q as
        well, and makes at most d^(1 - q) of it.
        """
        lost = self.absolute * (1.0 + most).unsqueeze(1)
        if normalize == 0.0:
            return lost
        divided = lost * least.clamp(min=1e-300).unsqueeze(1) ** -normalize
        return 4.0 * torch.minimum(divided, lost ** (1.0 - normalize))

    def lowest_pair(
        self, form: TwoLayerForm, own: Tensor, target: Tensor | int, sizes: Tensor, lost: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """out_own - out_target as rounding may leave it at worst: again of the form of a network.

        sum_j weight_j relu(s_j + shift_j)^p + constant, with weight and shift (m, h) and constant
        (m,): neurons for the own output speak later and more quietly, those against it earlier and
        louder.

        Arguments:

        - `form`: of the network that this is the rounding of.
        - `own`: an output for each of m pairs, (m,).
        - `target`: another output of each, (m,), or of all.
        - `sizes`: bounds on sum_i |z_i| |u_ji| + |o_j|, (m, h).
        - `lost`: what underflow may cost pre-activations, (m, h).
        """
        first, second = form.weights[own], form.weights[target]
        gap = first - second - self.outer * (first.abs() + second.abs())
        shift = -gap.sign() * (self.inner * sizes + lost)
        low, high = form.constant - self.constant - self.floor, form.constant + self.constant
        constant = low[own] - (high + self.floor)[target]
        return gap - self.power * gap.abs(), shift, constant

    def farthest(self, form: TwoLayerForm, x: Tensor) -> Tensor:
        """The l2 radius (n,) around points x (n, dim) within which nothing overflows."""
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


def rounding_on_ball(
    form: TwoLayerForm, rounding: TwoLayerRounding, x: Tensor, y: Tensor, reach: Tensor
) -> Tensor:
    """How far below the exact margin rounding may put that of a network as it runs, (n,).

    Anywhere in the l2 ball of radius `reach` around each point: the activations' errors are taken
    where they are largest.

    Arguments:

    - `form`: of the network, in float64.
    - `rounding`: `two_layer_rounding` of the network in the dtype that it runs in.
    - `x`: points (n, dim).
    - `y`: labels (n,), as for `margin_range`.
    - `reach`: radii (n,) in the units of x, float64; infinite ones have an infinite answer.
    """
    z, q = form.preparation.scaled_offset(x.double()), form.preparation.normalize
    before, step = torch.linalg.vector_norm(z, dim=1), form.preparation.scale * reach
    least, most = (before - step).clamp(min=0.0), before + step
    # <z, u> / ||z||^q on the ball, and never above ||z||^(1 - q).
    divide = least.clamp(min=1e-300).unsqueeze(1) ** -q
    longest = most.unsqueeze(1) ** (1.0 - q)
    step = step.unsqueeze(1)
    high = torch.minimum((z @ form.directions.T + step).clamp(min=0.0) * divide, longest)
    sizes = torch.minimum((z.abs() @ form.directions.abs().T + step) * divide, longest)
    if form.offsets is not None:
        high, sizes = high + form.offsets, sizes + form.offsets.abs()
    shift = rounding.inner * sizes + rounding.lost_preactivation(least, most, q)
    top = relu_power(high + shift, form.p) * (1.0 + rounding.power)
    spread = top - relu_power(high, form.p)
    own = form.own(y)
    worst = torch.zeros_like(reach)
    for output in torch.nonzero(own.any(0)).squeeze(1).tolist():
        rows = torch.nonzero(own[:, output]).squeeze(1)
        weights, constant = form.weights, rounding.constant + rounding.floor
        sums = rounding.outer * top[rows] @ weights.abs().T + constant  # (m, C)
        change = spread[rows] @ (weights[output] - weights).abs().T
        each = change + sums + sums[:, output].unsqueeze(1)
        each = each.nan_to_num(nan=torch.inf, posinf=torch.inf).masked_fill(own[rows], 0.0)
        worst[rows] = torch.maximum(worst[rows], each.amax(1))
    return torch.where(reach.isfinite(), worst, torch.inf)
