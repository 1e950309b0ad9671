"""Certificates under fire: random networks and points of many kinds, attacked inside their radii.

A pair is a network and a point of it. Each is certified in one norm, with or without a box, and
then attacked inside of its radius: by code of this file, random points and gradient steps, on the
network as it runs, in float32 or float64; and by `attack.minimal`. A violation is any point inside
the radius at which the margin of the network as it runs is not above zero, and any attack that is
smaller than the radius. Some networks are evaluated whole, which must not raise.

What each network showed is kept in the user's cache, so that a run that was stopped goes on. From
the root of the repository, for a tenth of each kind:

python -m bench.certificate_fuzz 0.1
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench._common import markdown_table
from extremal import attack, certify, data, evaluate, models
from extremal.evaluate import BracketViolation

# Networks of each kind in a whole run, and points of each.
KINDS: dict[str, dict[str, int]] = {
    "tiny": {"networks": 64, "points": 128},
    "kink": {"networks": 64, "points": 128},
    "extreme": {"networks": 64, "points": 128},
    "mid": {"networks": 56, "points": 128},
    "big": {"networks": 8, "points": 128},
    "stand-in": {"networks": 20, "points": 256},
    "raw units": {"networks": 64, "points": 128},
    "ties": {"networks": 88, "points": 128},
    "cancelling": {"networks": 32, "points": 64},
    "other networks": {"networks": 24, "points": 64},
}
SETTINGS: dict[str, Any] = {
    "seed": 0,
    "threads": 1,
    "kinds": KINDS,
    "powers": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0],
    "norms": ["l1", "l2", "linf"],
    "random points of each pair": 24,
    "gradient steps of each pair": 24,
    "inside, as a share of the radius": 1.0 - 1e-9,
    "share of networks with effort tight": 0.4,
    "points that are asked for one radius, too, one of": 4,
    "networks that are evaluated whole, one of": 16,
    "points of such an evaluation": 8,
}
# An attack is smaller than a certified radius from this share on: norms are rounded.
RADIUS_ROUNDING_SHARE = 1e-12
# An attack within this share of the certified radius leaves nothing to be found between them.
NEAR_SHARE = 0.02
# The smallest and the largest power of ten of the scales of extreme networks.
EXTREME_EXPONENT = 12.0
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, eq=False)
class Case:
    """A network, points and labels, and where they are attacked."""

    net: nn.Module
    x: Tensor  # (n, dim), of the network's dtype
    y: Tensor  # (n,)
    norm: str
    box: data.Box | None
    effort: str


@dataclass(frozen=True, eq=False)
class Fired:
    """What attacks made of claimed radii (n,)."""

    broken_inside: Tensor  # (n,) bool: a point inside the radius at which the class is lost
    attacked: Tensor  # (n,): the radii of `attack.minimal`


def measure(share: float = 1.0, folder: Path | None = None) -> dict[str, Any]:
    """All kinds, with a share of the networks of each; what is in the folder is taken from there.

    The folder is one of the user's cache unless it is given.
    """
    torch.set_num_threads(SETTINGS["threads"])
    folder = folder or data.cache_folder() / "certificate-fuzz"
    figures: dict[str, Any] = {}
    for kind, size in KINDS.items():
        numbers = range(math.ceil(size["networks"] * share))
        figures[kind] = summed([_kept(kind, number, size["points"], folder) for number in numbers])
    figures["all"] = summed(list(figures.values()))
    return {
        "bench": "certificate_fuzz",
        "ratios": {"violations over pairs": figures["all"]["violations"] / figures["all"]["pairs"]},
        "figures": figures,
        "settings": {**SETTINGS, "share of a whole run": share},
    }


def summed(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several networks, or kinds, showed together."""
    least = "least attacked over certified"
    counts = {name: sum(each[name] for each in found) for name in found[0] if name != least}
    ratios = [each[least] for each in found if each[least] is not None]
    return {**counts, least: min(ratios, default=None)}


def _kept(kind: str, number: int, points: int, folder: Path) -> dict[str, Any]:
    """What one network showed; from the folder, if these sources found it."""
    path = folder / _sources() / f"{kind.replace(' ', '-')}-{number}-{points}.json"
    if not path.exists():
        case = case_of(kind, number, points)
        whole = number % SETTINGS["networks that are evaluated whole, one of"] == 0
        found = judged(case, torch.Generator().manual_seed(number), whole=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(path)
    result: dict[str, Any] = json.loads(path.read_text())
    return result


@cache
def _sources() -> str:
    """A hash of what the results depend on."""
    parts = ("attack", "certify", "evaluate", "models")
    files = [file for part in parts for file in sorted((_ROOT / "extremal" / part).rglob("*.py"))]
    text = b"".join(file.read_bytes() for file in (*files, Path(__file__)))
    return hashlib.sha256(text).hexdigest()[:16]


def judged(case: Case, generator: torch.Generator, *, whole: bool) -> dict[str, Any]:
    """What happened to the pairs of one network, which is evaluated, too, where `whole`."""
    radii = claimed_radii(case)
    fired = fire(case, radii, generator)
    certified = radii > 0
    ratio = (fired.attacked / radii)[certified]
    found = ratio[ratio.isfinite()]
    return {
        "pairs": len(radii),
        "certified pairs": int(certified.sum()),
        "violations": int(violations(radii, fired).sum()),
        "near pairs": int((found < 1.0 + NEAR_SHARE).sum()),
        "evaluations": int(whole),
        "raised": int(whole and not _evaluates(case)),
        "least attacked over certified": float(found.min()) if len(found) > 0 else None,
    }


def claimed_radii(case: Case) -> Tensor:
    """The certified radii (n,), or for some points a larger one at which `holds` says yes."""
    shared: dict[str, Any] = {"norm": case.norm, "box": case.box, "effort": case.effort}
    radii = certify.radius(case.net, case.x, case.y, **shared)
    known = radii[radii > 0]
    if len(known) == 0:
        return radii
    middle = float(known.median())
    few = slice(None, None, SETTINGS["points that are asked for one radius, too, one of"])
    held = certify.holds(case.net, case.x[few], case.y[few], middle, **shared)
    radii[few] = torch.where(held, radii[few].clamp(min=middle), radii[few])
    return radii


def fire(case: Case, radii: Tensor, generator: torch.Generator) -> Fired:
    """Attacks inside claimed radii (n,): by code of this bench, and by `attack.minimal`."""
    found = attack.minimal(
        case.net, case.x, case.y, norm=case.norm, box=case.box, generator=generator
    )
    rows = torch.nonzero(radii > 0).squeeze(1)
    broken = torch.zeros_like(radii, dtype=torch.bool)
    if len(rows) > 0:
        part = replace(case, x=case.x[rows], y=case.y[rows])
        broken[rows] = _lost_inside(part, radii[rows], found.x_adv[rows], generator)
    return Fired(broken, found.radius)


def violations(radii: Tensor, fired: Fired) -> Tensor:
    """Where a claim is wrong, (n,) bool."""
    below = fired.attacked < radii * (1.0 - RADIUS_ROUNDING_SHARE)
    return fired.broken_inside | (below & (radii > 0))


def _evaluates(case: Case) -> bool:
    """Whether an evaluation of the network ends without an error."""
    few = slice(SETTINGS["points of such an evaluation"])
    test = data.Dataset(case.x[few], case.y[few], box=case.box)
    try:
        evaluate(case.net, test, norm=case.norm, generator=torch.Generator())
    except BracketViolation:
        return False
    return True


def _lost_inside(case: Case, radii: Tensor, toward: Tensor, generator: torch.Generator) -> Tensor:
    """Whether any point that is tried inside the radii loses its class, (n,) bool."""
    rho = (SETTINGS["inside, as a share of the radius"] * radii).unsqueeze(1)
    lost = _loses(case, torch.zeros_like(case.x, dtype=torch.float64), radii)
    best = (toward - case.x).double()
    best = best * rho / _size(best, case.norm)
    lost |= _loses(case, best, radii)
    for _ in range(SETTINGS["random points of each pair"]):
        step = torch.randn(case.x.shape, generator=generator, dtype=torch.float64)
        step = step**3 if torch.rand((), generator=generator) < 0.5 else step
        lost |= _loses(case, step * rho / _size(step, case.norm), radii)
    start = torch.randn(case.x.shape, generator=generator, dtype=torch.float64)
    for begin in (best, start * rho / _size(start, case.norm)):
        lost |= _lost_by_gradients(case, radii, rho, begin)
    return lost


def _lost_by_gradients(case: Case, radii: Tensor, rho: Tensor, step: Tensor) -> Tensor:
    """Gradient steps from a perturbation, in float64: the whole way to the surface, then less."""
    twin = models.float64_copy(case.net)
    lost = torch.zeros_like(radii, dtype=torch.bool)
    count = SETTINGS["gradient steps of each pair"] // 2
    for number in range(count):
        step = _inside(case, step, rho).requires_grad_(True)
        margins = _margins(twin(case.x.double() + step), case.y)
        (slope,) = torch.autograd.grad(margins.sum(), step)
        length = 2.0 * rho * (1.0 - number / count)
        step = step.detach() - length * _steepest(slope, case.norm)
        lost |= _loses(case, step, radii)
    return lost


def _loses(case: Case, step: Tensor, radii: Tensor) -> Tensor:
    """Whether the network as it runs loses the class at x + step, (n,) bool.

    The points are those that the network's dtype has; one that rounding put outside of the ball or
    the box does not count.
    """
    x = case.x.double()
    points = (x + _inside(case, step, radii.unsqueeze(1))).to(case.x.dtype)
    if case.box is not None:
        low, high = (torch.as_tensor(end).to(points) for end in case.box)
        points = torch.minimum(torch.maximum(points, low), high)
    moved = points.double() - x
    inside = torch.linalg.vector_norm(moved, _order(case.norm), dim=1) <= radii
    with torch.no_grad():
        margins = _margins(case.net(points), case.y)
    return inside & ~(margins > 0)


def _margins(out: Tensor, y: Tensor) -> Tensor:
    """y f, or own output minus the best other one, (n,); written here, not imported."""
    if out.ndim == 1:
        return y * out
    own = out.gather(1, y.unsqueeze(1)).squeeze(1)
    others = out.scatter(1, y.unsqueeze(1), -torch.inf).amax(1)
    return own - others


def _inside(case: Case, step: Tensor, rho: Tensor) -> Tensor:
    """Perturbations cut to the ball and the box; x lies in the box, so that a cut shortens."""
    step = torch.nan_to_num(step.detach(), nan=0.0, posinf=0.0, neginf=0.0)
    if case.norm == "linf":
        step = torch.maximum(torch.minimum(step, rho), -rho)
    step = step * (rho / _size(step, case.norm)).clamp(max=1.0)
    if case.box is None:
        return step
    x = case.x.double()
    low, high = (torch.as_tensor(end, dtype=torch.float64) for end in case.box)
    return torch.minimum(torch.maximum(step, low - x), high - x)


def _order(norm: str) -> float:
    return {"l1": 1.0, "l2": 2.0, "linf": math.inf}[norm]


def _size(step: Tensor, norm: str) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(step, _order(norm), dim=1, keepdim=True)
    return size.clamp(min=1e-300)


def _steepest(slope: Tensor, norm: str) -> Tensor:
    """Where <slope, d> is largest over ||d|| <= 1, (n, dim)."""
    if norm == "l2":
        return slope / _size(slope, norm)
    if norm == "linf":
        return slope.sign()
    first = slope.abs().argmax(1, keepdim=True)
    return torch.zeros_like(slope).scatter(1, first, slope.gather(1, first).sign())


def case_of(kind: str, number: int, points: int) -> Case:
    """One of the networks of a kind, with so many points; the same for the same number."""
    seed = zlib.crc32(f"{kind} {SETTINGS['seed']} {number}".encode())
    draw = _Draw(torch.Generator().manual_seed(seed))
    return _MAKERS[kind](draw, points)


@dataclass(frozen=True)
class _Draw:
    """Random numbers of one network."""

    generator: torch.Generator

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return bool(torch.rand((), generator=self.generator) < share)

    def pick(self, options: Any) -> Any:
        """One of a sequence."""
        return options[self.integer(0, len(options) - 1)]

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers in float64."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def power_of_ten(self, most: float) -> float:
        """10^e, e between -most and most."""
        return float(10.0 ** (most * (2.0 * torch.rand((), generator=self.generator) - 1.0)))


@dataclass(frozen=True, eq=False)
class _Parts:
    """The weights of a network before it is made, in float64."""

    neurons: Tensor  # (h, dim)
    votes: Tensor  # (outputs, h)
    hidden_bias: Tensor | None
    bias: Tensor | None
    preparation: models.Preparation


def _parts(draw: _Draw, dim: int, width: int, outputs: int) -> _Parts:
    """Weights of size one, with biases by chance."""
    return _Parts(
        draw.normal(width, dim),
        draw.normal(outputs, width),
        0.5 * draw.normal(width) if draw.chance(0.3) else None,
        0.5 * draw.normal(outputs) if draw.chance(0.3) else None,
        models.Preparation(),
    )


def _case(draw: _Draw, parts: _Parts, x: Tensor, p: float | None = None) -> Case:
    """The network of these weights in float32 or float64, and its own labels at x (n, dim)."""
    outputs, width = parts.votes.shape
    dtype = draw.pick([torch.float32, torch.float64])
    p = draw.pick(SETTINGS["powers"]) if p is None else p
    init = models.Explicit(parts.neurons, parts.votes, parts.hidden_bias, parts.bias)
    net: nn.Module = models.PReLUNet(
        x.shape[1],
        width,
        p,
        outputs,
        bias=parts.bias is not None,
        hidden_bias=parts.hidden_bias is not None,
        preparation=parts.preparation,
        init=init,
        dtype=dtype,
        generator=draw.generator,
    )
    if outputs > 2 and draw.chance(0.2):
        net = models.Grouped(net, torch.arange(outputs) % 2)
    return _labelled(draw, net, x.to(dtype))


def _labelled(draw: _Draw, net: nn.Module, x: Tensor) -> Case:
    """A network with points (n, dim), in a box by chance, and its own labels at them."""
    box = None
    if draw.chance(0.5):
        box = (float(x.quantile(0.05)), float(x.quantile(0.95)))
        x = x.clamp(*box)  # A tenth of all coordinates is on the boundary.
    effort = "tight" if draw.chance(SETTINGS["share of networks with effort tight"]) else "fast"
    return Case(net, x, _labels(net, x), draw.pick(SETTINGS["norms"]), box, effort)


def _labels(net: nn.Module, x: Tensor) -> Tensor:
    """The classes that a float64 copy of the network gives points, (n,)."""
    with torch.no_grad():
        out = models.float64_copy(net)(x.double())
    return torch.where(out > 0, 1, -1) if out.ndim == 1 else out.argmax(1)


def _tiny(draw: _Draw, points: int) -> Case:
    dim = draw.integer(1, 3)
    parts = _parts(draw, dim, draw.integer(1, 4), draw.integer(1, 3))
    return _case(draw, parts, draw.normal(points, dim))


def _kink(draw: _Draw, points: int) -> Case:
    """Points at which one or two neurons are just switching, but for rounding."""
    dim = draw.integer(2, 6)
    parts = _parts(draw, dim, draw.integer(2, 8), draw.integer(1, 3))
    x = draw.normal(points, dim)
    for _ in range(draw.integer(1, 2)):
        w = parts.neurons[draw.integer(0, len(parts.neurons) - 1)]
        x = x - (x @ w / (w @ w)).unsqueeze(1) * w
    return _case(draw, replace(parts, hidden_bias=None), x)


def _extreme(draw: _Draw, points: int) -> Case:
    """Neurons, votes, biases and inputs of scales from 1e-12 to 1e12, together or each its own."""
    dim, width = draw.integer(1, 6), draw.integer(1, 8)
    parts = _parts(draw, dim, width, draw.integer(1, 3))
    most = EXTREME_EXPONENT

    def scales(count: int) -> Tensor:
        one = draw.power_of_ten(most)
        each = [draw.power_of_ten(most) if draw.chance(0.3) else one for _ in range(count)]
        return torch.tensor(each, dtype=torch.float64)

    size = draw.power_of_ten(most)
    scaled = replace(
        parts,
        neurons=scales(width).unsqueeze(1) * parts.neurons,
        votes=scales(width) * parts.votes,
        bias=None if parts.bias is None else draw.power_of_ten(most) * parts.bias,
        hidden_bias=None if parts.hidden_bias is None else scales(width) * parts.hidden_bias,
        preparation=models.Preparation(scale=draw.pick([1.0, draw.power_of_ten(most)])),
    )
    return _case(draw, scaled, size * draw.normal(points, dim))


def _mid(draw: _Draw, points: int) -> Case:
    dim = draw.integer(5, 20)
    parts = _parts(draw, dim, draw.integer(8, 40), draw.integer(1, 5))
    return _case(draw, parts, draw.normal(points, dim))


def _big(draw: _Draw, points: int) -> Case:
    dim = draw.integer(50, 200)
    parts = _parts(draw, dim, draw.integer(100, 300), draw.pick([1, 2, 3]))
    return _case(draw, parts, draw.normal(points, dim))


def _stand_in(draw: _Draw, points: int) -> Case:
    """Many neurons near few directions, for which a smaller network is certified."""
    dim, groups, width = draw.integer(6, 30), draw.integer(2, 8), draw.integer(150, 400)
    outputs = draw.integer(1, 3)
    owner = torch.arange(width) % groups
    noise = 10.0 ** -draw.integer(4, 10)
    centers, votes = draw.normal(groups, dim), draw.normal(outputs, groups)
    sizes = draw.normal(width).abs() + 0.01
    neurons = sizes.unsqueeze(1) * (centers[owner] + noise * draw.normal(width, dim))
    each = votes[:, owner] * (draw.normal(width).abs() + 0.01)
    if draw.chance(0.3):
        each = each * torch.where(torch.arange(width) % 17 == 0, -0.5, 1.0)
    each = torch.where(torch.arange(width) % 11 == 0, 1e-9 * each, each)
    preparation = models.Preparation()
    if draw.chance(0.4):
        preparation = models.Preparation(1.0, 0.1 * draw.normal(dim), 0.5)
    bias = 0.3 * draw.normal(outputs) if draw.chance(0.3) else None
    parts = _Parts(neurons, each, None, bias, preparation)
    x = centers[torch.arange(points) % groups] + 0.3 * draw.normal(points, dim)
    return _case(draw, parts, x)


def _raw_units(draw: _Draw, points: int) -> Case:
    """Features of different units, with a centre, one scale or normalised inputs."""
    dim = draw.integer(2, 12)
    parts = _parts(draw, dim, draw.integer(2, 24), draw.integer(1, 4))
    center, p = 5.0 * draw.normal(dim), draw.pick(SETTINGS["powers"])
    if draw.chance(0.5):
        way = draw.pick([(p - 1.0) / p, 0.5, 1.0])
        preparation = models.Preparation(draw.power_of_ten(3.0), center, way)
        x = center + draw.power_of_ten(2.0) * draw.normal(points, dim)
        return _case(draw, replace(parts, preparation=preparation), x, p)
    units = torch.tensor([draw.power_of_ten(3.0) for _ in range(dim)], dtype=torch.float64)
    moved = replace(
        parts, neurons=parts.neurons / units, preparation=models.Preparation(1.0, center)
    )
    return _case(draw, moved, center + units * draw.normal(points, dim), p)


def _ties(draw: _Draw, points: int) -> Case:
    """Equal votes, duplicate and zero neurons, and points at the centre."""
    dim, width, outputs = draw.integer(1, 6), draw.integer(2, 8), draw.integer(1, 4)
    low = draw.pick([0.0, -1.0])
    heads = torch.randint(0, 2, (outputs, width), generator=draw.generator)
    parts = _parts(draw, dim, width, outputs)
    neurons = parts.neurons
    if draw.chance(0.4):
        neurons[draw.integer(0, width - 1)] = neurons[draw.integer(0, width - 1)]
    if draw.chance(0.3):
        neurons[draw.integer(0, width - 1)] = 0.0
    votes = torch.where(heads > 0, 1.0, torch.tensor(low, dtype=torch.float64))
    x = draw.normal(points, dim)
    x[0] = 0.0
    if draw.chance(0.3):
        x[1:] = x[1:].round()
        neurons = neurons.round()
    bias = None if parts.bias is None else parts.bias.round()
    return _case(draw, replace(parts, neurons=neurons, votes=votes, bias=bias), x)


def _cancelling(draw: _Draw, points: int) -> Case:
    """Sums of which little is left, and every fourth point at the boundary of its class.

    Equal biases of any size, votes that are neighbours, or for p = 1 neurons without weights whose
    biases, in tenths, add up to next to nothing.
    """
    dim, width, outputs = draw.integer(1, 5), draw.integer(3, 8), draw.integer(2, 4)
    parts = _parts(draw, dim, width, outputs)
    p = draw.pick(SETTINGS["powers"])
    kind = draw.pick(["biases", "votes", "neurons"])
    if kind == "biases":
        bias = torch.full((outputs,), draw.power_of_ten(8.0), dtype=torch.float64)
        parts = replace(parts, bias=bias, hidden_bias=None)
    elif kind == "votes":
        near = 1.0 + draw.pick([1e-15, 1e-7]) * draw.normal(outputs, width)
        parts = replace(parts, votes=parts.votes[:1] * near, bias=None)
    else:
        p, half = 1.0, width // 2 + 1
        parts.neurons[:half] = 0.0
        tenths = torch.randint(1, 5, (width,), generator=draw.generator) / 10.0
        votes = torch.randint(-1, 2, (outputs, width), generator=draw.generator).double()
        hidden = torch.where(torch.arange(width) < half, tenths, -1.0).double()
        parts = replace(parts, votes=votes, hidden_bias=hidden, bias=None)
    case = _case(draw, parts, draw.normal(points, dim), p)
    x = case.x.clone()
    x[::4] = _at_the_class_boundary(case.net, x[::4])
    return replace(case, x=x, y=_labels(case.net, x))


def _at_the_class_boundary(net: nn.Module, x: Tensor) -> Tensor:
    """Points (n, dim) moved toward the next one as far as they keep their class, if it has another.

    By bisection in float64, so that what is left of the margin is about its rounding.
    """
    inside, outside = x.double(), x.double().roll(1, 0)
    y = _labels(net, x)
    other = (_labels(net, outside.to(x.dtype)) != y).unsqueeze(1)
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        kept = (_labels(net, middle) == y).unsqueeze(1)
        inside, outside = torch.where(kept, middle, inside), torch.where(kept, outside, middle)
    return torch.where(other, inside.to(x.dtype), x)


def _other_networks(draw: _Draw, points: int) -> Case:
    """Chains of layers, and networks that prove their own radii."""
    dim, dtype = draw.integer(1, 5), draw.pick([torch.float32, torch.float64])
    x = draw.normal(points, dim).to(dtype)
    if draw.chance(0.5):
        few = data.Dataset(draw.normal(8, dim), torch.arange(8) % 2 * 2 - 1)
        ratio = models.DistanceRatio.of(few, draw.pick(["l1", "linf"]))
        part = draw.pick([0.0, 0.2, 0.45])
        memoriser = models.Memoriser(few, part * ratio.separation, ratio.norm)
        net: nn.Module = draw.pick([ratio, memoriser])
        x[: points // 2] = few.x[torch.arange(points // 2) % 8].to(dtype) + 0.1 * x[: points // 2]
    else:
        kinds = [nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.Softplus, nn.Sigmoid]
        widths = [dim, *(draw.integer(1, 9) for _ in range(draw.integer(1, 3))), 3]
        layers: list[nn.Module] = []
        for one, two in pairwise(widths):
            layers += [_linear(draw, one, two), draw.pick(kinds)()]
        net = nn.Sequential(*layers[:-1]).to(dtype)
    return _labelled(draw, net, x)


def _linear(draw: _Draw, one: int, two: int) -> nn.Linear:
    """A layer whose weights come from the drawer."""
    layer = nn.Linear(one, two)
    layer.weight.data, layer.bias.data = draw.normal(two, one), 0.3 * draw.normal(two)
    return layer


_MAKERS: dict[str, Callable[[_Draw, int], Case]] = {
    "tiny": _tiny,
    "kink": _kink,
    "extreme": _extreme,
    "mid": _mid,
    "big": _big,
    "stand-in": _stand_in,
    "raw units": _raw_units,
    "ties": _ties,
    "cancelling": _cancelling,
    "other networks": _other_networks,
}


def table(result: dict[str, Any]) -> str:
    """One row for each kind: pairs, how many were certified and nearly broken, and violations."""
    rows = []
    for kind, found in result["figures"].items():
        counts = ("pairs", "certified pairs", "near pairs", "violations", "raised")
        rows.append([kind, *(f"{found[name]:,}" for name in counts)])
    head = ["", "pairs", "certified", "attacked within 2 % of that", "violations"]
    return markdown_table([*head, "evaluations that raised"], rows)


if __name__ == "__main__":
    print(table(measure(*map(float, sys.argv[1:]))))
