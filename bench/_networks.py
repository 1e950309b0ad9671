"""Networks that benches measure on, trained by the papers' recipes and kept in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal import data, models, train
from extremal.data.fetch import cache_folder


def mnist_network(p: float, seed: int = 0) -> models.PReLUNet:
    """A network of the MNIST recipe (FACTS: Table 1), trained once; about a minute of one core."""
    path = cache_folder() / "networks" / f"mnist-p{p:g}-seed{seed}.safetensors"
    if path.exists():
        net = models.load(path)
        assert isinstance(net, models.PReLUNet)
        return net
    images, _ = data.published_split(data.load("mnist")[0])
    torch.set_flush_denormal(True)
    net = train.mnist_recipe(p, images, generator=torch.Generator().manual_seed(seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    net.save(path)
    return net


def mnist_points(count: int) -> tuple[Tensor, Tensor]:
    """The first images of the official test set, scaled as the networks' training images were."""
    _, test = data.load("mnist")
    return test.x[:count] * (255.0 / 256.0), test.y[:count]
