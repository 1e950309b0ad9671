"""Theorem 2.2: zero robust training error on N separated points takes O~(N d) parameters.

Beside that network f*, the ratio of distances, on the same points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from extremal import attack, certify, theory
from extremal.data import Dataset, separated_points
from extremal.experiments import Experiment, Line, Setting
from extremal.experiments.papers.shared.claim_rows import claims
from extremal.experiments.trial import Outcome
from extremal.models import DistanceRatio, Memoriser

_BEYOND_SOURCE = (
    "ours: corners leave a point's own indicator there, and an attack that misses them says nothing"
)


def _line(title: str, y: tuple[str, ...], ylabel: str, log: str, **labels: str) -> Line:
    return Line(title, "count", y, "points N", ylabel, by="dim", log=log, labels=labels)  # type: ignore[arg-type]


memorisation = Experiment(
    name="li-2022/memorisation",
    title="How large must a network be to have no robust training error?",
    source="Li, Jin, Zhong, Hopcroft & Wang 2022, Theorems 2.2 and 2.3, lemma on f*",
    study="extremal.experiments.studies.memorisation:memorisation",
    settings={
        "count": Setting([10, 30, 100, 300], "O", "N"),
        "dim": Setting([2, 5, 20, 50], "O", "d"),
        "separation": Setting(0.02, "O", "at least, in l-inf, of random points in the cube"),
        "share": Setting(0.9, "O", "of eps, half the measured separation, that is the radius"),
        "attacked_points": Setting(50, "O", "at most, evenly spaced; all are certified"),
        "attack_steps": Setting(20, "O", "of each attack"),
        "slopes": Setting(2000, "O", "random pairs that slopes of f* are measured on"),
        "seeds": Setting(3, "O"),
    },
    quick={"count": [10, 30, 100], "dim": [2, 5, 20], "seeds": 1},
    smoke={
        "count": [6, 10],
        "dim": [2, 3],
        "attacked_points": 4,
        "attack_steps": 3,
        "slopes": 100,
        "seeds": 1,
    },
    axes=("count", "dim"),
    panels=(
        _line("Parameters of the memoriser", ("parameters",), "parameters", "xy"),
        _line(
            "Bounds without constants",
            ("upper", "lower"),
            "order of parameters",
            "xy",
            upper="N d",
            lower="√(N d)",
        ),
        _line(
            "What the strongest attack breaks",
            ("robust_error", "beyond"),
            "share of training points",
            "x",
            robust_error="at its radius",
            beyond="5 % above its limit",
        ),
    ),
    claims=claims(
        _BEYOND_SOURCE,
        {},
        ("broken just beyond its limit", "beyond", 1.0, 0.0),
        rule="above",
        against="question",
    ),
    version=2,
    notes=(
        "Random points of the unit cube with random labels. The memoriser is exact, a soft "
        "indicator of each point's ball in two hidden layers, with 6 N d + 2 N parameters: the "
        "upper bound's shape with no logarithm in l-inf. Up to N d = 600 its matrices are written "
        "out, their non-zero weights counted and their interval bounds taken. Its limit is "
        "radius + gap / d, where corners of a ball leave the indicator of its middle. No source "
        "has constants, so that the lower bound can only be compared in shape: between the two "
        "lies a factor of √(N d). What the construction's proof and the lemma on f* say is held by "
        "tests and has no rows here: it cannot come out otherwise."
    ),
)


# Rounding may take this share of a radius.
_ROUNDING_SHARE = 1e-9
# A ball in the plane is enumerated at so many points along each axis.
_GRID_POINTS_PER_AXIS = 21
# Up to this N d the network is written out, with 4 (N d)^2 weights and more.
_LARGEST_EXPLICIT_SIZE = 600
# Up to so many dimensions all corners of a ball are looked at.
_MOST_CORNER_DIMENSIONS = 10
# The attack beyond the construction's limit is at this share of it.
_SHARE_OF_THE_LIMIT = 1.05
# These numbers are known without an attack, of small problems.
_EXACT_NUMBERS = (
    "enumerated_error",
    "corner_error",
    "corners_beyond",
    "counted",
    "formula_gap",
    "plain_unproven",
)


def trial(params: Mapping[str, Any], generator: torch.Generator) -> Outcome:
    """N random points with random labels: the memoriser's size, and its robust training error.

    The memoriser is built for `share` of eps, half the separation of the points. `robust_error` is
    under the strongest attack at that radius and `unproven` the share whose proven radius is
    smaller. `beyond` is what the same attack breaks just above radius + gap / d, where a point's
    own indicator vanishes at the corners of its ball: an attack that finds nothing there says
    nothing. `corner_error` and `corners_beyond` are the same by enumeration of all corners,
    `enumerated_error`, in the plane, over a grid of each point's ball.

    For small N d the network is written out with its matrices: `counted` are its weights that are
    not zero, `formula_gap` those minus 6 N d + 2 N, and `plain_unproven` the share of points that
    interval bounds of that network do not prove. Of f*: the largest slope found times eps, and what
    attacks break just below eps.
    """
    count, dim = params["count"], params["dim"]
    found = separated_points(count, dim, separation=params["separation"], generator=generator)
    ratio = DistanceRatio.of(found)
    eps = theory.ratio_radius(ratio.separation)
    net = Memoriser(found, params["share"] * eps)
    few = found.evenly_spaced(params["attacked_points"])
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
        "measured_separation": ratio.separation,
        "robust_error": broken(net, net.radius),
        "unproven": float((proven < net.radius * (1.0 - _ROUNDING_SHARE)).double().mean()),
        "beyond": broken(net, _limit(net)),
        "ratio_slope": eps * steepest(ratio, found, params["slopes"], generator),
        "ratio_error": broken(ratio, 0.999 * eps),
        "ratio_unproven": _unproven(ratio, found, eps),
    }
    return Outcome(numbers | _exact(net, found))


def _exact(net: Memoriser, found: Dataset) -> dict[str, float | None]:
    """What is known without an attack, of small problems; None where they are too large."""
    count, dim = found.x.shape
    numbers: dict[str, float | None] = dict.fromkeys(_EXACT_NUMBERS)
    if dim == 2:
        numbers["enumerated_error"] = _enumerated(net, found)
    if dim <= _MOST_CORNER_DIMENSIONS:
        numbers["corner_error"] = cornered(net, found, net.radius)
        numbers["corners_beyond"] = cornered(net, found, _limit(net))
    if count * dim <= _LARGEST_EXPLICIT_SIZE:
        plain = net.explicit()
        counted = sum(int(part.count_nonzero()) for part in plain.parameters())
        numbers["counted"] = float(counted)
        numbers["formula_gap"] = float(counted - theory.memoriser_parameters(count, dim))
        low = interval_margins(plain, found, net.radius)
        numbers["plain_unproven"] = float((low <= 0).double().mean())
    return numbers


def _limit(net: Memoriser) -> float:
    """A radius just above that at which corners of a ball leave its own indicator."""
    return _SHARE_OF_THE_LIMIT * (net.radius + net.gap / net.dim)


def interval_margins(net: nn.Module, found: Dataset, radius: float) -> Tensor:
    """Lower bounds (n,) of the margin over linf balls: intervals of all neurons, layer by layer.

    For a chain of linear layers and ReLUs with one output. A linear layer maps a box of middle c
    and half widths r into one of middle W c + b and half widths |W| r.
    """
    low, high = found.x.double() - radius, found.x.double() + radius
    for layer in net.children():
        if isinstance(layer, nn.Linear):
            middle, half = layer((low + high) / 2), (high - low) / 2 @ layer.weight.abs().T
            low, high = middle - half, middle + half
        else:
            low, high = layer(low), layer(high)  # ReLU and Flatten are monotone
    return torch.where(found.y == 1, low, -high).detach()


def cornered(net: nn.Module, found: Dataset, radius: float) -> float:
    """The share of points with a wrong corner of their linf ball, of all 2^d."""
    sides = torch.tensor([-radius, radius], dtype=torch.float64)
    corners = torch.cartesian_prod(*[sides] * found.dim).reshape(-1, found.dim)
    return _wrong(net, found, corners)


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
    return float((proven < eps * (1.0 - _ROUNDING_SHARE)).double().mean())


def _enumerated(net: Memoriser, found: Dataset) -> float:
    """The share of points in the plane with a wrong one on a grid of their ball, edges included."""
    steps = torch.linspace(-net.radius, net.radius, _GRID_POINTS_PER_AXIS, dtype=torch.float64)
    return _wrong(net, found, torch.cartesian_prod(steps, steps))


def _wrong(net: nn.Module, found: Dataset, moves: Tensor) -> float:
    """The share of points that one of these moves (m, dim) takes to a wrong class, or to 0."""
    pairs = zip(found.x, found.y, strict=True)
    wrong = [bool((y * net(x + moves) <= 0).any()) for x, y in pairs]
    return sum(wrong) / len(wrong)
