"""Signs that an evaluation cannot be trusted: each check gives a warning, or None.

Some checks are probes, which attack in another way: each may notice that the attacks were misled.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from extremal._tensors import batches
from extremal.attack import (
    ATTACK_BATCH_POINTS,
    AttackResult,
    Ball,
    pgd,
    random_search,
    surrogate_network,
)
from extremal.data import Dataset
from extremal.evaluate.evaluation_task import EvaluationTask, outputs_at
from extremal.models import (
    chain_layers,
    is_shallow,
    margin_gradient,
    output_margins,
    recognised,
    run_dtype,
)

# The random search that probes a result is given this many points, at most.
SEARCH_PROBE_POINTS = 64
# The random search evaluates the network this often for each point.
SEARCH_PROBE_QUERIES = 300
# The random search is given this share of the radius that attacks found.
SEARCH_PROBE_RADIUS_SHARE = 0.95
# The plain PGD that probes a result is given this many points, at most.
PGD_PROBE_POINTS = 256
# Plain PGD takes this many steps.
PGD_PROBE_STEPS = 100
# Plain PGD is given this many times the median radius that attacks found.
PGD_PROBE_RADIUS_SHARE = 1.05
# The length of all steps of plain PGD together, in radii.
PGD_PROBE_TRAVEL_RADII = 10.0
# In this many first steps of plain PGD a loss should change.
PLATEAU_STEPS = 10
# A loss has not changed where its change is at most this many roundings of the outputs.
PLATEAU_ROUNDINGS = 10.0
# More than this share of unbroken points at which the loss does not change is a warning.
PLATEAU_POINT_SHARE = 0.1
# More than this share of points with a zero gradient is a warning.
ZERO_GRADIENT_SHARE = 0.1
# More than this share of points that random search breaks below the radius found is a warning.
SEARCH_WIN_SHARE = 0.05
# More than this share of points that plain steps miss is a warning.
PLAIN_STEPS_MISS_SHARE = 0.1
# A margin should exceed this many roundings of the outputs.
LEAST_MARGIN_ROUNDINGS = 100.0
# More than this share of points whose margin does not is a warning.
ROUNDED_MARGIN_POINT_SHARE = 0.01
# Outputs at this many points, at most, are looked at twice.
RANDOM_PROBE_POINTS = 64
# A median of certified over attacked radius below this is a warning.
WIDE_BRACKET_RATIO = 0.5


def probed(
    task: EvaluationTask, out: Tensor, found: AttackResult
) -> tuple[AttackResult, list[HealthWarning | None]]:
    """What the probes leave of the attacks' result, and what all checks of it say.

    `out` (n,) or (n, C) are the network's outputs at the points, in float64.
    """
    margins = output_margins(out, task.test.y)
    plateau = _plateau_probe(task, out, found)
    found, search_warning = _random_search_probe(task, found)
    found, step_warning = _pgd_probe(task, found)
    return found, [
        *_of_outputs(task.net, out, task.test.y, task.dtype),
        zero_gradients(_margin_gradients(task, margins)),
        plateau,
        search_warning,
        step_warning,
    ]


def output_warnings(net: nn.Module, test: Dataset) -> tuple[HealthWarning, ...]:
    """What outputs alone say against a certificate, for one that is asked for without attacks.

    The same at every point, like probabilities, with margins of rounding, or changing from call to
    call.

    Arguments:

    - `net`: any `nn.Module` from points (n, dim) to outputs (n,), or (n, C) with C >= 2.
    - `test`: points (n, dim) and labels, a `Dataset`.
    """
    out = outputs_at(net, test, ATTACK_BATCH_POINTS)
    found = _of_outputs(recognised(net), out, test.y, run_dtype(net, test.x))
    found.append(random_outputs(net, test.x))
    return tuple(warning for warning in found if warning is not None)


def _of_outputs(
    net: nn.Module, out: Tensor, y: Tensor, dtype: torch.dtype
) -> list[HealthWarning | None]:
    """What outputs (n,) or (n, C), of a network that runs in a dtype, say alone."""
    return [
        constant(out, y),
        None if _ends_linear(net) else probabilities(out, y),
        margins_of_rounding(output_margins(out, y), out, dtype),
    ]


def _margin_gradients(task: EvaluationTask, margins: Tensor) -> Tensor:
    """The margin's gradients (m, dim) at correctly classified points, as attacks see them."""
    right = margins > 0
    x, y = task.test.x[right], task.test.y[right]
    if len(x) == 0:
        return x
    twin, rows = surrogate_network(task.net, x), batches(len(x), task.batch)
    return torch.cat([margin_gradient(twin, x[at], y[at])[1] for at in rows])


def _plateau_probe(task: EvaluationTask, out: Tensor, found: AttackResult) -> HealthWarning | None:
    """The loss over the first plain steps, at points that no attack broke."""
    rows = _evenly_spaced(torch.nonzero(found.radius.isinf()).squeeze(1), PGD_PROBE_POINTS)
    if len(rows) == 0:
        return None
    radius = _finite_radii(found.radius, task.test.x, task.norm)[rows]
    parts = [_largest_change(task, rows[at], radius[at]) for at in batches(len(rows), task.batch)]
    return loss_plateau(torch.cat(parts), out[rows], task.test.x.dtype, PLATEAU_STEPS)


def _largest_change(task: EvaluationTask, rows: Tensor, radius: Tensor) -> Tensor:
    """The largest change (m,) of the margin over the first steps of plain PGD from the points."""
    part, ball = task.test.take(rows), Ball(task.norm, radius, task.test.box)
    twin, delta = surrogate_network(task.net, part.x), torch.zeros_like(part.x)
    length = (PGD_PROBE_TRAVEL_RADII / PGD_PROBE_STEPS * radius).to(part.x).unsqueeze(1)
    start, gradient = margin_gradient(twin, part.x, part.y)
    change = torch.zeros_like(start)
    for _ in range(PLATEAU_STEPS):
        downward = -torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        step = ball.steepest(ball.without_blocked(downward, delta, part.x))
        delta = ball.project(delta + length * step, part.x)
        value, gradient = margin_gradient(twin, part.x + delta, part.y)
        change = torch.maximum(change, (value - start).abs())
    return change.double()


def _random_search_probe(
    task: EvaluationTask, found: AttackResult
) -> tuple[AttackResult, HealthWarning | None]:
    """A random search a little below the radius found for some points."""
    rows = _evenly_spaced(torch.nonzero(found.radius > 0).squeeze(1), SEARCH_PROBE_POINTS)
    if len(rows) == 0:
        return found, None
    part = task.test.take(rows)
    radius = SEARCH_PROBE_RADIUS_SHARE * _finite_radii(found.radius, part.x, task.norm)[rows]
    probe = random_search(
        task.net,
        part.x,
        part.y,
        ball=Ball(task.norm, radius, part.box),
        steps=SEARCH_PROBE_QUERIES,
        generator=task.generator,
        batch=task.batch,
    )
    return found.merged(rows, probe), random_wins(probe, shallow=is_shallow(task.net))


def _pgd_probe(
    task: EvaluationTask, found: AttackResult
) -> tuple[AttackResult, HealthWarning | None]:
    """Plain PGD from the points themselves, a little beyond the median radius found."""
    right = torch.nonzero(found.radius > 0).squeeze(1)
    if not bool(found.radius[right].isfinite().any()):
        return found, None
    sizes = found.radius[right]
    radius = PGD_PROBE_RADIUS_SHARE * float(sizes[sizes.isfinite()].quantile(0.5))
    rows = _evenly_spaced(right, PGD_PROBE_POINTS)
    part = task.test.take(rows)
    probe = pgd(
        task.net,
        part.x,
        part.y,
        ball=Ball(task.norm, radius, part.box),
        steps=PGD_PROBE_STEPS,
        step=PGD_PROBE_TRAVEL_RADII / PGD_PROBE_STEPS * radius,
        batch=task.batch,
    )
    shallow = is_shallow(task.net)
    upper = found.radius[rows]
    warning = plain_steps_miss(probe, upper, task.norm, radius, shallow=shallow)
    return found.merged(rows, probe), warning


def _evenly_spaced(rows: Tensor, count: int) -> Tensor:
    """At most `count` of the rows, evenly spaced."""
    if len(rows) <= count:
        return rows
    return rows[torch.linspace(0, len(rows) - 1, count, device=rows.device).round().long()]


def _finite_radii(radius: Tensor, x: Tensor, norm: str) -> Tensor:
    """The radii, with the largest finite one or the points' median norm in the place of inf."""
    known = radius[radius.isfinite()]
    top = float(known.max()) if len(known) > 0 else 0.0
    far = max(top, float(Ball(norm, 0.0).norms(x).median())) or 1.0
    return torch.where(radius.isfinite(), radius, far)


@dataclass(frozen=True)
class HealthWarning:
    """Why numbers of an evaluation should be read with care."""

    name: str  # short, such as "zero-gradients"
    sentence: str  # what was noticed and what it may mean


def zero_gradients(gradient: Tensor) -> HealthWarning | None:
    """Of the margin's gradients (n, dim) at correctly classified points more than 10 % are zero."""
    usable = torch.isfinite(gradient).all(1) & (gradient != 0).any(1)
    share = 1.0 - float(usable.double().mean()) if len(gradient) > 0 else 0.0
    if share <= ZERO_GRADIENT_SHARE:
        return None
    return HealthWarning(
        "zero-gradients",
        f"the margin's gradient is zero at {_percent(share)} of the points: attacks that follow "
        "gradients stand still there, and what they do not break may not be robust",
    )


def random_wins(probe: AttackResult, *, shallow: bool) -> HealthWarning | None:
    """A random search, given less than the radius found, breaks more than 5 % of its points."""
    share = 1.0 - probe.accuracy
    if share <= SEARCH_WIN_SHARE:
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
    still = change <= PLATEAU_ROUNDINGS * torch.finfo(dtype).eps * _largest_outputs(out)
    share = float(still.double().mean()) if len(change) > 0 else 0.0
    if share <= PLATEAU_POINT_SHARE:
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
    if missed <= PLAIN_STEPS_MISS_SHARE:
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


def _ends_linear(net: nn.Module) -> bool:
    """Whether outputs are known to be sums, which no sigmoid or softmax ends."""
    if is_shallow(net):
        return True
    layers = [layer for layer in chain_layers(net) if not isinstance(layer, nn.Flatten)]
    return bool(layers) and isinstance(layers[-1], nn.Linear)


def probabilities(out: Tensor, y: Tensor) -> HealthWarning | None:
    """The outputs, (n,) or (n, C), look like probabilities.

    Several: all in [0, 1] with rows that sum to 1. One: in [0, 1] and on both sides of a half,
    which tells the two labels apart better than its sign can.
    """
    inside = bool(((out >= 0) & (out <= 1)).all()) and constant(out, y) is None
    if out.ndim == 1:
        by_half, by_sign = (((out > at) == (y > 0)).double().mean() for at in (0.5, 0.0))
        both = bool((out > 0.5).any()) and bool((out < 0.5).any())
        alike = inside and both and bool(by_half > by_sign)
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
    limit = LEAST_MARGIN_ROUNDINGS * torch.finfo(dtype).eps * float(_largest_outputs(out).median())
    share = float((margins.abs() < limit).double().mean())
    if share <= ROUNDED_MARGIN_POINT_SHARE:
        return None
    kind = str(dtype).removeprefix("torch.")
    return HealthWarning(
        "margins-of-rounding",
        f"the margins of {_percent(share)} of the points are below {limit:.1g}, no more than the "
        f"rounding of {kind} outputs: their class may change with the order of a sum",
    )


def wide_brackets(lower: Tensor, upper: Tensor) -> HealthWarning | None:
    """The median of lower/upper over correctly classified points is below 1/2; inf counts as 0."""
    right = upper > 0
    if not bool(right.any()):
        return None
    both = lower[right].isinf() & upper[right].isinf()
    ratio = torch.where(both, 1.0, lower[right] / upper[right])
    middle = float(ratio.quantile(0.5))
    if middle >= WIDE_BRACKET_RATIO:
        return None
    return HealthWarning(
        "wide-brackets",
        f"the certified radius is at the median {middle:.2f} of the attacked one: the truth may "
        "be anywhere between",
    )


def converted(name: str) -> HealthWarning:
    """A module was read as a network of the package: `name` says which as what."""
    return HealthWarning(
        "converted",
        f"the network is a {name}, which computes the same: attacks and certificates know its "
        "neurons, as with models.from_torch",
    )


def random_outputs(net: nn.Module, x: Tensor) -> HealthWarning | None:
    """The outputs at points x (n, dim) change from call to call, as with dropout in training."""
    net, few = copy.deepcopy(net).double(), x[:RANDOM_PROBE_POINTS].double()
    few = few.repeat(2, 1)[: max(2, len(few))]  # A batch norm in training wants two points.
    trains = any(part.training for part in net.modules())
    if _changes(copy.deepcopy(net).eval(), few):
        return HealthWarning(
            "random-outputs",
            "the outputs change from call to call in evaluation mode, too: attacks, their re-check "
            "and certificates meet another network each time, and no number here can be trusted",
        )
    if not trains or not _changes(net, few):
        return None
    return HealthWarning(
        "random-outputs",
        "the network is in training mode, where its outputs change from call to call (dropout): "
        "it was judged in evaluation mode, so call net.eval() before you use it",
    )


def _changes(net: nn.Module, x: Tensor) -> bool:
    """Whether two calls give different outputs; the random state of the caller stays as it is."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return not torch.equal(net(x), net(x))


def uncertified(kind: str) -> HealthWarning:
    """No certificate is known for this kind of network."""
    return HealthWarning(
        "uncertified",
        f"no certificate is known for {kind}: nothing bounds its robustness from below, and the "
        "attacked accuracy is only the most that it can be",
    )


def _largest_outputs(out: Tensor) -> Tensor:
    """The largest |output| of each point, (n,)."""
    return out.detach().abs().reshape(len(out), -1).amax(1)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
