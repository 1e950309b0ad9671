"""EfficientNet-Lite as a plain frozen map from images to features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from extremal import _check

_EPSILON = 1e-3  # of the batch norms


@dataclass(frozen=True)
class Stage:
    """`repeats` inverted bottlenecks, the first of them with the stride."""

    expand: int
    kernel: int
    stride: int
    repeats: int


LITE0 = (  # with 16, 24, 40, 80, 112, 192 and 320 channels
    Stage(expand=1, kernel=3, stride=1, repeats=1),
    Stage(expand=6, kernel=3, stride=2, repeats=2),
    Stage(expand=6, kernel=5, stride=2, repeats=2),
    Stage(expand=6, kernel=3, stride=2, repeats=3),
    Stage(expand=6, kernel=5, stride=1, repeats=3),
    Stage(expand=6, kernel=5, stride=2, repeats=4),
    Stage(expand=6, kernel=3, stride=1, repeats=1),
)


class EfficientNet(nn.Module):
    """The mean over places of the last of a chain of convolutions, (n, 3, h, w) -> (n, width).

    Images in [0, 1] are resized to `size` x `size` (bilinear; smoothed first where they shrink) and
    scaled to (255 x - 127) / 128. A 3x3 convolution with stride 2, the `stages` of inverted
    bottlenecks (1x1 to `expand` times the channels, kernel x kernel in each channel, 1x1 back, plus
    the input where it has the same form) and a 1x1 convolution follow: zeros around as TensorFlow's
    "same", ReLU6, no squeeze-and-excitation (Tan & Le 2019, Table 1; the Lite variant of their
    repository). The batch norms of `state`, a state dict of the published weights, are folded into
    the convolutions: what they were in evaluation mode, in any mode. Weights are buffers, so
    nothing here can be trained; gradients in the images flow.
    """

    def __init__(
        self, state: Mapping[str, Tensor], *, stages: Sequence[Stage] = LITE0, size: int = 224
    ) -> None:
        super().__init__()
        self.size = _check.integer("size", size, minimum=1)
        self.stages = tuple(stages)
        self.stem = _Convolution(state, "_conv_stem", "_bn0", stride=2)
        strides = [
            (stage, stage.stride if turn == 0 else 1)
            for stage in self.stages
            for turn in range(stage.repeats)
        ]
        self.blocks = nn.Sequential(
            *(
                _Bottleneck(state, f"_blocks.{at}.", stage, stride)
                for at, (stage, stride) in enumerate(strides)
            )
        )
        self.head = _Convolution(state, "_conv_head", "_bn1")
        self.width = len(self.head.bias)
        self.eval()

    @property
    def digest(self) -> str:
        """SHA-256 of all that its features depend on: the weights and the settings."""
        return fingerprint(f"efficientnet {self.stages} {self.size}", self.state_dict())

    def forward(self, images: Tensor) -> Tensor:
        """The features (n, width) of images (n, 3, h, w)."""
        check_images(images)
        x = self._resized(images.to(self.stem.weight.dtype)) * (255 / 128) - 127 / 128
        x = x.contiguous(memory_format=torch.channels_last)
        return self.head(self.blocks(self.stem(x))).mean((2, 3))

    def _resized(self, images: Tensor) -> Tensor:
        sides = images.shape[2:]
        if tuple(sides) == (self.size, self.size):
            return images
        return functional.interpolate(
            images, (self.size, self.size), mode="bilinear", antialias=max(sides) > self.size
        )


def check_images(images: object) -> None:
    """Require images (n, 3, height, width) of real numbers, at least one."""
    rule = "be a floating-point tensor of shape (n, 3, height, width)"
    _check.instance("images", images, Tensor, rule)
    assert isinstance(images, Tensor)
    good = images.ndim == 4 and images.shape[1] == 3 and images.is_floating_point()
    seen = f"shape {tuple(images.shape)} of {images.dtype}"
    _check.require(good and images.numel() > 0, "images", rule, seen)


class _Bottleneck(nn.Module):
    """Channels spread, filtered each on its own, and gathered again."""

    def __init__(self, state: Mapping[str, Tensor], place: str, stage: Stage, stride: int) -> None:
        super().__init__()
        layers = []
        if stage.expand != 1:
            layers.append(_Convolution(state, f"{place}_expand_conv", f"{place}_bn0"))
        middle = _Convolution(state, f"{place}_depthwise_conv", f"{place}_bn1", stride=stride)
        last = _Convolution(state, f"{place}_project_conv", f"{place}_bn2", bounded=False)
        self.layers = nn.Sequential(*layers, middle, last)
        first = self.layers[0]
        assert isinstance(first, _Convolution)
        self.adds = stride == 1 and first.inputs == len(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        return out.add_(x) if self.adds else out


class _Convolution(nn.Module):
    """A convolution and its batch norm as one, with "same" padding, and ReLU6 where `bounded`."""

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        state: Mapping[str, Tensor],
        name: str,
        norm: str,
        *,
        stride: int = 1,
        bounded: bool = True,
    ) -> None:
        super().__init__()
        weight, bias = _folded(state, name, norm)
        self.register_buffer("weight", weight.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", bias)
        self.stride, self.bounded = stride, bounded
        self.groups = len(weight) if "depthwise" in name else 1
        self.inputs = weight.shape[1] * self.groups

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.shape[2]
        rows = zeros_around(x.shape[2], kernel, self.stride)
        columns = zeros_around(x.shape[3], kernel, self.stride)
        even = rows[0] == rows[1] and columns[0] == columns[1]
        if not even:
            x = functional.pad(x, (*columns, *rows))
        around = (rows[0], columns[0]) if even else 0
        out = functional.conv2d(x, self.weight, self.bias, self.stride, around, groups=self.groups)
        return functional.relu6(out, inplace=True) if self.bounded else out


def zeros_around(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's "same" padding: zeros before and after `size` values, an odd one after.

    As many as make ceil(size / stride) outputs: (ceil(size / stride) - 1) stride + kernel - size.
    """
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


def fingerprint(settings: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of settings and of tensors with their names, types, shapes and values."""
    seal = hashlib.sha256(settings.encode())
    for name, part in sorted(tensors.items()):
        seal.update(f"\n{name} {part.dtype} {tuple(part.shape)}\n".encode())
        seal.update(part.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return seal.hexdigest()


def _folded(state: Mapping[str, Tensor], name: str, norm: str) -> tuple[Tensor, Tensor]:
    """Weight and bias that do a convolution and its batch norm in one.

    gamma (w * x - mean) / sqrt(var + epsilon) + beta, in float64, rounded to the weight's type.
    """
    names = [f"{name}.weight"]
    names += [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    for part in names:
        _check.require(part in state, "state", f"hold {part}", f"{len(state)} other tensors")
    weight, gamma, beta, mean, var = (state[part].double() for part in names)
    slope = gamma / (var + _EPSILON).sqrt()
    kind = state[names[0]].dtype
    return (weight * slope.reshape(-1, 1, 1, 1)).to(kind), (beta - slope * mean).to(kind)
