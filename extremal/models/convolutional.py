"""A convolutional network of polynomial ReLUs, for images: deeper, and not shallow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.models.activations import relu_power

_KERNEL = 3


class PReLUConv2d(nn.Module):
    """relu(<w_j, patch>) cos(w_j, patch)^(p-1) at each place of images (n, inputs, h, w).

    The pReLU of a 3x3 patch as the code of Min & Vidal 2024 has it for images, divided by the
    patch's norm to the power p - 1: 1-homogeneous in the input and in `weight` (outputs, inputs, 3,
    3), so that layers can be stacked. p = 1 is a convolution without bias and a ReLU. A zero patch
    gives zero. Weights are uniform in +-sqrt(6 / fan-in), drawn by `generator`.
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
        fan = _check.integer("inputs", inputs, minimum=1) * _KERNEL**2
        _check.integer("outputs", outputs, minimum=1)
        self.p = _check.number("p", p, minimum=1.0)
        self.stride = _check.integer("stride", stride, minimum=1)
        _check.floating("dtype", dtype)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, _KERNEL, _KERNEL, dtype=dtype))
        _fill(self.weight, (6.0 / fan) ** 0.5, generator)

    def extra_repr(self) -> str:
        """The settings that define the layer, for print()."""
        outputs, inputs = self.weight.shape[:2]
        return f"inputs={inputs}, outputs={outputs}, p={self.p:g}, stride={self.stride}"

    def forward(self, x: Tensor) -> Tensor:
        """The post-activations, (n, outputs, h', w') with h' = ceil(h / stride)."""
        s = self._convolved(x, self.weight)
        if self.p == 1.0:
            return torch.relu(s)
        square = self._convolved(x * x, torch.ones_like(self.weight[:1]))  # (n, 1, h', w')
        length = torch.linalg.vector_norm(self.weight, dim=(1, 2, 3)).reshape(-1, 1, 1)
        # Where a patch is all zero so is s, and no gradient meets the root of zero.
        whole = length * torch.where(square > 0, square, 1.0).sqrt()
        return whole * relu_power(s / torch.where(whole > 0, whole, 1.0), self.p)

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.conv2d(x, weight, stride=self.stride, padding=_KERNEL // 2)


class ConvPReLU(nn.Module):
    """PReLUConv2d layers of the given channels, a mean over 2x2 places, and a linear readout.

    Takes flat points (n, c h w) of images of `shape` (c, h, w) minus a `center` of as many entries
    (none: zero). The first layer keeps the image's size, each later one halves it.
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
        triple = _listed(shape) and len(shape) == 3
        _check.require(triple, "shape", "be (channels, height, width)", shape)
        self.shape = tuple(_check.integer("shape", size, minimum=1) for size in shape)
        some = _listed(channels) and len(channels) > 0
        _check.require(some, "channels", "be a sequence of at least one number", channels)
        for size in channels:
            _check.integer("channels", size, minimum=1)
        self.outputs = _check.integer("outputs", outputs, minimum=1)
        self.dim = self.shape[0] * self.shape[1] * self.shape[2]
        self.register_buffer("center", _center(center, self.dim).to(dtype))
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
        self.readout = nn.Linear(channels[-1] * places, self.outputs, dtype=dtype, device="meta")
        self.readout = self.readout.to_empty(device="cpu")
        with torch.no_grad():
            _fill(self.readout.weight, (3.0 / self.readout.in_features) ** 0.5, generator)
            self.readout.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """f(x): (n,) where outputs == 1, else (n, outputs)."""
        out: Tensor = self.readout(self.hidden(x))
        return out.squeeze(-1) if self.outputs == 1 else out

    def hidden(self, x: Tensor) -> Tensor:
        """What the readout reads, (n, channels x places)."""
        rule = f"be a tensor of shape (n, {self.dim})"
        _check.instance("x", x, Tensor, rule)
        fits = x.ndim == 2 and x.shape[1] == self.dim
        _check.require(fits, "x", rule, f"shape {tuple(x.shape)}")
        images = (x - self.center).reshape(len(x), *self.shape)
        pooled: Tensor = self.pool(self.layers(images))
        return pooled.flatten(1)


@torch.no_grad()
def _fill(weight: Tensor, limit: float, generator: torch.Generator) -> None:
    """Uniform in +-limit, drawn in float64, so that one seed gives the same in every dtype."""
    _check.generator("generator", generator)
    drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float64)
    weight.copy_(limit * (2.0 * drawn - 1.0))


def _listed(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _center(center: Tensor | None, dim: int) -> Tensor:
    if center is None:
        return torch.zeros(dim)
    good = isinstance(center, Tensor) and center.shape == (dim,)
    seen = tuple(center.shape) if isinstance(center, Tensor) else type(center).__name__
    _check.require(good, "center", f"be a ({dim},) tensor or None", seen)
    _check.finite("center", center)
    return center.detach().clone()
