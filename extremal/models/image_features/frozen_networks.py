"""EfficientNet-Lite as a plain frozen map from images to features.

ResNets of bottlenecks as plain frozen maps from images to features.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from extremal import _check
from extremal._files import as_path, read_tensors
from extremal.data import DataError

RESNET50, RESNET101, RESNET152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)  # bottlenecks a stage
_RESNET_NORM_EPSILON = 1e-5  # of the batch norms
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels


class ResNet(nn.Module):
    """The mean over places of a ResNet's last stage, (n, 3, h, w) -> (n, width), width 2048.

    Images in [0, 1] (224 x 224 is what published weights were trained on) lose ImageNet's mean and
    are divided by its deviation. A 7x7 convolution with stride 2 and a 3x3 maximum with stride 2
    come first, then a stage for each number of `blocks`: bottlenecks relu(x' + g(x)) with g of 1x1,
    3x3 and 1x1 convolutions, x' = x or, in each stage's first, a 1x1 convolution of it. From the
    second stage on the first bottleneck has stride 2, in its 3x3 convolution (He et al. 2016,
    Table 1; the stride as in the variant 1.5). `state` is a state dict with the names that
    torchvision gives; what the classifier `fc` holds is passed over. Batch norms are folded into
    the convolutions: what they were in evaluation mode, in any mode. Weights are buffers, so
    nothing here can be trained; gradients in the images flow.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(self, state: Mapping[str, Tensor], *, blocks: Sequence[int] = RESNET152) -> None:
        super().__init__()
        _check.instance("state", state, Mapping, "map names to tensors")
        self.blocks = tuple(_check.integer("blocks", count, minimum=1) for count in blocks)
        _check_no_more(state, self.blocks)
        self.stem = _ResConvolution(state, "conv1", "bn1", inputs=3, kernel=7, stride=2)
        here = self.stem.outputs
        chain: list[nn.Module] = []
        for stage, count in enumerate(self.blocks):
            for turn in range(count):
                stride = 2 if stage > 0 and turn == 0 else 1
                place = f"layer{stage + 1}.{turn}."
                block = _ResBottleneck(state, place, here, stride, first=turn == 0)
                here = block.outputs
                chain.append(block)
        self.chain = nn.Sequential(*chain)
        self.width = here
        for name, value in (("_mean", _MEAN), ("_std", _STD)):
            part = torch.tensor(value, dtype=self.stem.weight.dtype).reshape(3, 1, 1)
            self.register_buffer(name, part)
        self.eval()

    @property
    def digest(self) -> str:
        """SHA-256 of all that its features depend on: the weights and the settings."""
        return fingerprint(f"resnet {self.blocks}", self.state_dict())

    def forward(self, images: Tensor) -> Tensor:
        """The features (n, width) of images (n, 3, h, w)."""
        check_images(images)
        x = (images.to(self._mean.dtype) - self._mean) / self._std
        x = self.stem(x.contiguous(memory_format=torch.channels_last)).relu_()
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        out: Tensor = self.chain(x).mean((2, 3))
        return out


def load_resnet(path: str | os.PathLike[str], *, blocks: Sequence[int] = RESNET152) -> ResNet:
    """The ResNet whose weights a `.safetensors` or a `.pth` file holds; no code in it is run."""
    file = as_path(path)
    try:
        if file.suffix == ".safetensors":
            state = read_tensors(file)[1]
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # what a spoilt file raises is the reader's affair
        why = " ".join(str(error).split())[:200]
        raise DataError(f"cannot read the weights {file}: {why}") from error
    return ResNet(state, blocks=blocks)


class _ResBottleneck(nn.Module):
    """relu(x' + g(x)): channels gathered, filtered, and spread again, beside a shortcut."""

    def __init__(
        self, state: Mapping[str, Tensor], place: str, inputs: int, stride: int, *, first: bool
    ) -> None:
        super().__init__()
        gather = _ResConvolution(state, f"{place}conv1", f"{place}bn1", inputs=inputs, kernel=1)
        filters = _ResConvolution(
            state, f"{place}conv2", f"{place}bn2", inputs=gather.outputs, kernel=3, stride=stride
        )
        last = _ResConvolution(
            state, f"{place}conv3", f"{place}bn3", inputs=filters.outputs, kernel=1
        )
        self.layers = nn.Sequential(gather, nn.ReLU(), filters, nn.ReLU(), last)
        self.outputs = last.outputs
        self.shortcut: nn.Module = nn.Identity()
        if first:
            names = f"{place}downsample.0", f"{place}downsample.1"
            self.shortcut = _ResConvolution(
                state, *names, inputs=inputs, kernel=1, stride=stride, outputs=self.outputs
            )
        else:
            rule = f"have as many outputs as the bottleneck has inputs, {inputs}"
            _check.require(self.outputs == inputs, f"{place}conv3.weight", rule, self.outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x) + self.shortcut(x)
        return out.relu_()


class _ResConvolution(nn.Module):
    """A convolution and its batch norm as one, with zeros around that keep the size at stride 1.

    gamma (w * x - mean) / sqrt(var + epsilon) + beta, folded in float64 and rounded to w's type.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        state: Mapping[str, Tensor],
        name: str,
        norm: str,
        *,
        inputs: int,
        kernel: int,
        stride: int = 1,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        weight = _tensor(state, f"{name}.weight", (outputs, inputs, kernel, kernel))
        self.outputs, self.stride, self.around = len(weight), stride, kernel // 2
        gamma, beta, mean, var = (
            _tensor(state, f"{norm}.{part}", (self.outputs,)).double()
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        slope = gamma / (var + _RESNET_NORM_EPSILON).sqrt()
        folded = (weight.double() * slope.reshape(-1, 1, 1, 1)).to(weight.dtype)
        self.register_buffer("weight", folded.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", (beta - slope * mean).to(weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight, self.bias, self.stride, self.around)


def _tensor(state: Mapping[str, Tensor], name: str, shape: tuple[int | None, ...]) -> Tensor:
    """The tensor of that name, once it is known to be there and of that shape (None: any)."""
    _check.require(name in state, "state", f"hold {name}", f"{len(state)} other tensors")
    value = state[name]
    rule = f"be a floating-point tensor of shape ({', '.join(str(n or 'any') for n in shape)})"
    _check.instance(name, value, Tensor, rule)
    fits = value.ndim == len(shape) and value.is_floating_point()
    fits = fits and all(n in (None, own) for n, own in zip(shape, value.shape, strict=True))
    _check.require(fits, name, rule, f"shape {tuple(value.shape)} of {value.dtype}")
    return value


def _check_no_more(state: Mapping[str, Tensor], blocks: tuple[int, ...]) -> None:
    """Require that the weights are of no larger network, whose rest would go unnoticed."""
    for name in state:
        found = re.match(r"layer(\d+)\.(\d+)\.", str(name))
        if found:
            stage, turn = int(found[1]) - 1, int(found[2])
            inside = stage < len(blocks) and turn < blocks[stage]
            _check.require(inside, "state", f"hold {blocks} bottlenecks and no more", name)


_EFFICIENTNET_NORM_EPSILON = 1e-3  # of the batch norms


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
        self.stem = _LiteConvolution(state, "_conv_stem", "_bn0", stride=2)
        strides = [
            (stage, stage.stride if turn == 0 else 1)
            for stage in self.stages
            for turn in range(stage.repeats)
        ]
        self.blocks = nn.Sequential(
            *(
                _LiteBlock(state, f"_blocks.{at}.", stage, stride)
                for at, (stage, stride) in enumerate(strides)
            )
        )
        self.head = _LiteConvolution(state, "_conv_head", "_bn1")
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


class _LiteBlock(nn.Module):
    """Channels spread, filtered each on its own, and gathered again."""

    def __init__(self, state: Mapping[str, Tensor], place: str, stage: Stage, stride: int) -> None:
        super().__init__()
        layers = []
        if stage.expand != 1:
            layers.append(_LiteConvolution(state, f"{place}_expand_conv", f"{place}_bn0"))
        middle = _LiteConvolution(state, f"{place}_depthwise_conv", f"{place}_bn1", stride=stride)
        last = _LiteConvolution(state, f"{place}_project_conv", f"{place}_bn2", bounded=False)
        self.layers = nn.Sequential(*layers, middle, last)
        first = self.layers[0]
        assert isinstance(first, _LiteConvolution)
        self.adds = stride == 1 and first.inputs == len(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        return out.add_(x) if self.adds else out


class _LiteConvolution(nn.Module):
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
    slope = gamma / (var + _EFFICIENTNET_NORM_EPSILON).sqrt()
    kind = state[names[0]].dtype
    return (weight * slope.reshape(-1, 1, 1, 1)).to(kind), (beta - slope * mean).to(kind)
