"""Convolutional networks: polynomial ReLUs for images, and a smoothed ReLU on patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.activations import SmoothedReLU, relu_power
from extremal.models.initialisation import uniform_draw
from extremal.models.preparation import check_rows

# The height and width of the patches that a `PReLUConv2d` looks at.
_KERNEL_SIZE = 3


class PatchCNN(nn.Module):
    """F_i(X) = sum over filters r and patches p of smoothedReLU(<w_ir, x_p>), (n, classes).

    `filters` (classes, width, dim) hold the w_ir, drawn N(0, std^2); points are flat, (n, P dim)
    for any P. Li & Li 2025; nothing else is learned.

    Arguments:

    - `classes`: how many outputs, at least 2; labels are 0..classes-1.
    - `width`: how many filters each class has.
    - `dim`: how many coordinates a patch has.
    - `q`: the power of the `SmoothedReLU`, at least 1 (default 2).
    - `rho`: where the linear part of the `SmoothedReLU` begins, above 0 (default 5).
    - `std`: the filters' standard deviation at the start, above 0 (default 1e-3).
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    filters: nn.Parameter

    def __init__(
        self,
        classes: int,
        width: int,
        dim: int,
        *,
        q: float = 2.0,
        rho: float = 5.0,
        std: float = 1e-3,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.outputs = _check.integer("classes", classes, minimum=2)
        self.width = _check.integer("width", width, minimum=1)
        self.patch_dim = _check.integer("dim", dim, minimum=1)
        scale = _check.number("std", std, above=0.0)
        _check.floating("dtype", dtype)
        _check.generator("generator", generator)
        self.activation = SmoothedReLU(q, rho)
        shape = (classes, width, dim)
        draw = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.filters = nn.Parameter(draw.to(dtype))

    def extra_repr(self) -> str:
        """The settings that define the network, for print()."""
        return f"classes={self.outputs}, width={self.width}, dim={self.patch_dim}"

    def forward(self, x: Tensor) -> Tensor:
        """F(X), (n, classes), for X = `x` (n, P dim)."""
        return self._class_sums(self.activation(self._inner_products(x)), len(x))

    def input_gradient(
        self, x: Tensor, cotangent: Tensor | Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """F(X) and the gradient (n, P dim) of sum_i cotangent_i F_i(X) in X, without a graph.

        X is `x` (n, P dim). `cotangent` has the shape of F(X), or is a function of F(X), such as a
        loss's slope.
        """
        with torch.no_grad():
            values, slopes = self.activation.with_slope(self._inner_products(x))
            out = self._class_sums(values, len(x))
            given = cotangent(out) if callable(cotangent) else cotangent
            weight = slopes.reshape(len(x), -1, self.outputs, self.width)
            weight = weight * given.reshape(len(x), 1, self.outputs, 1)
            gradient = weight.reshape(len(slopes), -1) @ self.filters.flatten(0, 1)
        return out, gradient.reshape(x.shape)

    def _inner_products(self, x: Tensor) -> Tensor:
        """<w_ir, x_p>, (n P, classes width)."""
        rule = f"be (n, P {self.patch_dim}) numbers"
        good = x.ndim == 2 and x.shape[1] % self.patch_dim == 0
        _check.require(good, "x", rule, f"shape {tuple(x.shape)}")
        return nn.functional.linear(x.reshape(-1, self.patch_dim), self.filters.flatten(0, 1))

    def _class_sums(self, values: Tensor, count: int) -> Tensor:
        """Over patches and the filters of a class, (n, classes)."""
        return values.reshape(count, -1, self.outputs, self.width).sum((1, 3))


class PReLUConv2d(nn.Module):
    """relu(<w_j, patch>) cos(w_j, patch)^(p-1) at each place of images (n, inputs, h, w).

    The pReLU of a 3x3 patch as the code of Min & Vidal 2024 has it for images, divided by the
    patch's norm to the power p - 1: 1-homogeneous in the input and in `weight` (outputs, inputs, 3,
    3), so that layers can be stacked. p = 1 is a convolution without bias and a ReLU. A zero patch
    gives zero. Weights are uniform in +-sqrt(6 / fan-in), drawn by `generator`.

    Arguments:

    - `inputs`: how many channels the images have.
    - `outputs`: how many channels the result has, one for each neuron w_j.
    - `p`: the power of the activation, any real number of at least 1.
    - `stride`: places between two patches; the result's sides are those of the image divided by it,
      rounded up (default 1).
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        p: float,
        *,
        stride: int = 1,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        fan_in = _check.integer("inputs", inputs, minimum=1) * _KERNEL_SIZE**2
        _check.integer("outputs", outputs, minimum=1)
        self.p = _check.number("p", p, minimum=1.0)
        self.stride = _check.integer("stride", stride, minimum=1)
        _check.floating("dtype", dtype)
        shape = (outputs, inputs, _KERNEL_SIZE, _KERNEL_SIZE)
        draw = uniform_draw(*shape, generator=_check.generator("generator", generator))
        self.weight = nn.Parameter(((6.0 / fan_in) ** 0.5 * draw).to(dtype))

    def extra_repr(self) -> str:
        """The settings that define the layer, for print()."""
        outputs, inputs = self.weight.shape[:2]
        return f"inputs={inputs}, outputs={outputs}, p={self.p:g}, stride={self.stride}"

    def forward(self, x: Tensor) -> Tensor:
        """The post-activations at `x`, (n, outputs, h', w') with h' = ceil(h / stride)."""
        s = self._convolved(x, self.weight)
        if self.p == 1.0:
            return torch.relu(s)
        square = self._convolved(x * x, torch.ones_like(self.weight[:1]))  # (n, 1, h', w')
        length = torch.linalg.vector_norm(self.weight, dim=(1, 2, 3)).reshape(-1, 1, 1)
        # Where a patch is all zero so is s, and no gradient meets the root of zero.
        whole = length * torch.where(square > 0, square, 1.0).sqrt()
        return whole * relu_power(s / torch.where(whole > 0, whole, 1.0), self.p)

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.conv2d(x, weight, stride=self.stride, padding=_KERNEL_SIZE // 2)


class ConvPReLU(nn.Module):
    """PReLUConv2d layers of the given channels, a mean over 2x2 places, and a linear readout.

    Takes flat points (n, c h w) of images, minus a centre. The first layer keeps the image's size,
    each later one halves it.

    Arguments:

    - `shape`: (c, h, w) of the images.
    - `channels`: how many channels each layer gives, one number a layer, at least one.
    - `p`: the power of the activation, any real number of at least 1.
    - `outputs`: how many outputs: 1 for labels -1 / +1, C for labels 0..C-1.
    - `center`: what is taken from each point, of c h w entries; None for zero.
    - `dtype`: floating-point type of the weights, float32 by default.
    - `generator`: a `torch.Generator` that all random draws come from.
    """

    center: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        p: float,
        outputs: int,
        *,
        center: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape)
        listed = isinstance(channels, Sequence) and not isinstance(channels, str)
        rule = "be a sequence of at least one number"
        _check.require(listed and len(channels) > 0, "channels", rule, channels)
        for size in channels:
            _check.integer("channels", size, minimum=1)
        self.outputs = _check.integer("outputs", outputs, minimum=1)
        self.dim = self.shape[0] * self.shape[1] * self.shape[2]
        given = torch.zeros(self.dim) if center is None else center
        middle = _check.tensor(
            "center", given, (self.dim,), rule=f"be a ({self.dim},) tensor or None"
        )
        self.register_buffer("center", middle.detach().to(dtype, copy=True))
        self.layers = nn.Sequential(
            *(
                PReLUConv2d(a, b, p, stride=1 if i == 0 else 2, dtype=dtype, generator=generator)
                for i, (a, b) in enumerate(pairwise((self.shape[0], *channels)))
            )
        )
        height, width = self.shape[1:]
        for _ in channels[1:]:
            height, width = -(-height // 2), -(-width // 2)
        places = max(1, height // 2) * max(1, width // 2)
        self.pool = nn.AvgPool2d((min(2, height), min(2, width)))
        values = channels[-1] * places
        self.readout = nn.utils.skip_init(nn.Linear, values, self.outputs, dtype=dtype)
        with torch.no_grad():
            draw = uniform_draw(self.outputs, values, generator=generator)
            self.readout.weight.copy_((3.0 / values) ** 0.5 * draw)
            self.readout.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """f at `x` (n, dim): (n,) where outputs == 1, else (n, outputs)."""
        out: Tensor = self.readout(self.hidden(x))
        return out.squeeze(-1) if self.outputs == 1 else out

    def hidden(self, x: Tensor) -> Tensor:
        """What the readout reads at `x` (n, dim), (n, channels x places)."""
        check_rows(x, self.dim)
        images = (x - self.center).reshape(len(x), *self.shape)
        pooled: Tensor = self.pool(self.layers(images))
        return pooled.flatten(1)


def image_shape(shape: object) -> tuple[int, ...]:
    """A shape (channels, height, width), checked."""
    good = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) == 3
    _check.require(good, "shape", "be (channels, height, width)", shape)
    return tuple(_check.integer("shape", size, minimum=1) for size in shape)  # type: ignore[attr-defined]
