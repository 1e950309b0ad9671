"""Radii below which no attack exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal._progress import Bar, Progress
from extremal.attack import NORMS, Ball, batches, check_points, shortest
from extremal.certify.l2_radius import bisected_radii, held_radii, l2_task, tight_radii
from extremal.certify.linear_bounds import boxed_radii
from extremal.certify.lipschitz import is_chain, lipschitz_radii
from extremal.certify.reduced_networks import FEW, ReducedNetwork, assigned_points, reduced_versions
from extremal.data import Box
from extremal.models import KnowsRadii, float64_copy, is_shallow, margin

EFFORTS = ("fast", "tight")
"""How hard a certificate may try."""
BATCH = 256  # points at a time,
MORE = 4  # times as many, at most, where neurons are few
WEAK = 0.5  # of the attacked radius: below it linear bounds are tried as well


@dataclass(frozen=True, eq=False)
class Certificate:
    """For each point a radius: no perturbation of a smaller or equal norm changes the class.

    0 where a point is misclassified. `boxed` says whether the box was used: a certificate that
    ignores it holds within the box, too. `methods` names the bounds, and `method` (n,) which of
    them gave each radius, -1 where none did.
    """

    radius: Tensor  # (n,) float64
    norm: str  # "l1", "l2" or "linf", the norm of perturbations
    boxed: bool
    methods: tuple[str, ...]
    method: Tensor  # (n,) int64


def can_certify(net: nn.Module) -> bool:
    """Whether `certificate` knows how to bound a network.

    Arguments:

    - `net`: any `nn.Module`. True for a `PReLUNet`, a `Grouped` one, a `KnowsRadii` network, and
      for a chain of linear layers and known activations.
    """
    return is_shallow(net) or isinstance(net, KnowsRadii) or is_chain(net)


def radius(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    norm: str = "l2",
    box: Box | None = None,
    effort: Literal["fast", "tight"] = "tight",
    attacked: Tensor | None = None,
    batch: int = BATCH,
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
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> Certificate:
    """Radii (n,) at which each point of x (n, dim) provably keeps its class y.

    For a `PReLUNet` or a `Grouped` one. l2: the closed form for clustered neurons, linear bounds
    ("fast"), and parabolas that start from the smallest attack ("tight"); the box is ignored. l1
    and linf: linear bounds within the box; "tight" also takes what the l2 ball around theirs gives.
    A `KnowsRadii` network: the radii that its construction proves. Any other that is a chain of
    linear layers and known activations: its Lipschitz constant. `attacked` (n, dim) may hold points
    that are known to break the class in l2 without a box (`attack.minimal`'s x_adv), to save
    finding them. Deterministic.

    Arguments:

    - `net`: a network that `can_certify` knows; others are refused.
    - `x`: points (n, dim), in the network's own dtype.
    - `y`: labels (n,), -1 / +1 for one output, 0..C-1 for C outputs.
    - `norm`: "l1", "l2" or "linf", the norm of perturbations.
    - `box`: (low, high), numbers or (dim,) tensors, for every coordinate; None for no limits.
      Points outside of it are refused. Only linear bounds in l1 and linf make use of it.
    - `effort`: "fast" for quick bounds alone, "tight" for parabolas too: larger radii, more time.
      It changes nothing for networks other than a `PReLUNet` or a `Grouped` one.
    - `batch`: points at a time; more of them need more memory.
    - `progress`: True for a bar on the standard error, or a function of (what, done, total).
    """
    return _certificate(net, x, y, norm, box, effort, attacked, batch, progress)


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
    batch: int = BATCH,
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
    found = _certificate(net, x, y, norm, box, effort, attacked, batch, progress, asked=radius)
    return found.radius >= radius if radius > 0 else _margins(net, x, y) > 0


def _certificate(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    norm: str,
    box: Box | None,
    effort: str,
    attacked: Tensor | None,
    batch: int,
    progress: bool | Progress,
    asked: float | None = None,
) -> Certificate:
    """Largest radii, or where one is `asked` for, radii that are as large where it holds."""
    y = check_points(net, x, y)
    _check.choice("norm", norm, NORMS)
    _check.choice("effort", effort, EFFORTS)
    _check.integer("batch", batch, minimum=1)
    ball = _boxed(norm, box, x)
    same = attacked is None or (isinstance(attacked, Tensor) and attacked.shape == x.shape)
    _check.require(same, "attacked", f"be None or like x, {tuple(x.shape)}", "another shape")
    if attacked is not None:
        _check.finite("attacked", attacked)
    found = _Found.nothing(x, norm)
    if isinstance(net, KnowsRadii):
        radii = _proven(net, x, y, norm, batch)
        found.raise_to(torch.arange(len(x), device=x.device), radii, "construction")
        return found.certificate(False)
    if not is_shallow(net):
        radii = lipschitz_radii(net, _margins(net, x, y), norm, x.shape[1])
        found.raise_to(torch.arange(len(x), device=x.device), radii, "lipschitz")
        return found.certificate(False)
    work = _Work(net, x, y, ball, effort, attacked, found, asked)
    with Bar("certify", len(x), progress) as bar:
        for at in batches(len(x), batch * (work.more if batch >= BATCH else 1)):
            work.certify(at)
            bar.done(at.stop)
    return found.certificate(norm != "l2" and box is not None)


@dataclass(frozen=True, eq=False)
class _Found:
    """The largest radius of each point so far and what gave it, updated in place."""

    radius: Tensor
    method: Tensor
    names: list[str]
    norm: str

    @classmethod
    def nothing(cls, x: Tensor, norm: str) -> _Found:
        zero = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        return cls(zero, torch.full_like(zero, -1).long(), [], norm)

    def raise_to(self, rows: Tensor, radii: Tensor, name: str) -> None:
        """Take radii (len(rows),) where they are larger than before."""
        if name not in self.names:
            self.names.append(name)
        better = radii > self.radius[rows]
        self.radius[rows[better]] = radii[better]
        self.method[rows[better]] = self.names.index(name)

    def certificate(self, boxed: bool) -> Certificate:
        return Certificate(self.radius, self.norm, boxed, tuple(self.names), self.method)


class _Work:
    """What is prepared once for all points of a shallow network."""

    def __init__(
        self,
        net: nn.Module,
        x: Tensor,
        y: Tensor,
        ball: Ball,
        effort: str,
        attacked: Tensor | None,
        found: _Found,
        asked: float | None,
    ) -> None:
        self._net, self._x, self._y, self._ball, self._found = net, x, y, ball, found
        self._attacked, self._tight = attacked, effort == "tight"
        self._networks = reduced_versions(net)
        # A ball in l2 that holds the one asked for, a little larger than rounding may make it.
        wide = x.shape[1] ** 0.5 * (1.0 + 1e-12) if ball.norm == "linf" else 1.0
        self._asked = None if asked is None else wide * asked

    @property
    def more(self) -> int:
        """Times more points at a time, where most of them have a small network in its place."""
        return min(MORE, max(1, FEW // len(self._networks[0].form.directions)))

    def certify(self, at: slice) -> None:
        """All levels for a batch of points."""
        rows = torch.arange(at.start, at.stop, device=self._x.device)
        if self._ball.norm != "l2":
            self._lines(rows)
        if self._ball.norm == "l2" or self._tight:
            self._levels(rows)

    def _lines(self, rows: Tensor) -> None:
        """Linear bounds over ball and box, in l1 and linf."""
        x, y = self._x[rows], self._y[rows]
        center = self._center(x, self._ball.norm)
        far = center * (x.shape[1] ** 0.5 if self._ball.norm == "linf" else 1.0)
        for network, some, slack in assigned_points(self._networks, x, y, far):
            radii = boxed_radii(network.form, x[some], y[some], self._ball, slack)
            limit = torch.where(slack > 0, center[some], torch.inf)
            self._found.raise_to(rows[some], torch.minimum(radii, limit), "linear")

    def _levels(self, rows: Tensor) -> None:
        """All levels in l2, whose balls hold those of the other norms."""
        x, y = self._x[rows], self._y[rows]
        broken = None if self._attacked is None else self._attacked[rows]
        if self._tight and broken is None:
            broken = shortest(self._net, x, y, norm="l2").x_adv
        far = self._center(x, "l2")
        if broken is not None:
            size = torch.linalg.vector_norm(broken.double() - x.double(), dim=1)
            far = torch.where(size > 0, size, far)
        for network, some, slack in assigned_points(self._networks, x, y, far):
            limit = torch.where(slack > 0, far[some], torch.inf)
            known = None if broken is None else broken[some]
            self._l2(network, rows[some], slack, limit, known)

    def _center(self, x: Tensor, norm: str) -> Tensor:
        """The distance (n,) of the centre, where a network without biases is 0; inf with biases."""
        form = self._networks[-1].form
        center = form.preparation.center
        moved = x.double() if center is None else x.double() - center
        distance = Ball(norm, 0.0).norms(moved)
        return torch.full_like(distance, torch.inf) if form.biased else distance

    def _l2(
        self,
        network: ReducedNetwork,
        rows: Tensor,
        slack: Tensor,
        limit: Tensor,
        broken: Tensor | None,
    ) -> None:
        """All levels for points that share a network."""
        found, clusters = self._found, network.clusters
        task, upper = l2_task(network, self._x[rows], self._y[rows], slack, broken)
        lower = torch.zeros_like(upper)

        def raise_to(some: Tensor, radii: Tensor, name: str) -> None:
            radii = torch.minimum(radii, limit[some])
            lower[some] = torch.maximum(lower[some], radii)
            found.raise_to(rows[some], self._in_norm(radii), name)

        every = torch.arange(len(rows), device=rows.device)
        raise_to(every, clusters.radii(task.points, task.own, task.foreign, slack), "clustered")
        if self._asked is not None:
            left = torch.nonzero(lower < self._asked).squeeze(1)
            if len(left) > 0:
                some = task.take(left), upper[left]
                raise_to(left, held_radii(*some, self._asked, tight=self._tight), "parabolas")
            return
        if self._tight:
            raise_to(every, tight_radii(task, upper, lower), "parabolas")
        weak = torch.nonzero(lower < WEAK * upper).squeeze(1)
        if len(weak) > 0:
            raise_to(weak, bisected_radii(task.take(weak), upper[weak]), "linear")

    def _in_norm(self, radii: Tensor) -> Tensor:
        """Radii in the norm asked for whose balls lie in l2 balls of the given radii."""
        return radii / self._x.shape[1] ** 0.5 if self._ball.norm == "linf" else radii


def _boxed(norm: str, box: Box | None, x: Tensor) -> Ball:
    """A ball with the box as the attacks see it, in the points' dtype."""
    ball = Ball(norm, 0.0, box)
    ball.bounds(x)
    limits = ball.limits(x)
    if limits is None:
        return ball
    low, high = (end.double().expand(x.shape[1]) for end in limits)
    return Ball(norm, 0.0, (low, high))


def _margins(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    twin = float64_copy(net)
    with torch.no_grad():
        parts = [margin(twin, x[at].double(), y[at]) for at in batches(len(x), BATCH)]
    return torch.cat(parts)


def _proven(net: nn.Module, x: Tensor, y: Tensor, norm: str, batch: int) -> Tensor:
    """What a construction proves, 0 where the network itself is wrong: no proof trusts itself."""
    twin, right = float64_copy(net), _margins(net, x, y) > 0
    assert isinstance(twin, KnowsRadii)
    with torch.no_grad():
        parts = [
            twin.proven_radii(x[at].double(), y[at], norm)  # type: ignore[arg-type]  # checked
            for at in batches(len(x), batch)
        ]
    return torch.where(right, torch.cat(parts), 0.0)
