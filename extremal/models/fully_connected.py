"""Networks to compare the shallow pReLU network with: MLPs of any depth, and deep pReLU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.activations import relu_power
from extremal.models.initialisation import normal_draw, uniform_draw
from extremal.models.preparation import directions_and_norms

Start = float | Literal["default"]
Division = Literal["none", "input", "output"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky-relu": nn.LeakyReLU,
    "gelu": nn.GELU,
}
"""The activations that `mlp` knows by name."""


class MLP(nn.Sequential):
    """Linear layers with an activation after each but the last; `mlp` makes one.

    With one output an nn.Flatten(0) turns (n, 1) into (n,), so that forward is nn.Sequential's own.
    """

    @property
    def dim(self) -> int:
        """How many coordinates a point has."""
        return self._linear_layers()[0].in_features

    @property
    def outputs(self) -> int:
        """How many outputs the last linear layer has."""
        return self._linear_layers()[-1].out_features

    def _linear_layers(self) -> list[nn.Linear]:
        return [layer for layer in self if isinstance(layer, nn.Linear)]


def mlp(
    dim: int,
    widths: Sequence[int],
    activation: str | Callable[[], nn.Module] = "relu",
    outputs: int = 1,
    *,
    bias: bool = True,
    init: Start = "default",
    dtype: torch.dtype = torch.float32,
    generator: torch.Generator,
) -> MLP:
    """A fully connected network of the given hidden widths; () is logistic regression.

    f(x) = A_L a(... a(A_1 x + b_1) ...) + b_L, (n,) where outputs == 1, else (n, outputs).

    Layers are drawn from first to last, weights before biases, all by `generator`.

    Arguments:

    - `dim`: how many coordinates a point has.
    - `widths`: how many neurons each hidden layer has, such as (100, 100).
    - `activation`: a name in `ACTIVATIONS`, "relu" by default, or what makes a module: nn.SiLU,
      lambda: PowerReLU(3).
    - `outputs`: how many outputs: 1 (the default) for labels -1 / +1, C for labels 0..C-1.
    - `bias`: whether all linear layers have biases, the last one too (default True).
    - `init`: "default" for PyTorch's weights and biases, uniform in +-1/sqrt(fan-in), or a number,
      the standard deviation of Gaussian weights, with biases zero.
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """
    sizes = _checked_sizes(dim, widths)
    _check.integer("outputs", outputs, minimum=1)
    make_activation = _activation_factory(activation)
    _check_start(init, dtype, generator)
    layers: list[nn.Module] = []
    for inputs, width in pairwise(sizes):
        made = _check.module("activation()", make_activation())
        layers += [_linear(inputs, width, bias, init, dtype, generator), made.to(dtype)]
    layers.append(_linear(sizes[-1], outputs, bias, init, dtype, generator))
    if outputs == 1:
        layers.append(nn.Flatten(0))
    return MLP(*layers)


class PReLULayer(nn.Module):
    """x -> relu(<w_j, x>)^p / ||w_j||^(p-1), j = 1..outputs: (n, inputs) to (n, outputs).

    `neurons` (outputs, inputs) holds the w_j. The layer is 1-homogeneous in them and p-homogeneous
    in x. A neuron w_j = 0 gives zero and has a zero gradient.

    Arguments:

    - `inputs`: how many coordinates x has.
    - `outputs`: how many neurons the layer has.
    - `p`: the power of the activation, any real number of at least 1.
    - `init`: how weights are drawn, as in `mlp`: "default", or the standard deviation of Gaussian
      ones.
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        p: float,
        *,
        init: Start = "default",
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.inputs = _check.integer("inputs", inputs, minimum=1)
        self.outputs = _check.integer("outputs", outputs, minimum=1)
        self.p = _check.number("p", p, minimum=1.0)
        _check_start(init, dtype, generator)
        self.neurons = nn.Parameter(torch.empty(self.outputs, self.inputs, dtype=dtype))
        _draw_weights(self.neurons, None, init, generator)

    def extra_repr(self) -> str:
        """The settings that define the layer, for print()."""
        return f"inputs={self.inputs}, outputs={self.outputs}, p={self.p:g}"

    def forward(self, x: Tensor) -> Tensor:
        """The post-activations of `x` (n, inputs), formed as ||w_j|| relu(<w_j/||w_j||, x>)^p."""
        if self.p == 1.0:
            return torch.relu(nn.functional.linear(x, self.neurons))
        directions, norms = _safe_directions_and_norms(self.neurons)
        power = relu_power(nn.functional.linear(x, directions), self.p)
        return norms.squeeze(-1) * power


class DeepPReLU(nn.Module):
    """pReLU layers of the given widths, then a linear readout: (n,), or (n, outputs) for several.

    h_0 = x, g_l = layer_l(h_(l-1)), h_l = g_l, f = readout(h_L). Each layer raises its input's size
    to the power p, unless `normalize` divides g_l: by ||h_(l-1)||^(p-1) for "input", so that layers
    are 1-homogeneous as those of a ReLU network are (the division that the code of Min & Vidal 2024
    has for images); by its own norm ||g_l|| for "output". Zero stays zero. With `residual`
    h_l = g_l + h_(l-1) where the two have one width, after that division.

    One layer without either is a `PReLUNet`, and with a number s for `init` the one that
    Gaussian(s) draws.

    Arguments:

    - `dim`: how many coordinates a point has.
    - `widths`: how many neurons each pReLU layer has, such as (100, 100); at least one layer.
    - `p`: the power of the activation, any real number of at least 1.
    - `outputs`: how many outputs: 1 (the default) for labels -1 / +1, C for labels 0..C-1.
    - `residual`: whether layers add their input where the widths agree (default False).
    - `normalize`: what each layer's result is divided by: "none" (the default), "input" or
      "output", see above.
    - `bias`: whether the readout has biases (default False); hidden neurons have none.
    - `init`: how weights are drawn, as in `mlp`.
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    def __init__(
        self,
        dim: int,
        widths: Sequence[int],
        p: float,
        outputs: int = 1,
        *,
        residual: bool = False,
        normalize: Division = "none",
        bias: bool = False,
        init: Start = "default",
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        sizes = _checked_sizes(dim, widths)
        _check.require(len(sizes) > 1, "widths", "have at least one hidden width", widths)
        self.dim = sizes[0]
        self.widths = tuple(sizes[1:])
        self.p = _check.number("p", p, minimum=1.0)
        self.outputs = _check.integer("outputs", outputs, minimum=1)
        _check.choice("normalize", normalize, get_args(Division))
        for name, value in (("residual", residual), ("bias", bias)):
            _check.instance(name, value, bool, "be True or False")
        self.residual, self.normalize = residual, normalize
        _check_start(init, dtype, generator)
        self.layers = nn.ModuleList(
            PReLULayer(inputs, width, self.p, init=init, dtype=dtype, generator=generator)
            for inputs, width in pairwise(sizes)
        )
        self.readout = _linear(sizes[-1], self.outputs, bias, init, dtype, generator)

    def extra_repr(self) -> str:
        """What the layers do not say, for print()."""
        return f"residual={self.residual}, normalize={self.normalize!r}"

    def forward(self, x: Tensor) -> Tensor:
        """f at `x` (n, dim): (n,) where outputs == 1, else (n, outputs)."""
        out: Tensor = self.readout(self.hidden(x))
        return out.squeeze(-1) if self.outputs == 1 else out

    def hidden(self, x: Tensor) -> Tensor:
        """What the readout reads at `x` (n, dim): h_L, (n, last width)."""
        h = x
        for layer in self.layers:
            g = self._divided(layer, h)
            h = g + h if self.residual and g.shape == h.shape else g
        return h

    def _divided(self, layer: nn.Module, h: Tensor) -> Tensor:
        """The layer's outputs, divided as `normalize` says."""
        if self.normalize == "input" and self.p > 1.0:
            direction, size = _safe_directions_and_norms(h)
            return size * cast(Tensor, layer(direction))
        g: Tensor = layer(h)
        return _safe_directions_and_norms(g)[0] if self.normalize == "output" else g


def _safe_directions_and_norms(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Directions and norms of rows, which are left undivided below the smallest normal number.

    The inverse of a smaller number, which a gradient has, overflows.
    """
    return directions_and_norms(rows, least=torch.finfo(rows.dtype).tiny)


def _linear(
    inputs: int,
    outputs: int,
    bias: bool,
    init: Start,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> nn.Linear:
    """A linear layer drawn by `generator` alone: PyTorch's own draw is skipped."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias, dtype=dtype)
    _draw_weights(layer.weight, layer.bias if bias else None, init, generator)
    return layer


@torch.no_grad()
def _draw_weights(
    weight: Tensor, bias: Tensor | None, init: Start, generator: torch.Generator
) -> None:
    """Fill a weight and perhaps a bias in place, as `mlp` says of `init`."""
    for part in (weight, bias):
        if part is None:
            continue
        if init == "default":
            part.copy_(uniform_draw(*part.shape, generator=generator) / weight.shape[1] ** 0.5)
        elif part is weight:
            part.copy_(init * normal_draw(*part.shape, generator=generator))
        else:
            part.zero_()


def _checked_sizes(dim: int, widths: Sequence[int]) -> list[int]:
    """dim and the hidden widths, checked."""
    listed = isinstance(widths, Sequence) and not isinstance(widths, str)
    _check.require(listed, "widths", "be a sequence of hidden widths such as (100, 100)", widths)
    sizes = [_check.integer("dim", dim, minimum=1)]
    for i, width in enumerate(widths):
        sizes.append(_check.integer(f"widths[{i}]", width, minimum=1))
    return sizes


def _activation_factory(activation: object) -> Callable[[], nn.Module]:
    makes = callable(activation) and not isinstance(activation, nn.Module)
    known = isinstance(activation, str) and activation in ACTIVATIONS
    names = ", ".join(map(repr, ACTIVATIONS))
    rule = f"be one of {names}, or make a module, such as nn.SiLU"
    _check.require(makes or known, "activation", rule, repr(activation))
    if isinstance(activation, str):
        return ACTIVATIONS[activation]
    return cast("Callable[[], nn.Module]", activation)


def _check_start(init: object, dtype: object, generator: object) -> None:
    rule = 'be a finite number > 0 or "default"'
    if init != "default":
        number = isinstance(init, Real) and not isinstance(init, bool)
        good = number and 0.0 < float(cast(float, init)) < float("inf")
        _check.require(good, "init", rule, repr(init))
    _check.floating("dtype", dtype)
    _check.generator("generator", generator)
