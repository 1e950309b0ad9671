"""ResNets of bottlenecks as plain frozen maps from images to features."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from extremal import _check
from extremal._files import as_path, read_tensors
from extremal.data.fetching.download import DataError
from extremal.models.image_features.frozen_networks import check_images, fingerprint

RESNET50, RESNET101, RESNET152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)  # bottlenecks a stage
_EPSILON = 1e-5  # of the batch norms
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
        self.stem = _Convolution(state, "conv1", "bn1", inputs=3, kernel=7, stride=2)
        here = self.stem.outputs
        chain: list[nn.Module] = []
        for stage, count in enumerate(self.blocks):
            for turn in range(count):
                stride = 2 if stage > 0 and turn == 0 else 1
                place = f"layer{stage + 1}.{turn}."
                block = _Bottleneck(state, place, here, stride, first=turn == 0)
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


class _Bottleneck(nn.Module):
    """relu(x' + g(x)): channels gathered, filtered, and spread again, beside a shortcut."""

    def __init__(
        self, state: Mapping[str, Tensor], place: str, inputs: int, stride: int, *, first: bool
    ) -> None:
        super().__init__()
        gather = _Convolution(state, f"{place}conv1", f"{place}bn1", inputs=inputs, kernel=1)
        filters = _Convolution(
            state, f"{place}conv2", f"{place}bn2", inputs=gather.outputs, kernel=3, stride=stride
        )
        last = _Convolution(state, f"{place}conv3", f"{place}bn3", inputs=filters.outputs, kernel=1)
        self.layers = nn.Sequential(gather, nn.ReLU(), filters, nn.ReLU(), last)
        self.outputs = last.outputs
        self.shortcut: nn.Module = nn.Identity()
        if first:
            names = f"{place}downsample.0", f"{place}downsample.1"
            self.shortcut = _Convolution(
                state, *names, inputs=inputs, kernel=1, stride=stride, outputs=self.outputs
            )
        else:
            rule = f"have as many outputs as the bottleneck has inputs, {inputs}"
            _check.require(self.outputs == inputs, f"{place}conv3.weight", rule, self.outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x) + self.shortcut(x)
        return out.relu_()


class _Convolution(nn.Module):
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
        slope = gamma / (var + _EPSILON).sqrt()
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
