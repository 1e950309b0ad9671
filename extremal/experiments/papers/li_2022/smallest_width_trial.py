"""The smallest width whose training reaches an error, clean or robust, as a problem grows.

On a manifold also the network of a cover: how large it is, and what it proves of fresh points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from extremal import _check, attack, certify, measure, models, train
from extremal.data import Dataset, LatticeCells, ManifoldCells
from extremal.experiments.trial import Outcome
from extremal.models import least_distance, pairwise_distances

PROBLEM_NAMES = ("lattice", "manifold", "ambient")


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """For each size of a problem the smallest of `widths` that reaches the `target` error.

    One hidden layer of ReLUs with biases, trained by Adam on all points at once: on the points for
    the clean error, on attacked ones (`train.adversarial`) for the robust error, which is that of
    the strongest attack on fresh points. Of `starts` trainings the best counts. A size whose target
    no width reached is `censored`: its width is None, and `unreached` counts such sizes.

    On a lattice `plane_clean` and `plane_robust` are errors of the plane that separates it, d + 1
    parameters: the largest clean and the smallest robust one over sizes. On a torus networks of
    covers are built for each of `cover_sizes` (`covered`).
    """
    _check.choice("problem", params["problem"], PROBLEM_NAMES)
    robust: list[float | None] = []
    clean: list[float | None] = []
    separations, planes = [], []
    for size in params["sizes"]:
        source, learn, test = problem(params, size, generator)
        if isinstance(source, LatticeCells):
            planes.append(_plane(params, source, test, generator))
        separations.append(source.separation)
        robust.append(_least(params, learn, test, params["radius"], generator))
        clean.append(_least(params, learn, test, 0.0, generator))
    return Outcome(
        {
            "size": [float(size) for size in params["sizes"]],
            "robust_width": robust,
            "clean_width": clean,
            "censored": [float(width is None) for width in robust],
            "separation": separations,
            "unreached": float(robust.count(None)),
            "clean_largest": max(math.inf if width is None else width for width in clean),
            "plane_clean": max((error for error, _ in planes), default=math.nan),
            "plane_robust": min((error for _, error in planes), default=math.nan),
            **_covers(params, generator),
        }
    )


def _covers(params: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """What networks of covers take and prove, over `cover_sizes`."""
    sizes = params["cover_sizes"]
    found = [covered(params, _torus(params, size, generator), generator) for size in sizes]
    return {
        "cover_size": [float(size) for size in sizes],
        "cover": [float(each.points) for each in found],
        "cover_parameters": [float(each.parameters) for each in found],
        "coverage": [each.coverage for each in found],
        "cover_error": [each.error for each in found],
        "least_coverage": min((each.coverage for each in found), default=math.nan),
        "largest_cover_error": max((each.error for each in found), default=math.nan),
    }


def problem(
    params: Mapping[str, Any], size: int, generator: torch.Generator
) -> tuple[LatticeCells | ManifoldCells, Dataset, Dataset]:
    """The data of one size: cells of random labels, points to learn from and to test on.

    "lattice": linearly separable, 2^size cells in size + 1 dimensions, l-inf. "manifold": a torus
    of dimension size in `dim` dimensions, l2. "ambient": one of dimension `intrinsic` in size.
    """
    source: LatticeCells | ManifoldCells
    if params["problem"] == "lattice":
        source = LatticeCells(
            size + 1,
            noise=params["noise"],
            linear=True,
            offset=params["offset"],
            generator=generator,
        )
        cells = source.count
    else:
        source = _torus(params, size, generator)
        cells = len(source.labels)
    learn, test = (
        source.sample(each * cells, generator=generator)
        for each in (params["train_each"], params["test_each"])
    )
    return source, learn, test


def _torus(params: Mapping[str, Any], size: int, generator: torch.Generator) -> ManifoldCells:
    over_k = params["problem"] == "manifold"
    k, dim = (size, params["dim"]) if over_k else (params["intrinsic"], size)
    return ManifoldCells("torus", k, dim, gap=params["gap"], generator=generator)


def _plane(
    params: Mapping[str, Any], source: LatticeCells, test: Dataset, generator: torch.Generator
) -> tuple[float, float]:
    """The clean and the robust error of the sign of the last coordinate's offset."""
    net = models.mlp(source.dim, (), generator=generator)
    plane = net[0]
    assert isinstance(plane, torch.nn.Linear)
    with torch.no_grad():
        plane.weight.copy_(torch.eye(source.dim)[-1:])
        plane.bias.fill_(-0.5)
    found = attack.run(
        net, test.x, test.y, norm="linf", radius=params["radius"], steps=5, generator=generator
    )
    return 1.0 - measure.accuracy(net, test), float(found.success.double().mean())


def _norm(params: Mapping[str, Any]) -> Any:
    return "linf" if params["problem"] == "lattice" else "l2"


def _least(
    params: Mapping[str, Any],
    learn: Dataset,
    test: Dataset,
    radius: float,
    generator: torch.Generator,
) -> float | None:
    """The first width that reaches the target in one of its starts."""
    for width in params["widths"]:
        for _ in range(params["starts"]):
            if _error(params, learn, test, radius, width, generator) <= params["target"]:
                return float(width)
    return None


def _error(
    params: Mapping[str, Any],
    learn: Dataset,
    test: Dataset,
    radius: float,
    width: int,
    generator: torch.Generator,
) -> float:
    """The error on the test points of one training, under attack where there is a radius."""
    middle = learn.x.mean(0)
    net = models.PReLUNet(
        learn.dim,
        width,
        hidden_bias=True,
        bias=True,
        preparation=models.Preparation(scale=params["scale"], center=middle),
        init=models.Kaiming(),
        generator=generator,
    )
    train.adversarial(
        net,
        learn,
        inner=train.InnerAttack(
            _norm(params), radius, steps=params["inner_steps"] if radius else 1
        ),
        loss="logistic",
        method="adam",
        lr=params["lr"],
        epochs=params["steps"],
        watch=train.RobustValidation(points=1, steps=1),
        generator=generator,
    )
    if radius == 0.0:
        return 1.0 - measure.accuracy(net, test)
    found = attack.run(net, test.x, test.y, norm=_norm(params), radius=radius, generator=generator)
    return float(found.success.double().mean())


# A cover is drawn from so many points at most.
_MOST_COVER_POINTS = 200_000


@dataclass(frozen=True)
class Covered:
    """A cover network: points of the cover, parameters, and two shares of fresh points.

    `coverage` is the share within reach of the cover, `error` the one whose class is not proven at
    the radius: its certified robust error.
    """

    points: int
    parameters: int
    coverage: float
    error: float


def covered(
    params: Mapping[str, Any], source: ManifoldCells, generator: torch.Generator
) -> Covered:
    """Cover a manifold until `coverage` of fresh points are within reach, and build the network.

    In l1, which the memoriser knows. Radius and reach are the shares `cover_radius` and
    `cover_reach` of the classes' l1 distance in a first sample: distances in l1 grow with the
    ambient dimension although the manifold stays as it is. `cover_batch` points at a time are
    drawn; those of them that are bare are covered in turn, until few enough are.
    """
    size, goal = params["cover_batch"], params["coverage"]

    def draw() -> Dataset:
        return source.sample(size, generator=generator, dtype=torch.float64)

    first = draw()
    apart = least_distance(first.x[first.y == 1], first.x[first.y == -1], "l1")
    radius, reach = params["cover_radius"] * apart, params["cover_reach"] * apart
    found, drawn = first.take(models.cover(first, reach, "l1")), size
    while True:
        fresh, drawn = draw(), drawn + size
        bare = _bare(fresh, found, reach)
        coverage = 1.0 - float(bare.double().mean())
        if coverage >= goal or drawn >= _MOST_COVER_POINTS:
            break
        left = fresh.take(bare)
        left = left.take(models.cover(left, reach, "l1"))
        found = Dataset(torch.cat([found.x, left.x]), torch.cat([found.y, left.y]))
    net = models.Memoriser(found, radius + reach, "l1")
    test = draw()
    proven = certify.radius(net, test.x, test.y, norm="l1")
    error = float((proven < radius).double().mean())
    return Covered(len(found), net.parameter_count, coverage, error)


def _bare(fresh: Dataset, found: Dataset, reach: float) -> Tensor:
    """Which fresh points (n,) no point of their class covers."""
    far = pairwise_distances(fresh.x, found.x, "l1")
    return far.where(fresh.y.unsqueeze(1) == found.y, torch.inf).amin(1) > reach
