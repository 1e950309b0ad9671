"""The networks and points on which the bench `attack_optimality` compares minimal radii.

Random networks of 1-20 neurons in 1-15 dimensions, and `PReLUClassifier` on tables whose features
keep their units. A case is made from its settings alone, so that radii can be kept under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from sklearn import datasets
from torch import Tensor, nn

from extremal.data import Box
from extremal.models import Explicit, PReLUNet, margin
from extremal.sklearn import PReLUClassifier

NORMS = ("l2", "linf", "l1")
POWERS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
TABLE_POWERS = (1.0, 2.0, 3.0, 4.0)
TABLES: dict[str, Callable[..., object]] = {
    "breast cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
}
UNIT_BOX = (-1.0, 1.0)
MOST_NEURONS, MOST_DIMENSIONS, MOST_OUTPUTS = 20, 15, 4
POINTS_OF_A_NETWORK = 4
# A point is attacked if its margin is above this share of the median one: none lies on a boundary.
LEAST_MARGIN_SHARE = 0.02


@dataclass(frozen=True)
class Problem:
    """A network with points that it classifies correctly, and points of all classes."""

    net: nn.Module
    x: Tensor  # (n, dim) float64
    y: Tensor  # (n,)
    box: Box | None
    others: Tensor  # (m, dim): known points, starts for rivals

    def part(self, rows: slice) -> Problem:
        """The problem of some of the points."""
        return Problem(self.net, self.x[rows], self.y[rows], self.box, self.others)


@dataclass(frozen=True)
class RandomCase:
    """A random network of power p, the `seed` of which decides all else."""

    p: float
    norm: str
    boxed: bool
    seed: int

    @property
    def name(self) -> str:
        """The case in words; no two cases have the same."""
        box = "box" if self.boxed else "free"
        return f"random, p {self.p:g}, {self.norm} {box}, seed {self.seed}"

    def problem(self) -> Problem:
        """Network and points."""
        cell = 2 * NORMS.index(self.norm) + self.boxed
        generator = torch.Generator().manual_seed(
            10_000 * self.seed + 1000 * cell + int(10 * self.p)
        )

        def whole(low: int, high: int) -> int:
            return int(torch.randint(low, high + 1, (1,), generator=generator))

        while True:
            width, dim = whole(1, MOST_NEURONS), whole(1, MOST_DIMENSIONS)
            outputs = (1, 1, 2, 3, MOST_OUTPUTS)[whole(0, 4)]
            net = _random_network(dim, width, self.p, outputs, whole(0, 2), generator)
            x = torch.randn(64, dim, generator=generator, dtype=torch.float64)
            x = x.clamp(*UNIT_BOX) if self.boxed else x
            y, good = _judged(net, x)
            if len(good) >= POINTS_OF_A_NETWORK and len(y.unique()) > 1:
                good = good[:POINTS_OF_A_NETWORK]
                return Problem(net, x[good], y[good], UNIT_BOX if self.boxed else None, x)


@dataclass(frozen=True)
class TableCase:
    """A `PReLUClassifier` of power p on a table as it comes."""

    table: str
    p: float
    norm: str
    boxed: bool
    points: int

    @property
    def name(self) -> str:
        """The case in words; no two cases have the same."""
        box = "box" if self.boxed else "free"
        return f"{self.table}, p {self.p:g}, {self.norm} {box}"

    def problem(self) -> Problem:
        """Network and points; the box is what the table's columns span."""
        found = TABLES[self.table]()
        order = torch.randperm(len(found.data), generator=torch.Generator().manual_seed(0))
        x, y = torch.tensor(found.data)[order], torch.tensor(found.target)[order]
        half = len(x) // 2
        fitted = PReLUClassifier(p=self.p, random_state=0).fit(x[half:].numpy(), y[half:].numpy())
        right = torch.nonzero(torch.from_numpy(fitted.predict(x.numpy())) == y).squeeze(1)
        right = right[: self.points]
        box = (x.amin(0), x.amax(0)) if self.boxed else None
        return Problem(fitted.net_, x[right], y[right], box, x)


def random_cases(networks: int) -> list[RandomCase]:
    """So many networks for each power, norm and box."""
    axes = product(POWERS, NORMS, (False, True), range(networks))
    return [RandomCase(*axis) for axis in axes]


def table_cases(points: int, others: int) -> list[TableCase]:
    """So many points of each table for each power in l2, and `others` in each other region."""
    regions = [("l2", False, points), ("linf", False, others), ("l1", False, others)]
    regions += [("l2", True, others), ("linf", True, others), ("l1", True, others)]
    return [
        TableCase(table, p, norm, boxed, count)
        for table, p, (norm, boxed, count) in product(TABLES, TABLE_POWERS, regions)
    ]


def _random_network(
    dim: int, width: int, p: float, outputs: int, biases: int, generator: torch.Generator
) -> PReLUNet:
    """Gaussian weights; no biases, those of neurons, or those of neurons and outputs."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return PReLUNet(
        dim,
        width,
        p,
        outputs,
        bias=biases > 1,
        hidden_bias=biases > 0,
        init=Explicit(
            normal(width, dim) / dim**0.5,
            normal(outputs, width),
            0.5 * normal(width),
            0.5 * normal(outputs),
        ),
        dtype=torch.float64,
        generator=generator,
    )


def _judged(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The labels (n,) that the network gives, and the rows that are clearly of theirs."""
    with torch.no_grad():
        out = net(x)
        y = torch.where(out > 0, 1, -1) if out.ndim == 1 else out.argmax(1)
        value = margin(net, x, y)
    return y, torch.nonzero(value > LEAST_MARGIN_SHARE * value.abs().median()).squeeze(1)
