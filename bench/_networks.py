"""Networks that benches measure on, trained by the papers' recipes and kept in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extremal import data, models, train
from extremal.data import cache_folder


@dataclass(frozen=True, eq=False)
class MixtureProblem:
    """The paper's mixture, training points, an untrained network, and what draws more points."""

    mixture: data.OrthonormalMixture
    points: data.Dataset
    net: models.PReLUNet
    generator: torch.Generator


def mixture_problem(given: Mapping[str, Any], p: float) -> MixtureProblem:
    """The problem of a bench's settings (dim, positive, negative, spread, width, ...), seed 0."""
    generator = torch.Generator().manual_seed(0)
    mixture = data.OrthonormalMixture(
        given["dim"], given["positive"], given["negative"], given["spread"]
    )
    points = mixture.sample(given["train_points"], generator=generator)
    start = models.Gaussian(given["init"])
    net = models.PReLUNet(given["dim"], given["width"], p, init=start, generator=generator)
    return MixtureProblem(mixture, points, net, generator)


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
