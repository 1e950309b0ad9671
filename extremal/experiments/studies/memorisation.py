"""Robust memorisation: a network of O(N d) parameters, and f*, on N separated points.

The study behind `li-2022/memorisation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from extremal import attack, certify, theory
from extremal.data import Dataset, separated_points
from extremal.experiments.trial import Outcome
from extremal.models import DistanceRatio, Memoriser

_CLOSE = 1e-9  # shares of a radius that rounding may take
_ENUMERATED = 21  # points along each axis of a ball in the plane


def memorisation(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """N random points with random labels: the memoriser's size, and its robust training error.

    The memoriser is built for `share` of eps, half the separation of the points. `robust_error` is
    under the strongest attack at that radius and `unproven` the share whose proven radius is
    smaller; `beyond` is what the same attack breaks at twice the separation, so that it can fail
    to find nothing. `enumerated_error`, in the plane, is over a grid of each point's ball. Of f*:
    the largest slope found times eps, and what attacks break just below eps.
    """
    count, dim = params["count"], params["dim"]
    found = separated_points(count, dim, separation=params["separation"], generator=generator)
    ratio = DistanceRatio.of(found)
    eps = theory.ratio_radius(ratio.separation)
    net = Memoriser(found, params["share"] * eps)
    few = found.spaced(params["attacked_points"])
    steps = params["attack_steps"]

    def broken(target: nn.Module, radius: float) -> float:
        result = attack.run(
            target, few.x, few.y, norm="linf", radius=radius, steps=steps, generator=generator
        )
        return float(result.success.double().mean())

    proven = certify.radius(net, found.x, found.y, norm="linf")
    numbers = {
        "parameters": float(net.parameter_count),
        "upper": theory.training_parameters("upper", count, dim).value,
        "lower": theory.training_parameters("lower", count, dim).value,
        "per_upper": net.parameter_count / (count * dim),
        "formula_gap": float(net.parameter_count - theory.memoriser_parameters(count, dim)),
        "measured_separation": ratio.separation,
        "robust_error": broken(net, net.radius),
        "unproven": float((proven < net.radius * (1.0 - _CLOSE)).double().mean()),
        "beyond": broken(net, 2.0 * ratio.separation),
        "ratio_slope": eps * steepest(ratio, found, params["slopes"], generator),
        "ratio_error": broken(ratio, 0.999 * eps),
        "ratio_unproven": _unproven(ratio, found, eps),
    }
    if dim == 2:
        numbers["enumerated_error"] = _enumerated(net, found)
    return Outcome(numbers)


def steepest(net: DistanceRatio, found: Dataset, count: int, generator: torch.Generator) -> float:
    """The largest |f(a) - f(b)| / ||a - b||_inf found: of random pairs, and along closest pairs."""
    a = torch.rand(count, found.dim, generator=generator, dtype=torch.float64)
    size = 10.0 ** (-6.0 * torch.rand(count, 1, generator=generator, dtype=torch.float64))
    step = 2.0 * torch.rand(count, found.dim, generator=generator, dtype=torch.float64) - 1.0
    far = torch.cdist(net.positive, net.negative, p=float("inf"))
    i, j = divmod(int(far.argmin()), far.shape[1])
    middle = 0.5 * (net.positive[i] + net.negative[j])
    toward = middle + 1e-6 * (net.positive[i] - middle)
    a, b = torch.cat([a, middle.unsqueeze(0)]), torch.cat([a + size * step, toward.unsqueeze(0)])
    return float(((net(a) - net(b)).abs() / (a - b).abs().amax(1)).max())


def _unproven(net: DistanceRatio, found: Dataset, eps: float) -> float:
    """The share of points whose proven radius is below eps."""
    proven = certify.radius(net, found.x, found.y, norm="linf")
    return float((proven < eps * (1.0 - _CLOSE)).double().mean())


def _enumerated(net: Memoriser, found: Dataset) -> float:
    """The share of points in the plane with a wrong one on a grid of their ball, edges included."""
    steps = torch.linspace(-net.radius, net.radius, _ENUMERATED, dtype=torch.float64)
    ball = torch.cartesian_prod(steps, steps)
    wrong = [bool((y * net(x + ball) <= 0).any()) for x, y in zip(found.x, found.y, strict=True)]
    return sum(wrong) / len(wrong)
