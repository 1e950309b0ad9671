"""EfficientNet-Lite and ResNets as plain frozen maps from images to features.

Batch norms are folded into the convolutions before them: what they were in evaluation mode, in any
mode. Weights are buffers, so nothing here can be trained; gradients in the images flow. Names of
parts and of `Stage` enter the digests that features are cached under.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from extremal import _check
from extremal._files import as_path, read_tensors, tensor_digest
from extremal.data import DataError

# The published ResNet-50 has this many bottlenecks in each stage.
RESNET_50_BLOCKS = (3, 4, 6, 3)
# The published ResNet-101 has this many bottlenecks in each stage.
RESNET_101_BLOCKS = (3, 4, 23, 3)
# The published ResNet-152 has this many bottlenecks in each stage.
RESNET_152_BLOCKS = (3, 8, 36, 3)

# ImageNet's pixels in [0, 1] have these means for red, green and blue, which networks see as 0.
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
# ImageNet's pixels have these standard deviations for each colour, which networks see as 1.
_IMAGENET_STD = (0.229, 0.224, 0.225)

# The batch norms of the published ResNets add this to variances.
_RESNET_NORM_EPSILON = 1e-5
# The batch norms of the published EfficientNets add this to variances.
_EFFICIENTNET_NORM_EPSILON = 1e-3


@dataclass(frozen=True)
class Stage:
    """`repeats` inverted bottlenecks, the first of them with the stride."""

    expand: int  # How many times more channels a bottleneck has inside.
    kernel: int  # The height and width of the filter of each channel.
    stride: int
    repeats: int


# The stages of EfficientNet-Lite0, which have 16, 24, 40, 80, 112, 192 and 320 channels.
EFFICIENTNET_LITE0_STAGES = (
    Stage(expand=1, kernel=3, stride=1, repeats=1),
    Stage(expand=6, kernel=3, stride=2, repeats=2),
    Stage(expand=6, kernel=5, stride=2, repeats=2),
    Stage(expand=6, kernel=3, stride=2, repeats=3),
    Stage(expand=6, kernel=5, stride=1, repeats=3),
    Stage(expand=6, kernel=5, stride=2, repeats=4),
    Stage(expand=6, kernel=3, stride=1, repeats=1),
)


class FrozenResNet(nn.Module):
    """The mean over places of a ResNet's last stage, (n, 3, h, w) -> (n, width), width 2048.

    Images in [0, 1] (224 x 224 is what published weights were trained on) lose ImageNet's mean and
    are divided by its deviation. A 7x7 convolution with stride 2 and a 3x3 maximum with stride 2
    come first, then a stage for each number of `blocks`: bottlenecks relu(x' + g(x)) with g of 1x1,
    3x3 and 1x1 convolutions, x' = x or, in each stage's first, a 1x1 convolution of it. From the
    second stage on the first bottleneck has stride 2, in its 3x3 convolution (He et al. 2016, Table
    1; the stride as in the variant 1.5).

    Arguments:

    - `state`: a state dict with the names that torchvision gives; what the classifier `fc` holds is
      passed over.
    - `blocks`: how many bottlenecks each stage has; (3, 8, 36, 3), ResNet-152, by default.
    """

    _mean: Tensor
    _std: Tensor

    def __init__(
        self, state: Mapping[str, Tensor], *, blocks: Sequence[int] = RESNET_152_BLOCKS
    ) -> None:
        super().__init__()
        _check.instance("state", state, Mapping, "map names to tensors")
        self.blocks = tuple(_check.integer("blocks", count, minimum=1) for count in blocks)
        _check_no_more(state, self.blocks)
        self.stem = _resnet_convolution(state, "conv1", "bn1", (None, 3, 7, 7), stride=2)
        channels = self.stem.outputs
        chain: list[nn.Module] = []
        for stage, count in enumerate(self.blocks):
            for turn in range(count):
                stride = 2 if stage > 0 and turn == 0 else 1
                place = f"layer{stage + 1}.{turn}."
                block = _ResBottleneck(state, place, channels, stride, first=turn == 0)
                channels = block.outputs
                chain.append(block)
        self.chain = nn.Sequential(*chain)
        self.width = channels
        for name, value in (("_mean", _IMAGENET_MEAN), ("_std", _IMAGENET_STD)):
            part = torch.tensor(value, dtype=self.stem.weight.dtype).reshape(3, 1, 1)
            self.register_buffer(name, part)
        self.eval()

    @property
    def digest(self) -> str:
        """SHA-256 of all that its features depend on: the weights and the settings."""
        return tensor_digest(f"resnet {self.blocks}", self.state_dict())

    def forward(self, images: Tensor) -> Tensor:
        """The features (n, width) of `images` (n, 3, h, w)."""
        check_images(images)
        x = (images.to(self._mean.dtype) - self._mean) / self._std
        x = self.stem(x.contiguous(memory_format=torch.channels_last)).relu_()
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        out: Tensor = self.chain(x).mean((2, 3))
        return out


def load_resnet(
    path: str | os.PathLike[str], *, blocks: Sequence[int] = RESNET_152_BLOCKS
) -> FrozenResNet:
    """The ResNet whose weights a `.safetensors` or a `.pth` file holds; no code in it is run.

    Arguments:

    - `path`: the file, with the names that torchvision gives.
    - `blocks`: how many bottlenecks each stage has; (3, 8, 36, 3), ResNet-152, by default.
    """
    file = as_path(path)
    try:
        if file.suffix == ".safetensors":
            state = read_tensors(file)[1]
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # A spoilt file may raise any, such as KeyError or struct.error.
        why = " ".join(str(error).split())[:200]
        raise DataError(f"cannot read the weights {file}: {why}") from error
    return FrozenResNet(state, blocks=blocks)


class _ResBottleneck(nn.Module):
    """relu(x' + g(x)): to fewer channels, filtered, and to more again, beside a shortcut."""

    def __init__(
        self, state: Mapping[str, Tensor], place: str, inputs: int, stride: int, *, first: bool
    ) -> None:
        super().__init__()
        first_1x1 = _resnet_convolution(state, f"{place}conv1", f"{place}bn1", (None, inputs, 1, 1))
        shape = (None, first_1x1.outputs, 3, 3)
        middle_3x3 = _resnet_convolution(
            state, f"{place}conv2", f"{place}bn2", shape, stride=stride
        )
        shape = (None, middle_3x3.outputs, 1, 1)
        last_1x1 = _resnet_convolution(state, f"{place}conv3", f"{place}bn3", shape)
        self.layers = nn.Sequential(first_1x1, nn.ReLU(), middle_3x3, nn.ReLU(), last_1x1)
        self.outputs = last_1x1.outputs
        self.shortcut: nn.Module = nn.Identity()
        if first:
            names = f"{place}downsample.0", f"{place}downsample.1"
            widths = (self.outputs, inputs, 1, 1)
            self.shortcut = _resnet_convolution(state, *names, widths, stride=stride)
        else:
            rule = f"have as many outputs as the bottleneck has inputs, {inputs}"
            _check.require(self.outputs == inputs, f"{place}conv3.weight", rule, self.outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x) + self.shortcut(x)
        return out.relu_()


def _check_no_more(state: Mapping[str, Tensor], blocks: tuple[int, ...]) -> None:
    """Require that the weights are of no larger network, whose rest would go unnoticed."""
    for name in state:
        found = re.match(r"layer(\d+)\.(\d+)\.", str(name))
        if found:
            stage, turn = int(found[1]) - 1, int(found[2])
            inside = stage < len(blocks) and turn < blocks[stage]
            _check.require(inside, "state", f"hold {blocks} bottlenecks and no more", name)


class EfficientNet(nn.Module):
    """The mean over places of the last of a chain of convolutions, (n, 3, h, w) -> (n, width).

    Images in [0, 1] are resized to `size` x `size` (bilinear; smoothed first where they shrink) and
    scaled to (255 x - 127) / 128. A 3x3 convolution with stride 2, the `stages` of inverted
    bottlenecks (1x1 to `expand` times the channels, kernel x kernel in each channel, 1x1 back, plus
    the input where it has the same form) and a 1x1 convolution follow: zeros around as TensorFlow's
    "same", ReLU6, no squeeze-and-excitation (Tan & Le 2019, Table 1; the Lite variant of their
    repository). `state` is a state dict of the published weights.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        *,
        stages: Sequence[Stage] = EFFICIENTNET_LITE0_STAGES,
        size: int = 224,
    ) -> None:
        super().__init__()
        self.size = _check.integer("size", size, minimum=1)
        self.stages = tuple(stages)
        self.stem = _efficientnet_convolution(state, "_conv_stem", "_bn0", stride=2)
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
        self.head = _efficientnet_convolution(state, "_conv_head", "_bn1")
        self.width = len(self.head.bias)
        self.eval()

    @property
    def digest(self) -> str:
        """SHA-256 of all that its features depend on: the weights and the settings."""
        return tensor_digest(f"efficientnet {self.stages} {self.size}", self.state_dict())

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
    found = _check.instance("images", images, Tensor, rule)
    good = found.ndim == 4 and found.shape[1] == 3 and found.is_floating_point()
    seen = f"shape {tuple(found.shape)} of {found.dtype}"
    _check.require(good and found.numel() > 0, "images", rule, seen)


class _LiteBlock(nn.Module):
    """To more channels, each filtered on its own, and to fewer again."""

    def __init__(self, state: Mapping[str, Tensor], place: str, stage: Stage, stride: int) -> None:
        super().__init__()
        numbered = ["_expand_conv", "_depthwise_conv", "_project_conv"]
        layers = [
            _efficientnet_convolution(
                state,
                f"{place}{name}",
                f"{place}_bn{k}",
                stride=stride if name == "_depthwise_conv" else 1,
                bounded=name != "_project_conv",
            )
            for k, name in enumerate(numbered)
            if stage.expand != 1 or name != "_expand_conv"
        ]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and layers[0].inputs == layers[-1].outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        return out.add_(x) if self.adds else out


class _FoldedConvolution(nn.Module):
    """A convolution and its batch norm as one, and ReLU6 where `bounded`.

    gamma (w * x - mean) / sqrt(var + epsilon) + beta, folded in float64 and rounded to w's type.
    Zeros stand around as TensorFlow's "same" padding has them where `tensorflow`, else half a
    kernel on each side; both keep the size at stride 1.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        state: Mapping[str, Tensor],
        name: str,
        norm: str,
        shape: tuple[int | None, ...],
        *,
        epsilon: float,
        tensorflow: bool,
        stride: int = 1,
        bounded: bool = True,
    ) -> None:
        super().__init__()
        weight = _tensor(state, f"{name}.weight", shape)
        self.outputs, self.stride, self.bounded = len(weight), stride, bounded
        self.tensorflow = tensorflow
        gamma, beta, mean, var = (
            _tensor(state, f"{norm}.{part}", (self.outputs,)).double()
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        slope = gamma / (var + epsilon).sqrt()
        folded = (weight.double() * slope.reshape(-1, 1, 1, 1)).to(weight.dtype)
        self.register_buffer("weight", folded.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", (beta - slope * mean).to(weight.dtype))
        self.groups = self.outputs if "depthwise" in name else 1
        self.inputs = weight.shape[1] * self.groups

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.shape[2]
        padding = (kernel // 2, kernel // 2)
        if self.tensorflow:
            rows = zeros_around(x.shape[2], kernel, self.stride)
            columns = zeros_around(x.shape[3], kernel, self.stride)
            padding = (rows[0], columns[0])
            if rows[0] != rows[1] or columns[0] != columns[1]:
                x, padding = functional.pad(x, (*columns, *rows)), (0, 0)
        out = functional.conv2d(x, self.weight, self.bias, self.stride, padding, groups=self.groups)
        return functional.relu6(out, inplace=True) if self.bounded else out


_resnet_convolution = partial(
    _FoldedConvolution, epsilon=_RESNET_NORM_EPSILON, tensorflow=False, bounded=False
)
_efficientnet_convolution = partial(
    _FoldedConvolution,
    shape=(None, None, None, None),
    epsilon=_EFFICIENTNET_NORM_EPSILON,
    tensorflow=True,
)


def _tensor(state: Mapping[str, Tensor], name: str, shape: tuple[int | None, ...]) -> Tensor:
    """The tensor of that name, once it is known to be there and of that shape (None: any)."""
    _check.require(name in state, "state", f"hold {name}", f"{len(state)} other tensors")
    return _check.tensor(name, state[name], [size or "any" for size in shape])


def zeros_around(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's "same" padding: zeros before and after `size` values, an odd one after.

    As many as make ceil(size / stride) outputs: (ceil(size / stride) - 1) stride + kernel - size.
    """
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2
