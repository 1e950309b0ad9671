"""How near certificates come to attacks, and at what cost: MNIST networks and the paper's mixture.

On MNIST, l2 without a box: the ratio of certified and attacked radius, certified accuracy beside
linear and Lipschitz bounds, and the cost of a certificate in units of one minimal-radius attack.
With the box, and in linf: what linear bounds reach. On the synthetic networks at the paper's size:
both sides for 20,000 points, and their cost beside the training's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from bench._networks import mixture_problem, mnist_network, mnist_points
from extremal import attack, certify, data, models, train
from extremal.certify.l2_problem import Perturbation, TargetPairs, squared_norm_range
from extremal.certify.l2_radius import bisected_radii, prepare_l2
from extremal.certify.linear_bounds import linear_bound
from extremal.certify.reduced_networks import reduced_versions

SETTINGS: dict[str, Any] = {
    "mnist": {"points": 500, "powers": [1, 2, 3, 4], "radii": [0.5, 1.0], "boxed points": 100},
    "mixture": {
        "dim": 1000,
        "positive": 6,
        "negative": 4,
        "spread": 0.1,
        "width": 2000,
        "train_points": 20_000,
        "test_points": 20_000,
        "init": 1e-7,
        "flow_time": 16_040.0,
        "powers": [1, 3],
    },
    "threads": 1,
    "seconds": "of the process, so that other work on the machine counts little",
}
QUANTILES = (0.01, 0.1, 0.5)
Found = TypeVar("Found")


def measure() -> dict[str, Any]:
    """Both parts."""
    torch.set_num_threads(SETTINGS["threads"])
    torch.set_flush_denormal(True)
    ratios: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for p in SETTINGS["mnist"]["powers"]:
        _mnist(float(p), ratios, figures)
    for p in SETTINGS["mixture"]["powers"]:
        _mixture(float(p), ratios, figures)
    return {"bench": "certify", "ratios": ratios, "figures": figures, "settings": SETTINGS}


def _mnist(p: float, ratios: dict[str, float], figures: dict[str, Any]) -> None:
    net, name = mnist_network(p), f"mnist, p = {p:g}"
    x, y = mnist_points(SETTINGS["mnist"]["points"])
    attacking, broken = _timed(lambda: attack.shortest(net, x, y))
    certifying, certificate = _timed(lambda: certify.certificate(net, x, y, attacked=broken.x_adv))
    lower, upper = certificate.radius, broken.radius
    rows = torch.nonzero(upper > 0).squeeze(1)
    itself = reduced_versions(net)[-1]
    nothing = torch.zeros(len(rows), dtype=torch.float64)
    problem, limit = prepare_l2(itself, x[rows], y[rows], nothing, broken.x_adv[rows])
    quick = {
        kind: torch.zeros_like(upper).index_copy(0, rows, bisected_radii(problem, limit, bound))
        for kind, bound in (("linear", linear_bound), ("lipschitz", _lipschitz_bound))
    }
    ratios |= _quantiles(lower, upper, name)
    ratios[f"certificate over one minimal attack, seconds, {name}"] = certifying / attacking
    figures[f"ms a point, {name}"] = {
        "attack": 1e3 * attacking / len(x),
        "certificate": 1e3 * certifying / len(x),
    }
    figures[f"accuracy, {name}"] = {
        f"l2 {radius:g}": {
            "certified": _share(lower >= radius),
            "attacked": _share(upper > radius),
            **{kind: _share(radii >= radius) for kind, radii in quick.items()},
        }
        for radius in SETTINGS["mnist"]["radii"]
    }
    some = SETTINGS["mnist"]["boxed points"]
    for norm in ("linf", "l1", "l2"):
        boxed = attack.shortest(net, x[:some], y[:some], norm=norm, box=(0.0, 1.0)).radius
        held = certify.radius(net, x[:some], y[:some], norm=norm, box=(0.0, 1.0))
        figures[f"certified over attacked, {norm} in the box, {name}"] = _quantiles(held, boxed, "")


def _lipschitz_bound(pairs: TargetPairs, move: Perturbation) -> Tensor:
    """M(0) - rho L for pairs of a shallow network, (m,), L a bound on ||grad M|| in the ball.

    L = lambda_1(U U')^(1/2) || (|a_j| p relu(s_j + rho)^(p-1))_j ||; the term of normalised inputs
    is taken at its least. The perturbation is of no use to it.
    """
    a, s, beta = pairs.weight_gap, pairs.preactivations, pairs.constant_gap
    slope = models.relu_power_with_slope(s + pairs.radius.unsqueeze(1), pairs.p)[1]
    largest = torch.linalg.eigvalsh(pairs.gram)[-1]
    steep = largest.sqrt() * torch.linalg.vector_norm(a * slope, dim=1)
    norms = squared_norm_range(pairs.squared_norm, pairs.radius)
    low, high = (end**pairs.power for end in norms)
    level = (a * models.relu_power(s, pairs.p)).sum(1)
    return level + torch.minimum(beta * low, beta * high) - pairs.radius * steep


def _mixture(p: float, ratios: dict[str, float], figures: dict[str, Any]) -> None:
    net, test, spent = _trained(p)
    name = f"mixture, p = {p:g}"
    attacking, broken = _timed(lambda: attack.shortest(net, test.x, test.y))
    certifying, certificate = _timed(
        lambda: certify.certificate(net, test.x, test.y, attacked=broken.x_adv)
    )
    lower, upper = certificate.radius, broken.radius
    ratios |= _quantiles(lower, upper, name)
    for kind, seconds in spent.items():
        cost = (attacking + certifying) / seconds
        ratios[f"attack and certificate over training ({kind}), seconds, {name}"] = cost
    figures[f"seconds, {name}"] = {"attack": attacking, "certificate": certifying, **spent}
    figures[f"radii, {name}"] = {
        side: {f"{q:g}": float(radii.quantile(q)) for q in (0.01, 0.5, 0.99)}
        for side, radii in (("certified", lower), ("attacked", upper))
    }


def _trained(p: float) -> tuple[models.PReLUNet, data.Dataset, dict[str, float]]:
    """A network of the paper's size, points to test it on, and what its training took."""
    given = SETTINGS["mixture"]
    spent: dict[str, float] = {}
    for kind in ("plain x and y", "known mixture"):
        made = mixture_problem(given, p)
        net, points = made.net, made.points
        if kind == "plain x and y":
            points = data.Dataset(points.x, points.y)
        until = given["flow_time"]
        seconds, _ = _timed(lambda: train.gradient_flow(net, points, until=until))  # noqa: B023
        spent[kind] = seconds
    return net, made.mixture.sample(given["test_points"], generator=made.generator), spent


def _quantiles(lower: Tensor, upper: Tensor, name: str) -> dict[str, float]:
    """Of certified over attacked radius, over points that are classified correctly."""
    right = upper > 0
    ratio = lower[right] / upper[right]
    end = f", {name}" if name else ""
    return {
        f"certified over attacked radius, quantile {q:g}{end}": float(ratio.quantile(q))
        for q in QUANTILES
    }


def _share(good: Tensor) -> float:
    return float(good.double().mean())


def _timed(work: Callable[[], Found]) -> tuple[float, Found]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result
