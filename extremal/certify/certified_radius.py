"""Radii below which no attack exists.

A shallow network is certified by the bounds of the other modules. For other networks, of which only
linear layers and activations are known, there is a floor: the margin over a Lipschitz constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal._tensors import batches
from extremal.attack import NORMS, Ball, check_points, shortest
from extremal.certify.l2_radius import l2_bounds
from extremal.certify.linear_bounds import boxed_radii
from extremal.certify.reduced_networks import (
    MOST_UNREDUCED_NEURONS,
    ReducedNetwork,
    assigned_points,
    distance_to_zero_output,
    reduced_versions,
)
from extremal.data import Box
from extremal.models import (
    KnowsRadii,
    chain_lipschitz,
    chain_rounding,
    check_chain,
    is_chain,
    is_shallow,
    margin_range,
    network_name,
    recognised,
    run_dtype,
    shallow_rounding,
)

EFFORTS = ("fast", "tight")
"""How hard a certificate may try."""
CERTIFY_BATCH_POINTS = 256
"""Points that are certified at a time, unless a caller says otherwise."""
# Where neurons are few, a batch may hold up to this many times more points.
MOST_BATCH_GROWTH = 4
# Rows (m,) of the points, radii (m,) that hold there, and the name of the bound that gave them.
Bounds = tuple[Tensor, Tensor, str]


@dataclass(frozen=True, eq=False)
class Certificate:
    """For each point a radius: no perturbation of a smaller or equal norm changes the class.

    0 where a point is misclassified. `boxed` says whether the box was used: a certificate that
    ignores it holds within the box, too. `methods` names the bounds, and `method` (n,) which of
    them gave each radius, -1 where none did. `network` is the kind of network, and what it was read
    as.
    """

    radius: Tensor  # (n,) float64
    norm: str  # "l1", "l2" or "linf", the norm of perturbations
    boxed: bool
    methods: tuple[str, ...]
    method: Tensor  # (n,) int64
    network: str = ""  # such as "PReLUNet", or "Sequential, read as a PReLUNet"


def can_certify(net: nn.Module) -> bool:
    """Whether `certificate` knows how to bound a network.

    Arguments:

    - `net`: any `nn.Module`. True for a `PReLUNet`, a `Grouped` one, a `KnowsRadii` network, and
      for a chain of linear layers and known activations.
    """
    return is_shallow(recognised(net)) or isinstance(net, KnowsRadii) or is_chain(net)


def radius(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    effort: Literal["fast", "tight"] = "tight",
    attacked: Tensor | None = None,
    batch: int = CERTIFY_BATCH_POINTS,
    progress: bool | Progress = False,
) -> Tensor:
    """Certified radii (n,) in float64, as `certificate` finds them.

    Arguments:

    - `net`: a network that `can_certify` knows; others are refused.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `box`: (low, high), numbers or (dim,) tensors, for every coordinate; None for no limits.
      Points outside of it are refused. Only linear bounds in l1 and linf make use of it.
    - `effort`: "fast" for quick bounds alone, "tight" for parabolas too: larger radii, more time.
      It changes nothing for networks other than a `PReLUNet` or a `Grouped` one.
    - `attacked`: points (n, dim) that are known to break the class in l2 without a box, to save
      time; None where they are not known.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    return certificate(
        net,
        x,
        y,
        norm=norm,
        box=box,
        effort=effort,
        attacked=attacked,
        batch=batch,
        progress=progress,
    ).radius


def certificate(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    effort: Literal["fast", "tight"] = "tight",
    attacked: Tensor | None = None,
    batch: int = CERTIFY_BATCH_POINTS,
    progress: bool | Progress = False,
    at: float | None = None,
) -> Certificate:
    """Radii (n,) at which each point of x (n, dim) provably keeps its class y.

    For a `PReLUNet` or a `Grouped` one. l2: the closed form for clustered neurons, linear bounds
    ("fast"), and parabolas that start from the smallest attack ("tight"); the box is ignored. l1
    and linf: linear bounds within the box; "tight" also takes what the l2 ball around theirs gives.
    A `KnowsRadii` network: the radii that its construction proves. Any other that is a chain of
    linear layers and known activations: its Lipschitz constant. An nn.Sequential of Linear, ReLU,
    Linear is read as the `PReLUNet` that computes the same, and the result says so. All of them in
    evaluation mode. Deterministic.

    Arguments:

    - `net`: a network that `can_certify` knows; others are refused.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `box`: (low, high), numbers or (dim,) tensors, for every coordinate; None for no limits.
      Points outside of it are refused. Only linear bounds in l1 and linf make use of it.
    - `effort`: "fast" for quick bounds alone, "tight" for parabolas too: larger radii, more time.
      It changes nothing for networks other than a `PReLUNet` or a `Grouped` one.
    - `attacked`: points (n, dim) that are known to break the class in l2 without a box
      (`attack.minimal`'s x_adv), to save finding them; None where they are not known.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    - `at`: a radius >= 0; the radii found are then as large as it where it holds, and may be
      smaller than the largest that hold. None for these.
    """
    _check.module("net", net)
    given, net = net, recognised(net)
    y, ball = _checked(net, x, y, norm, box, effort, attacked, batch)
    at = None if at is None else _check.number("at", at, minimum=0.0)
    bounds: Iterable[Bounds]
    every = torch.arange(len(x), device=x.device)
    shallow = is_shallow(net) and not isinstance(net, KnowsRadii)
    if isinstance(net, KnowsRadii):
        bounds = [(every, _constructed_radii(net, x, y, norm, batch), "construction")]
    elif shallow:
        tight = effort == "tight"
        bounds = _shallow_bounds(net, x, y, ball, attacked, tight, at, batch, progress)
    else:
        bounds = [(every, _lipschitz_radii(net, x, y, norm), "lipschitz")]
    best = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    method, names = torch.full_like(best, -1).long(), list[str]()
    for rows, radii, name in bounds:
        if name not in names:
            names.append(name)
        better = radii > best[rows]
        best[rows[better]] = radii[better]
        method[rows[better]] = names.index(name)
    boxed = shallow and norm != "l2" and box is not None
    return Certificate(best, norm, boxed, tuple(names), method, network_name(given))


def holds(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    radius: float,
    *,
    norm: str = "l2",
    box: Box | None = None,
    effort: Literal["fast", "tight"] = "tight",
    attacked: Tensor | None = None,
    batch: int = CERTIFY_BATCH_POINTS,
    progress: bool | Progress = False,
) -> Tensor:
    """Whether each point of x (n, dim) provably keeps its class y within one `radius`, (n,) bool.

    The same bounds as `certificate`'s, which looks for the largest radius: those in l2 are tried at
    `radius` alone, and none where a smaller attack is known, so that they cost much less. At
    radius 0 it is whether a point is classified correctly. Deterministic.

    Arguments:

    - `net`: a network that `can_certify` knows; others are refused.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    - `radius`: the one radius at which all points are tried, at least 0.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `box`: (low, high), numbers or (dim,) tensors, for every coordinate; None for no limits.
      Points outside of it are refused. Only linear bounds in l1 and linf make use of it.
    - `effort`: "fast" for quick bounds alone, "tight" for parabolas too: larger radii, more time.
      It changes nothing for networks other than a `PReLUNet` or a `Grouped` one.
    - `attacked`: points (n, dim) that are known to break the class in l2 without a box, to save
      time; None where they are not known.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    radius = _check.number("radius", radius, minimum=0.0)
    found = certificate(
        net,
        x,
        y,
        norm=norm,
        box=box,
        effort=effort,
        attacked=attacked,
        batch=batch,
        progress=progress,
        at=radius,
    )
    return found.radius >= radius if radius > 0 else _right_as_run(net, x, y)


def _checked(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    norm: str,
    box: Box | None,
    effort: str,
    attacked: Tensor | None,
    batch: int,
) -> tuple[Tensor, Ball]:
    """The labels, and a ball of radius 0 with the box as the attacks see it, in float64."""
    y = check_points(net, x, y)
    _check.choice("norm", norm, NORMS)
    _check.choice("effort", effort, EFFORTS)
    _check.integer("batch", batch, minimum=1)
    ball = Ball(norm, 0.0, box)
    ball.bounds(x)
    if attacked is not None:
        rule = f"be None or a floating-point tensor like x, {tuple(x.shape)}"
        _check.tensor("attacked", attacked, x.shape, rule=rule)
    limits = ball.limits(x)
    if limits is None:
        return y, ball
    low, high = (end.double().expand(x.shape[1]) for end in limits)
    return y, Ball(norm, 0.0, (low, high))


def _shallow_bounds(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    ball: Ball,
    attacked: Tensor | None,
    tight: bool,
    at: float | None,
    batch: int,
    progress: bool | Progress,
) -> Iterator[Bounds]:
    """All bounds of a shallow network, batch by batch."""
    networks = reduced_versions(net)
    if batch >= CERTIFY_BATCH_POINTS:
        # Most points may have a small network in the large one's place.
        growth = MOST_UNREDUCED_NEURONS // len(networks[0].form.directions)
        batch *= min(MOST_BATCH_GROWTH, max(1, growth))
    with Bar("certify", len(x), progress) as bar:
        for some in batches(len(x), batch):
            known = None if attacked is None else attacked[some]
            if tight and known is None:
                known = shortest(net, x[some], y[some], norm="l2").x_adv
            for rows, radii, name in _batch_bounds(
                networks, x[some], y[some], ball, known, tight, at
            ):
                yield rows + some.start, radii, name
            bar.done(some.stop)


def _batch_bounds(
    networks: tuple[ReducedNetwork, ...],
    x: Tensor,
    y: Tensor,
    ball: Ball,
    attacked: Tensor | None,
    tight: bool,
    at: float | None,
) -> Iterator[Bounds]:
    """Linear bounds over ball and box in l1 and linf; and those in l2, whose balls hold theirs."""
    root = x.shape[1] ** 0.5 if ball.norm == "linf" else 1.0
    if ball.norm != "l2":
        center = distance_to_zero_output(networks[-1].form, x, ball.norm)
        for network, some, slack in assigned_points(networks, x, y, center * root):
            rounding = network.rounding.near(x[some], ball.norm)
            radii = boxed_radii(network.form, x[some], y[some], ball, slack, rounding)
            limit = torch.where(slack > 0, center[some], torch.inf)
            yield some, torch.minimum(radii, limit), "linear"
    if ball.norm == "l2" or tight:
        if at is not None and ball.norm == "linf":
            # A ball in l2 that holds the one asked for, a little larger than rounding may make it.
            at = root * (1.0 + 1e-12) * at
        for rows, radii, name in l2_bounds(networks, x, y, attacked, tight=tight, at=at):
            yield rows, radii / root, name


def _right_as_run(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Whether the network as it runs, in its own dtype, is certain to be right, (n,) bool."""
    net = recognised(net)
    found = margin_range(net, x, y)
    if isinstance(net, KnowsRadii):
        return found.right
    if not is_shallow(net):
        return found.lowest > chain_rounding(net, _lengths(x), run_dtype(net, x))
    rounding = shallow_rounding(net, run_dtype(net, x))
    own, zero = rounding.form.own(y), torch.zeros_like(found.lowest)
    parts = [
        rounding.near(x[at], prepared=True).outputs(zero[at])
        for at in batches(len(x), CERTIFY_BATCH_POINTS)
    ]
    error = torch.cat(parts)
    mine, other = (error.masked_fill(~some, 0.0).amax(1) for some in (own, ~own))
    return found.lowest > mine + other


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x.double(), dim=1)


def _constructed_radii(net: nn.Module, x: Tensor, y: Tensor, norm: str, batch: int) -> Tensor:
    """What a construction proves, 0 where the network itself is wrong: no proof trusts itself."""
    right = margin_range(net, x, y).right
    assert isinstance(net, KnowsRadii)
    held = (part.dtype for part in (*net.parameters(), *net.buffers()) if part.is_floating_point())
    points = x.to(next(held, x.dtype))
    with torch.no_grad():
        parts = [
            net.proven_radii(points[at], y[at], norm)  # type: ignore[arg-type]  # checked
            for at in batches(len(x), batch)
        ]
    return torch.where(right, torch.cat(parts).double(), 0.0)


def _lipschitz_radii(net: nn.Module, x: Tensor, y: Tensor, norm: str) -> Tensor:
    """Radii (n,) of a chain: the margin that rounding leaves over the Lipschitz constant in l2.

    Zero where that is not positive. A ball in linf of radius e lies in one of e sqrt(dim) in l2, a
    ball in l1 in one of e.
    """
    check_chain(net)
    constant = max(chain_lipschitz(net), 1e-300)
    lowest = margin_range(net, x, y).lowest.clamp(min=0.0)
    # What rounding costs is asked for in a ball that is no smaller than the one that is left.
    lost = chain_rounding(net, _lengths(x) + lowest / constant, run_dtype(net, x))
    radii = (lowest - lost).clamp(min=0.0) / constant * (1.0 - 1e-9)
    return radii / x.shape[1] ** 0.5 if norm == "linf" else radii
