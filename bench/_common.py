"""What benches share: a clock, tables for the docs, and networks of the papers' recipes, kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from extremal import data, models, train
from extremal.data import cache_folder

Found = TypeVar("Found")


def timed(work: Callable[[], Found]) -> tuple[float, Found]:
    """Seconds of the process that some work takes, and what it returns.

    Other work on the machine counts little in them.
    """
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of the process that some work takes."""
    return timed(work)[0]


def wall_seconds(work: Callable[[], object]) -> float:
    """Seconds by the clock on the wall that some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, with all columns but the first to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("|  |", "| |")


def is_number(value: Any) -> bool:
    """Whether a figure is one number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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
