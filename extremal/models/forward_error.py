"""What rounding may do to a margin, and what follows: when a point is right, broken, or a tie.

**The rule.** The margin of a point is that of exact arithmetic with the weights as stored. It is
computed in float64, and lies between a `lowest` and a `highest` number that its rounding allows. A
point is *right* where the lowest is above zero, *broken* where the highest is not, and a *tie*
where rounding decides. Attacks count as broken what is broken. Certificates hold where a network as
it runs, in its own dtype and with sums in whatever order, has a positive margin in the whole ball.

**The bound** is a forward error (Higham 2002, chapter 3). With u = eps / 2 the unit of rounding, k
operations in a row, or a sum of k terms in any order, are wrong by a share of at most
k u / (1 - k u), and by the smallest normal number each, where results underflow or are flushed to
zero. For a shallow network, sum_j v_j ||w_j|| relu(s_j)^p + b with s_j = <z, w_j> / ||w_j|| + o_j,

    |s_j - computed| <= t_j = `inner` (||z|| + |o_j|),
    |sum - computed| <= sum_j |v_j| ||w_j|| (T_j - relu(s_j)^p + `outer` T_j) + `outer` |b|

with T_j = (1 + `power`) relu(s_j + t_j)^p. All of it grows with s_j, so that the largest s_j and
||z|| of a ball bound what rounding does anywhere in it. Where no neuron can speak, the sum is
exactly b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._tensors import NORM_ORDERS, SHARED_BY_ROWS, RowRecord, batches, rounding_share
from extremal.models.activations import relu_power
from extremal.models.classification_margin import float64_copy, margin
from extremal.models.layer_chain import chain_rounding, is_chain
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import check_rows, directions_and_norms
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
# Single operations of each sum (a scale, a centre, a bias, a norm's root) number at most this many.
_SINGLE_ROUNDINGS = 12.0
# A coordinate, an activation or an output is made of so many results, any of which may be flushed.
_FLUSHED = 8.0
# Values up to this share of the largest number of a dtype leave room for their roundings.
_OVERFLOW_SHARE = 0.0625


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
        rounding = shallow_rounding(twin, torch.float64)
        return lambda x, y: _shallow_margins(rounding, x.double(), y)
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


def _shallow_margins(rounding: ShallowRounding, x: Tensor, y: Tensor) -> MarginRange:
    """Margins from the differences of votes, in which equal ones cancel exactly."""
    form = rounding.form
    check_rows(x, form.dim)
    outputs = 1 if form.signed else int(form.groups.max()) + 1
    own = form.own(_check.labels("y", y, count=len(x), outputs=outputs))
    activations = rounding.near(x, prepared=True).activations()
    best = [torch.full_like(x[:, 0], -torch.inf) for _ in range(3)]
    for output in torch.nonzero(own.any(0)).squeeze(1).tolist():
        rows = torch.nonzero(own[:, output]).squeeze(1)
        found = _gaps(rounding, activations.take(rows), output)
        for most, each in zip(best, found, strict=True):
            least = each.masked_fill(own[rows], torch.inf).amin(1)
            most[rows] = torch.maximum(most[rows], least)
    return MarginRange(*best)


def _gaps(
    rounding: ShallowRounding, at: _Activations, output: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One output minus each, (n, C); the least and the largest that exact arithmetic has it.

    It is larger only where neurons for the output speak louder, or those against it quieter.
    """
    form = rounding.form
    # Votes are told apart before norms round them: weights of nearly equal ones may be the same.
    gap = ((rounding.votes[output] - rounding.votes) * rounding.norms).T  # (h, C)
    constant = form.constant[output] - form.constant
    value = at.value @ gap + constant
    summed = rounding.outer * (at.value @ gap.abs()) + rounding.limits.eps * constant.abs()
    sizes = rounding.outer * (rounding.constant[output] + rounding.constant)
    always = sizes + at.flushed.unsqueeze(1)
    sums = rounding.sums[output] | rounding.sums

    def error(louder: Tensor, quieter: Tensor) -> Tensor:
        change = (at.high - at.value) @ louder + (at.value - at.low) @ quieter
        speaks = _count(at.high) @ _count(louder) + _count(at.value) @ _count(quieter) > 0
        speaks = speaks | sums
        return (change + summed + torch.where(speaks, always, 0.0)).nan_to_num(nan=torch.inf)

    own, other = gap.clamp(min=0.0), (-gap).clamp(min=0.0)
    return value, value - error(other, own), value + error(own, other)


def _count(sizes: Tensor) -> Tensor:
    """1 where a size is above zero, else 0."""
    return (sizes > 0).double()


@dataclass(frozen=True, eq=False)
class ShallowRounding:
    """What rounding may do to a `PReLUNet` of h neurons, or a `Grouped` one, as it runs."""

    form: TwoLayerForm  # of the network, in float64
    inner: float  # by what share of ||z|| + |o_j| a pre-activation may be off
    power: float  # by what share of it relu^p ||w|| may be off
    outer: float  # by what share of its terms' sizes a sum over neurons may be off
    votes: Tensor  # (C, h): the form's weights without the norms
    norms: Tensor  # (h,): ||w_j||, 1 where it is zero
    constant: Tensor  # (C,): the sizes of what is the same for all inputs
    sums: Tensor  # (C,) bool: whether that is a sum, as of what neurons without weights say
    flushed: float  # what flushing to zero may cost an output, for activations of at most 1
    limits: torch.finfo  # of the dtype that the network runs in

    def near(self, x: Tensor, norm: str = "l2", *, prepared: bool = False) -> RoundingNear:
        """What is needed of points (n, dim) to say what rounding may do in balls around them.

        Arguments:

        - `x`: points (n, dim).
        - `norm`: "l1", "l2" or "linf", the norm of the balls.
        - `prepared`: whether errors are those of outputs; else, for normalised inputs without
          hidden biases, those of outputs times ||z||^(p normalize), z before it is normalised.
        """
        form, x = self.form, x.double()
        preparation = form.preparation
        q, before = preparation.normalize, preparation.scaled_offset(x)
        stretched = q > 0.0 and (prepared or form.offsets is not None)
        z = preparation(x) if stretched else before
        dual = torch.ones_like(self.norms)
        if norm != "l2":
            dual = form.directions.abs()
            dual = dual.sum(1) if norm == "linf" else dual.amax(1)
        root = x.shape[1] ** max(0.0, 0.5 - 1.0 / NORM_ORDERS[norm])
        return RoundingNear(
            rounding=self,
            preactivations=torch.nn.functional.linear(z, form.directions, form.offsets),
            length=torch.linalg.vector_norm(z, dim=1),
            length_before=torch.linalg.vector_norm(before, dim=1) if stretched else None,
            dual=dual * preparation.scale,
            root=root * preparation.scale,
        )

    def lost(self, most: Tensor) -> Tensor:
        """What flushing to zero may cost pre-activations of neurons of norm 1 at most, (n,).

        Arguments:

        - `most`: the largest norms of inputs before they are normalised, (n,).
        """
        form = self.form
        each = _FLUSHED * form.dim * self.limits.tiny * max(1.0, form.preparation.scale)
        return each * (1.0 + most)

    def of_activations(self, most: Tensor, unit: Tensor) -> tuple[Tensor, float, Tensor]:
        """What rounding may do to <z, u_j>, (n,), and to terms, a share; and what sums lack, (n,).

        The last of two outputs together. Infinite where a number may become too large.

        Arguments:

        - `most`: the largest norms of inputs before they are normalised, (n,).
        - `unit`: what outputs are multiplied with, (n,).
        """
        prepared = most ** (1.0 - self.form.preparation.normalize)
        full = torch.where(self.overflows(prepared, most), torch.inf, 0.0)
        shift = self.inner * most + self.lost(most) * (1.0 + 1.0 / float(self.norms.min())) + full
        share = (1.0 + self.power) * (1.0 + self.outer) - 1.0
        lacking = self.flushed * (unit + most**self.form.p)
        lacking = lacking + self.outer * float(self.constant.max()) * unit
        return shift, share, 2.0 * lacking

    def overflows(self, most: Tensor, most_before: Tensor) -> Tensor:
        """Whether a number may become too large for the dtype, (n,) bool.

        Arguments:

        - `most`: the largest norms of prepared inputs, (n,).
        - `most_before`: the largest norms of inputs that are not normalised yet, (n,).
        """
        form, room = self.form, _OVERFLOW_SHARE * self.limits.max
        size = most + float(form.all_offsets.abs().max())
        largest = max(1.0, float(self.norms.max()))
        sums = float(form.weights.abs().sum(1).max())
        out = size**form.p * max(largest, sums) + float(self.constant.max())
        before = most_before * max(1.0, 1.0 / form.preparation.scale)
        return ~((out <= room) & (size * largest <= room) & (before <= room))


@dataclass(frozen=True, eq=False)
class RoundingNear(RowRecord):
    """What rounding may do to outputs in balls around n points: see `ShallowRounding.near`."""

    rounding: ShallowRounding  # of the network
    preactivations: Tensor  # (n, h), at the points themselves
    length: Tensor  # (n,): ||z||
    length_before: Tensor | None  # (n,): ||z|| before normalising, where z is normalised
    dual: Tensor = field(metadata=SHARED_BY_ROWS)  # (h,): a pre-activation's change for radius 1
    root: float  # the same for ||z|| before normalising

    def outputs(self, radius: Tensor) -> Tensor:
        """By how much each output may be off anywhere in balls, (n, C).

        Arguments:

        - `radius`: of the balls, (n,).
        """
        rounding, reach = self.rounding, self._reach(radius)
        p, flushed = rounding.form.p, self._flushed(reach).unsqueeze(1)
        top = self._loudest(reach.highest + reach.shift)
        wrong = top - relu_power(reach.highest, p) + rounding.outer * top
        always = rounding.outer * rounding.constant * reach.unit.unsqueeze(1) + flushed
        weights = rounding.form.weights.abs().T
        speaks = (_count(top) @ _count(weights) > 0) | rounding.sums
        error = wrong @ weights + torch.where(speaks, always, 0.0)
        error = error.nan_to_num(nan=torch.inf, posinf=torch.inf)
        return torch.where(reach.overflows.unsqueeze(1), torch.inf, error)

    def activations(self) -> _Activations:
        """relu(s_j)^p at the points themselves, and between which numbers rounding leaves it."""
        reach, p = self._reach(torch.zeros_like(self.length)), self.rounding.form.p
        shift = torch.where(reach.overflows.unsqueeze(1), torch.inf, reach.shift)
        low = (1.0 - self.rounding.power) * relu_power(reach.highest - shift, p)
        high = self._loudest(reach.highest + shift)
        return _Activations(relu_power(reach.highest, p), low, high, self._flushed(reach))

    def _loudest(self, highest: Tensor) -> Tensor:
        """The largest relu^p of pre-activations (n, h): above zero where they are."""
        power = (1.0 + self.rounding.power) * relu_power(highest, self.rounding.form.p)
        return torch.where(highest > 0, power + self.rounding.limits.tiny, 0.0)

    def _flushed(self, reach: _Reach) -> Tensor:
        """What flushing to zero may cost an output, (n,)."""
        rounding = self.rounding
        size = reach.most + rounding.form.all_offsets.abs().max()
        return rounding.flushed * (reach.unit + size**rounding.form.p)

    def _reach(self, radius: Tensor) -> _Reach:
        """The largest that balls of these radii (n,) leave."""
        rounding, form = self.rounding, self.rounding.form
        q, far = form.preparation.normalize, self.root * radius
        step = radius.unsqueeze(1) * self.dual
        unit = divided = torch.ones_like(far)
        if self.length_before is None:
            before = most = self.length + far
            prepared, unit = before ** (1.0 - q), before ** (form.p * q)
        else:
            before, least = self.length_before + far, self.length_before - far
            stretch = torch.where(least > 0, least.clamp(min=1e-300) ** -q, torch.inf)
            stretch = torch.where(before > 0, stretch, 0.0)
            most = prepared = self.length + torch.where(far > 0, far * stretch, 0.0)
            step = torch.where(step > 0, step * stretch.unsqueeze(1), 0.0)
            divided = 1.0 + stretch
        shift = rounding.inner * (most.unsqueeze(1) + form.all_offsets.abs())
        lost = torch.where(before > 0, rounding.lost(most) * divided, 0.0)
        shift = shift + lost.unsqueeze(1) * (1.0 + 1.0 / rounding.norms)
        full = rounding.overflows(prepared, before)
        return _Reach(self.preactivations + step, shift, most, unit, full)


@dataclass(frozen=True, eq=False)
class _Reach:
    """What balls around n points leave of pre-activations and norms."""

    highest: Tensor  # (n, h): the largest pre-activations
    shift: Tensor  # (n, h): by how much rounding may move them
    most: Tensor  # (n,): the largest ||z||
    unit: Tensor  # (n,): the largest of what outputs are multiplied with
    overflows: Tensor  # (n,) bool: whether a number may become too large


@dataclass(frozen=True, eq=False)
class _Activations(RowRecord):
    """relu(s_j)^p of n points, as computed, and what exact arithmetic may have."""

    value: Tensor  # (n, h)
    low: Tensor  # (n, h): the least
    high: Tensor  # (n, h): the largest
    flushed: Tensor  # (n,): what flushing to zero may cost an output


def shallow_rounding(net: nn.Module, dtype: torch.dtype) -> ShallowRounding:
    """What rounding may do to a shallow network that runs in some dtype.

    Arguments:

    - `net`: a `PReLUNet` or a `Grouped` one.
    - `dtype`: the floating-point type that it runs in.
    """
    inner, form = inner_network(net), as_two_layer_form(net)
    assert form is not None
    limits, length = torch.finfo(dtype), 0.5 * inner.dim + _SINGLE_ROUNDINGS
    # Exponents are rounded, too, which a power feels by the logarithm of its base.
    exponent = math.log(limits.max)
    products, power = inner.dim + length, 0.0
    if inner.preparation.normalize > 0.0:
        products += length + 2.0 * _FUNCTION_ROUNDINGS + exponent
    if inner.p != 1.0:
        known = float(torch.tensor(inner.p, dtype=dtype)) == inner.p
        one = inner.p if inner.p in _POWERS_BY_PRODUCTS else _FUNCTION_ROUNDINGS
        power = rounding_share(length + one + (0.0 if known else inner.p * exponent), dtype)
    with torch.no_grad():
        norms = directions_and_norms(inner.neurons.double())[1].squeeze(-1)
        votes, same = inner.votes.double(), _silent_sizes(inner)
        constant = same if inner.bias is None else same + inner.bias.double().abs()
    if inner.outputs == 1:  # which is read as two outputs, of opposite signs
        votes = torch.cat([-0.5 * votes, 0.5 * votes])
    norms = torch.where(norms > 0, norms, 1.0)
    terms = (1.0 + norms) * (1.0 + 1.0 / norms) * (1.0 + form.weights.abs())
    return ShallowRounding(
        form=form,
        # That of the network as it runs, and that of what is computed of it here.
        inner=rounding_share(products, dtype) + rounding_share(products, torch.float64),
        power=power,
        outer=rounding_share(inner.width + _SINGLE_ROUNDINGS, dtype),
        votes=votes,
        norms=norms,
        constant=constant.expand(len(votes)),
        sums=(same > 0).expand(len(votes)),
        flushed=_FLUSHED * limits.tiny * float(terms.sum(1).max()),
        limits=limits,
    )


def _silent_sizes(net: PReLUNet) -> Tensor:
    """The sizes of what neurons without weights add to each output for p = 1, (C,)."""
    votes = net.votes.double().abs()
    if net.p != 1.0 or net.hidden_bias is None:
        return torch.zeros_like(votes[:, 0])
    return votes @ (torch.relu(net.hidden_bias.double()) * (net.neurons == 0).all(1))
