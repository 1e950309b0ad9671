"""A shallow network in the one form that attacks and certificates work with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.activations import relu_power, relu_power_with_slope
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import Preparation, Prepared, directions_and_norms
from extremal.models.readouts import Grouped


@dataclass(frozen=True, eq=False)
class TwoLayerForm:
    """C outputs, each of which votes for a class: those of a `PReLUNet` or a `Grouped` one.

    out_o(x) = sum_j weights_oj relu(<z, directions_j> + offsets_j)^p + constant_o with
    z = preparation(x). `groups` (C,) names the class of each output; the margin is the best own
    output minus the best foreign one.
    """

    directions: Tensor  # (h, dim), unit rows (zero for a zero neuron)
    offsets: Tensor | None  # (h,)
    weights: Tensor  # (C, h)
    constant: Tensor  # (C,)
    groups: Tensor  # (C,)
    p: float  # the power of the activation, at least 1
    preparation: Preparation  # what is done to points first
    signed: bool  # labels are -1 / +1

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return self.directions.shape[1]

    @property
    def all_offsets(self) -> Tensor:
        """The offsets (h,), zeros where there are none."""
        return torch.zeros_like(self.directions[:, 0]) if self.offsets is None else self.offsets

    @property
    def rounding(self) -> float:
        """The rounding of <u_i, u_j>, and of sums over neurons, as a share of their terms."""
        return torch.finfo(self.directions.dtype).eps * (self.dim + 2 * len(self.directions))

    @property
    def biased(self) -> bool:
        """Whether any bias is not zero; if none is, f is zero at the preparation's centre."""
        return bool((self.all_offsets != 0).any()) or bool((self.constant != 0).any())

    def to(self, target: torch.dtype) -> TwoLayerForm:
        """The same in the dtype `target`."""
        offsets = None if self.offsets is None else self.offsets.to(target)
        return replace(
            self,
            directions=self.directions.to(target),
            offsets=offsets,
            weights=self.weights.to(target),
            constant=self.constant.to(target),
            preparation=self.preparation.map(lambda part: part.to(target)),
        )

    def classes(self, y: Tensor) -> Tensor:
        """Labels `y` (n,) as classes 0..G-1."""
        return (y + 1) // 2 if self.signed else y

    def own(self, y: Tensor) -> Tensor:
        """Which outputs are each point's own by its label `y` (n,), (n, C) bool."""
        return self.groups == self.classes(y).unsqueeze(1)

    def active(self, at: Prepared) -> Tensor:
        """The pre-activations s_j = <z, u_j> + offset_j, (n, h), for `at` = `preparation.at(x)`."""
        return nn.functional.linear(at.z, self.directions, self.offsets)

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs (n, C) at `x` (n, dim)."""
        return self.read(relu_power(self.active(self.preparation.at(x)), self.p))

    def read(self, power: Tensor) -> Tensor:
        """The outputs (n, C) that post-activations `power` = relu(s)^p (n, h) give."""
        return torch.addmm(self.constant, power, self.weights.T)

    def margins(self, x: Tensor, own: Tensor) -> Tensor:
        """Best own output minus best foreign one, (n,), at `x`, for the mask `own` (n, C)."""
        return group_margins(self.outputs(x), own)

    def powers(self, at: Prepared) -> tuple[Tensor, Tensor]:
        """Outputs (n, C) and slopes p relu(s_j)^(p-1), (n, h), for `at` = `preparation.at(x)`."""
        power, slope = relu_power_with_slope(self.active(at), self.p)
        return self.read(power), slope

    def gradient(self, at: Prepared, slope: Tensor, weight: Tensor) -> Tensor:
        """The gradient in x of sum_j weight_j relu(s_j)^p, (n, dim), from slopes there.

        Arguments:

        - `at`: the prepared points, `preparation.at(x)`.
        - `slope`: (n, h), what `powers` gives there.
        - `weight`: of each neuron, (n, h).
        """
        return self.preparation.pull_back(at, (weight * slope) @ self.directions)


def is_shallow(net: nn.Module) -> bool:
    """Whether a network has a `TwoLayerForm` form: a PReLUNet, or a `Grouped` PReLUNet.

    Arguments:

    - `net`: any module.
    """
    return isinstance(net.net if isinstance(net, Grouped) else net, PReLUNet)


def inner_network(net: nn.Module) -> PReLUNet:
    """The `PReLUNet` of a network for which `is_shallow` holds.

    Arguments:

    - `net`: a `PReLUNet`, which is returned itself, or a `Grouped` one.
    """
    inner = net.net if isinstance(net, Grouped) else net
    return _check.instance("net", inner, PReLUNet, "be a PReLUNet or a Grouped one")


def with_readout_of(inner: PReLUNet, net: nn.Module) -> nn.Module:
    """Another `PReLUNet` with the same outputs, read as `net` reads its own.

    Arguments:

    - `inner`: the `PReLUNet` to be read, with as many outputs as that of `net`.
    - `net`: a `PReLUNet` or a `Grouped` one: `inner` is grouped where it is.
    """
    return Grouped(inner, net.groups, signed=net.signed) if isinstance(net, Grouped) else inner


def polar_form(net: PReLUNet) -> TwoLayerForm:
    """A network with its own outputs, in float64; a zero neuron has direction and weights zero.

    For p = 1 a zero neuron with a hidden bias is the constant v relu(b), which goes to `constant`.

    Arguments:

    - `net`: a `PReLUNet`; it is left as it is.
    """
    with torch.no_grad():
        v = net.votes.double()
        directions, lengths = directions_and_norms(net.neurons.double())
        norms = lengths.squeeze(-1)
        alive = norms > 0
        constant = torch.zeros_like(v[:, 0]) if net.bias is None else net.bias.double().clone()
        offsets = None
        if net.hidden_bias is not None:
            b = net.hidden_bias.double()
            offsets = torch.where(alive, b / torch.where(alive, norms, 1.0), 0.0)
            if net.p == 1.0:
                constant += (v * torch.where(alive, 0.0, torch.relu(b))).sum(1)
        groups = torch.arange(net.outputs, device=v.device)
        signed = net.outputs == 1
        return TwoLayerForm(
            directions, offsets, v * norms, constant, groups, net.p, net.preparation, signed
        )


def as_two_layer_form(net: nn.Module, dtype: torch.dtype = torch.float64) -> TwoLayerForm | None:
    """The `TwoLayerForm` of a PReLUNet, or of a `Grouped` PReLUNet; None for any other network.

    A network with one output f is read as the two outputs -f/2 and +f/2, so that labels -1 / +1 are
    classes 0 / 1 and the margin is y f again.

    Arguments:

    - `net`: any module; it is left as it is.
    - `dtype`: floating-point type of the result, float64 by default; norms are taken in float64.
    """
    inner = net.net if isinstance(net, Grouped) else net
    if not isinstance(inner, PReLUNet):
        return None
    form = polar_form(inner)
    if isinstance(net, Grouped):
        form = replace(form, groups=net.groups, signed=form.signed or net.signed)
    if inner.outputs == 1:
        half = torch.tensor([-0.5, 0.5], dtype=form.weights.dtype, device=form.weights.device)
        weights, constant = half[:, None] * form.weights, half * form.constant
        groups = torch.arange(2, device=half.device)
        form = replace(form, weights=weights, constant=constant, groups=groups)
    return form.to(dtype)


def group_margins(out: Tensor, own: Tensor) -> Tensor:
    """The best own output minus the best foreign one, (n,), for outputs and mask (n, C).

    Arguments:

    - `out`: outputs (n, C).
    - `own`: bool (n, C): the outputs of each point's own class; in each row some, but not all.
    """
    best = out.masked_fill(~own, -torch.inf).amax(1)
    return best - out.masked_fill(own, -torch.inf).amax(1)
