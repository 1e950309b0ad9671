"""Attack and certificate together: robust accuracy between two numbers, and whether to trust them.

The package's `evaluate` is the function of this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from extremal import _check, _health
from extremal._health import HealthWarning
from extremal._progress import Progress
from extremal._robustness import (
    BracketViolation,
    Gap,
    Robustness,
    RobustnessCurve,
    checked_radii,
)
from extremal.attack import AttackResult, Ball, minimal, pgd, random_search, run, verified
from extremal.attack.ball import NORMS
from extremal.attack.recheck import batches
from extremal.attack.result import CLEAN
from extremal.attack.search import search_copy
from extremal.certify import Certificate, certificate
from extremal.certify.lipschitz import lipschitz_radii
from extremal.certify.radius import BATCH, EFFORTS
from extremal.data import Dataset, OrthonormalMixture
from extremal.models import double, is_shallow, margin_gradient, output_margins

__all__ = [
    "BracketViolation",
    "Gap",
    "HealthWarning",
    "Robustness",
    "RobustnessCurve",
    "evaluate",
]

STEPS = {"tight": 100, "fast": 30}  # of attacks on networks that are not shallow
SEARCHED, QUERIES, BELOW = 64, 300, 0.95  # random search: points, trials, share of the radius found
STEPPED, PLAIN, ABOVE = 256, 100, 1.05  # plain PGD: points, steps, share of the median radius
TRAVEL = 10.0  # length of all plain steps together, in radii


def evaluate(
    net: nn.Module,
    test: Dataset,
    *,
    norm: str = "l2",
    radii: Sequence[float] | None = None,
    effort: Literal["tight", "fast"] = "tight",
    certify: bool = True,
    generator: torch.Generator,
    batch: int = BATCH,
    progress: bool | Progress = False,
) -> Robustness:
    """For each point of `test` a radius that no attack reaches, and one at which it breaks.

    `lower` is `certify.certificate`'s, `upper` the smallest that attacks within `test.box` found:
    `attack.minimal` for each point, then `attack.run` at each of `radii` against the points that
    are undecided there. Health checks look for signs that the attacks were misled (zero gradients,
    a random search or plain PGD that disagree, probabilities for outputs, margins of rounding,
    wide brackets); they end up in `warnings`, and what their probes break counts. A network of
    which no certificate is known gets lower = 0 and a warning. One seed, one result.
    """
    _check.module("net", net)
    _check.instance("test", test, Dataset, "be a Dataset")
    _check.choice("norm", norm, NORMS)
    _check.choice("effort", effort, EFFORTS)
    _check.generator("generator", generator)
    _check.integer("batch", batch, minimum=1)
    asked = None if radii is None else sorted(set(checked_radii(radii)))
    out = _outputs(net, test, batch)
    margins = output_margins(out, test.y)
    task = _Task(net, test, norm, STEPS[effort], batch, generator)
    found = task.smallest(progress)
    known = certify and _certifiable(net, test.dim)
    proof = task.certified(found, effort, progress) if known else None
    lower = torch.zeros_like(margins) if proof is None else proof.radius
    for radius in asked or []:
        found = task.attacked(found, lower, radius)
    kind, dtype = type(net).__name__, _dtype(net, test.x)
    found, search_warning = task.searched(found)
    found, step_warning = task.stepped(found)
    warnings = (
        _health.probabilities(out, test.y),
        _health.margins_of_rounding(margins, out, dtype),
        _health.zero_gradients(task.gradients(margins)),
        search_warning,
        step_warning,
        _health.uncertified(kind) if certify and not known else None,
        None if proof is None else _health.wide_brackets(lower, found.radius),
    )
    settings: dict[str, Any] = {
        "network": kind,
        "dtype": str(dtype).removeprefix("torch."),
        "points": len(test),
        "effort": effort,
        "certify": certify,
        "radii": asked,
        "seed": generator.initial_seed(),
        "batch": batch,
    }
    return Robustness(
        lower=lower,
        upper=found.radius,
        norm=norm,
        box=test.box,
        certified=proof is not None,
        boxed=proof is not None and proof.boxed,
        attack=found.name,
        certificate=_methods(proof, len(test)),
        warnings=tuple(warning for warning in warnings if warning is not None),
        settings=settings,
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """What is attacked, and how; each method gives a result that is at least as bad."""

    net: nn.Module
    test: Dataset
    norm: str
    steps: int
    batch: int
    generator: torch.Generator

    def smallest(self, progress: bool | Progress) -> AttackResult:
        """The smallest radius found for each point within the box."""
        test = self.test
        clean = verified(self.net, test.x, test.y, test.x, Ball(self.norm, 0.0, test.box), CLEAN)
        right = torch.nonzero(~clean.success).squeeze(1)
        if len(right) == 0:
            return clean
        found = minimal(
            self.net,
            test.x[right],
            test.y[right],
            norm=self.norm,
            box=test.box,
            steps=self.steps,
            generator=self.generator,
            batch=self.batch,
            progress=progress,
        )
        return clean.merged(right, found)

    def certified(
        self, found: AttackResult, effort: Literal["tight", "fast"], progress: bool | Progress
    ) -> Certificate:
        """The certificate; it starts from the attack where both are of the same problem."""
        same = self.norm == "l2" and self.test.box is None
        return certificate(
            self.net,
            self.test.x,
            self.test.y,
            norm=self.norm,
            box=self.test.box,
            effort=effort,
            attacked=found.x_adv if same else None,
            batch=self.batch,
            progress=progress,
        )

    def attacked(self, found: AttackResult, lower: Tensor, radius: float) -> AttackResult:
        """All attacks at one radius, against the points that are undecided there."""
        rows = torch.nonzero((lower < radius) & (radius < found.radius)).squeeze(1)
        if len(rows) == 0:
            return found
        part = self.test.take(rows)
        mixture = part.source if isinstance(part.source, OrthonormalMixture) else None
        result = run(
            self.net,
            part.x,
            part.y,
            norm=self.norm,
            radius=radius,
            box=part.box,
            steps=self.steps,
            mixture=mixture,
            group=None if mixture is None else part.group,
            generator=self.generator,
            batch=self.batch,
        )
        return found.merged(rows, result)

    def gradients(self, margins: Tensor) -> Tensor:
        """The margin's gradients (m, dim) at correctly classified points, as attacks see them."""
        right = margins > 0
        x, y = self.test.x[right], self.test.y[right]
        if len(x) == 0:
            return x
        twin, rows = search_copy(self.net, x), batches(len(x), self.batch)
        return torch.cat([margin_gradient(twin, x[at], y[at])[1] for at in rows])

    def searched(self, found: AttackResult) -> tuple[AttackResult, HealthWarning | None]:
        """A random search a little below the radius found for some points."""
        rows = _some(torch.nonzero(found.radius > 0).squeeze(1), SEARCHED)
        if len(rows) == 0:
            return found, None
        part = self.test.take(rows)
        radius = BELOW * _finite(found.radius, part.x, self.norm)[rows]
        probe = random_search(
            self.net,
            part.x,
            part.y,
            ball=Ball(self.norm, radius, part.box),
            steps=QUERIES,
            generator=self.generator,
            batch=self.batch,
        )
        return found.merged(rows, probe), _health.random_wins(probe)

    def stepped(self, found: AttackResult) -> tuple[AttackResult, HealthWarning | None]:
        """Plain PGD from the points themselves, a little beyond the median radius found."""
        right = torch.nonzero(found.radius > 0).squeeze(1)
        if not bool(found.radius[right].isfinite().any()):
            return found, None
        sizes = found.radius[right]
        radius = ABOVE * float(sizes[sizes.isfinite()].quantile(0.5))
        rows = _some(right, STEPPED)
        part = self.test.take(rows)
        probe = pgd(
            self.net,
            part.x,
            part.y,
            ball=Ball(self.norm, radius, part.box),
            steps=PLAIN,
            step=TRAVEL / PLAIN * radius,
            batch=self.batch,
        )
        upper = found.radius[rows]
        warning = _health.plain_steps_miss(probe, upper, self.norm, radius)
        return found.merged(rows, probe), warning


def _outputs(net: nn.Module, test: Dataset, batch: int) -> Tensor:
    """The outputs (n,) or (n, C) in float64, which also says early whether network and data fit."""
    twin = double(net)
    with torch.no_grad():
        out = torch.cat([twin(test.x[at].double()) for at in batches(len(test), batch)])
    shaped = out.ndim == 1 or (out.ndim == 2 and out.shape[1] >= 2)
    rule = "have shape (n,) for one output or (n, C) for C >= 2"
    _check.require(shaped and len(out) == len(test), "net(x)", rule, f"shape {tuple(out.shape)}")
    _check.finite("net(x)", out)
    return out


def _certifiable(net: nn.Module, dim: int) -> bool:
    """Whether a certificate is known for this kind of network."""
    if is_shallow(net):
        return True
    try:
        lipschitz_radii(net, torch.ones(1, dtype=torch.float64), "l2", dim)
    except ValueError:
        return False
    return True


def _methods(proof: Certificate | None, count: int) -> tuple[str, ...]:
    if proof is None:
        return ("",) * count
    return tuple("" if index < 0 else proof.methods[index] for index in proof.method.tolist())


def _dtype(net: nn.Module, x: Tensor) -> torch.dtype:
    return next((part.dtype for part in net.parameters() if part.is_floating_point()), x.dtype)


def _some(rows: Tensor, count: int) -> Tensor:
    """At most `count` of the rows, evenly spaced."""
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count, device=rows.device).round().long()]


def _finite(radius: Tensor, x: Tensor, norm: str) -> Tensor:
    """The radii, with the largest finite one or the points' median norm in the place of inf."""
    known = radius[radius.isfinite()]
    top = float(known.max()) if len(known) > 0 else 0.0
    far = max(top, float(Ball(norm, 0.0).norms(x).median())) or 1.0
    return torch.where(radius.isfinite(), radius, far)
