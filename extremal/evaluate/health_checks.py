"""Signs that an evaluation can't be trusted: each check gives a warning, or None."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from extremal.attack import AttackResult

FLAT = 0.1  # share of points with a zero gradient
BEATEN = 0.05  # share of points that random search breaks below the radius found
MISSED = 0.1  # share of points that plain gradient steps miss
STUCK = 0.1  # share of unbroken points at which the loss does not change
STILL = 10.0  # units of rounding of the outputs that are no change of the loss
NEAR_ZERO = 0.01  # share of points whose margin is rounding
ROUNDING = 100.0  # units of rounding of the outputs that a margin should exceed
WIDE = 0.5  # median of lower/upper


@dataclass(frozen=True)
class HealthWarning:
    """Why numbers of an evaluation should be read with care."""

    name: str
    sentence: str


def zero_gradients(gradient: Tensor) -> HealthWarning | None:
    """Of the margin's gradients (n, dim) at correctly classified points more than 10 % are zero."""
    usable = torch.isfinite(gradient).all(1) & (gradient != 0).any(1)
    share = 1.0 - float(usable.double().mean()) if len(gradient) > 0 else 0.0
    if share <= FLAT:
        return None
    return HealthWarning(
        "zero-gradients",
        f"the margin's gradient is zero at {_percent(share)} of the points: attacks that follow "
        "gradients stand still there, and what they do not break may not be robust",
    )


def random_wins(probe: AttackResult, *, shallow: bool) -> HealthWarning | None:
    """A random search, given less than the radius found, breaks more than 5 % of its points."""
    share = 1.0 - probe.accuracy
    if share <= BEATEN:
        return None
    cause = "they missed a way to the boundary" if shallow else "the gradients mislead"
    return HealthWarning(
        "random-search-wins",
        f"a short random search breaks {_percent(share)} of {len(probe)} points at radii where "
        f"the attacks with gradients do not: {cause}",
    )


def loss_plateau(
    change: Tensor, out: Tensor, dtype: torch.dtype, steps: int
) -> HealthWarning | None:
    """At over 10 % of points that no attack broke, the loss does not change in the first steps.

    `change` (m,) is the largest |margin - margin at the point| over these steps, `out` (m,) or
    (m, C) the outputs at the points; below 10 of their roundings in `dtype` it is no change.
    """
    still = change <= STILL * torch.finfo(dtype).eps * _sizes(out)
    share = float(still.double().mean()) if len(change) > 0 else 0.0
    if share <= STUCK:
        return None
    return HealthWarning(
        "loss-plateau",
        f"the loss does not change over the first {steps} gradient steps at {_percent(share)} of "
        f"{len(change)} points that no attack broke: attacks search there without a direction, and "
        "the points may not be robust",
    )


def plain_steps_miss(
    probe: AttackResult, upper: Tensor, norm: str, radius: float, *, shallow: bool
) -> HealthWarning | None:
    """PGD from the points leaves over 10 % more standing at a radius than the evaluation does.

    `upper` (n,) are the evaluation's radii of the same points. The cause is known where the network
    is `shallow`: neurons that are nearly switched off at a point have next to no gradient there.
    """
    left = float((upper > radius).double().mean())
    missed = probe.accuracy - left
    if missed <= MISSED:
        return None
    cause = "gradients vanish toward far neurons, so that " if shallow else ""
    return HealthWarning(
        "plain-steps-miss",
        f"plain gradient steps from the points themselves leave {_percent(probe.accuracy)} "
        f"standing at {norm} radius {radius:.3g}, where {_percent(left)} stand: {cause}"
        "PGD alone reports robustness that is not there",
    )


def constant(out: Tensor, y: Tensor) -> HealthWarning | None:
    """The outputs, (n,) or (n, C), are the same at all points, though several labels occur."""
    if len(torch.unique(y)) < 2 or not bool((out == out[0]).all()):
        return None
    return HealthWarning(
        "constant",
        "the network gives the same output at every point: it has learned nothing that can be "
        "attacked, its neurons may all be silent; look at its training",
    )


def probabilities(out: Tensor, y: Tensor) -> HealthWarning | None:
    """The outputs, (n,) or (n, C), look like probabilities.

    Several: all in [0, 1] with rows that sum to 1. One: in [0, 1] though both labels occur, so that
    its sign can't tell the classes apart.
    """
    inside = bool(((out >= 0) & (out <= 1)).all()) and constant(out, y) is None
    if out.ndim == 1:
        alike = inside and len(torch.unique(y)) > 1
    else:
        alike = inside and bool(((out.sum(1) - 1.0).abs() < 1e-4).all())
    if not alike:
        return None
    advice = (
        "its sign is read as the class: subtract a half, or give the network before its sigmoid"
        if out.ndim == 1
        else "their gradients vanish where the network is sure: give the network before its softmax"
    )
    return HealthWarning("probabilities", f"the outputs look like probabilities; {advice}")


def margins_of_rounding(margins: Tensor, out: Tensor, dtype: torch.dtype) -> HealthWarning | None:
    """More than 1 % of the margins (n,) are below 100 roundings of the outputs, in their dtype."""
    limit = ROUNDING * torch.finfo(dtype).eps * float(_sizes(out).median())
    share = float((margins.abs() < limit).double().mean())
    if share <= NEAR_ZERO:
        return None
    kind = str(dtype).removeprefix("torch.")
    return HealthWarning(
        "margins-of-rounding",
        f"the margins of {_percent(share)} of the points are below {limit:.1g}, no more than the "
        f"rounding of {kind} outputs: their class may change with the order of a sum",
    )


def wide_brackets(lower: Tensor, upper: Tensor) -> HealthWarning | None:
    """The median of lower/upper over correctly classified points is below 1/2; inf counts as 0."""
    seen = upper > 0
    if not bool(seen.any()):
        return None
    both = lower[seen].isinf() & upper[seen].isinf()
    ratio = torch.where(both, 1.0, lower[seen] / upper[seen])
    middle = float(ratio.quantile(0.5))
    if middle >= WIDE:
        return None
    return HealthWarning(
        "wide-brackets",
        f"the certified radius is at the median {middle:.2f} of the attacked one: the truth may "
        "be anywhere between",
    )


def uncertified(kind: str) -> HealthWarning:
    """No certificate is known for this kind of network."""
    return HealthWarning(
        "uncertified",
        f"no certificate is known for {kind}: nothing bounds its robustness from below, and the "
        "attacked accuracy is only the most that it can be",
    )


def _sizes(out: Tensor) -> Tensor:
    """The largest |output| of each point, (n,)."""
    return out.detach().abs().reshape(len(out), -1).amax(1)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
