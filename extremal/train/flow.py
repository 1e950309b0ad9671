"""Gradient flow: theta' = -grad L(theta), integrated with control of the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet, double
from extremal.train.descent import check_fit
from extremal.train.gradient import loss_and_gradient, trainable
from extremal.train.loss import Loss, LossName, as_loss
from extremal.train.mixture_flow import follow_mixture
from extremal.train.record import Record, Recorder
from extremal.train.runge_kutta import Counts
from extremal.train.trajectory import Trajectory

# Dormand & Prince 5(4): stages, fifth-order weights, and the difference to the fourth-order ones.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_ORDER = 5


def gradient_flow(
    net: nn.Module,
    train: Dataset,
    *,
    loss: LossName | Loss = "exp",
    until: float,
    method: Literal["auto", "general", "mixture"] = "auto",
    tolerance: float | None = None,
    max_steps: int = 1_000_000,
    record: Record | None = None,
    generator: torch.Generator | None = None,
) -> Trajectory:
    """Follow theta' = -grad L(theta) from the network's weights to flow time `until`.

    Min & Vidal 2024, Section 2 (the paper writes the inclusion with the opposite sign; it is
    descent). The network is trained in place and keeps its dtype. With a summed loss, time runs n
    times faster.

    "general" (`tolerance` 1e-6 unless said): Dormand-Prince 5(4) on the weights themselves, in
    float64, with steps such that the estimated error of a step is below `tolerance` of each
    neuron's own length, so that neurons of 1e-7 are followed as well as neurons of 1. At kinks
    (p = 1) the slope of relu at 0 is 0, and the flow may slide along a kink, where no step is short
    enough for that: a step is then also taken if it moves no neuron by more than sqrt(tolerance) of
    its length, which is also the accuracy to expect. It makes no assumption on the data, and
    converges to the sample's flow.

    "mixture" (`tolerance` 1e-3 unless said): for a one-output network without biases on data whose
    groups are known Gaussian clusters. Orders of magnitude faster: neurons move in the clusters'
    own coordinates until few directions are left, which are then followed on all samples (see
    `extremal.train.mixture_flow`). Each cluster's noise is replaced by a Gaussian until then, so it
    does not converge to the sample's flow as the tolerance goes to 0.

    "auto" takes "general". The flow is deterministic; `generator` is there for methods that
    subsample.
    """
    _check.number("until", until, above=0.0)
    _check.choice("method", method, ("auto", "general", "mixture"))
    tolerance = (1e-3 if method == "mixture" else 1e-6) if tolerance is None else tolerance
    _check.number("tolerance", tolerance, above=0.0, maximum=0.1)
    _check.integer("max_steps", max_steps, minimum=1)
    loss = as_loss(loss)
    check_fit(net, train, loss)
    del generator
    torch.set_flush_denormal(True)
    if method == "mixture":
        return follow_mixture(net, train, loss, until, tolerance, record)
    twin = _thawed(net)
    data = train.to(torch.float64)
    recorder = Recorder(record, twin, data, loss, until)
    recorder.start()
    counts = Counts()
    try:
        _integrate(twin, data, loss, until, tolerance, max_steps, recorder, counts)
    finally:
        _copy_back(twin, net)
    return recorder.finish(
        converged=True,
        method="general",
        steps=counts.steps,
        rejected=counts.rejected,
        right_hand_sides=round(counts.sides),
        tolerance=tolerance,
    )


def _integrate(
    twin: nn.Module,
    data: Dataset,
    loss: Loss,
    until: float,
    tolerance: float,
    max_steps: int,
    recorder: Recorder,
    counts: Counts,
) -> None:
    parts = list(trainable(twin).values())
    theta = [part.detach().clone() for part in parts]

    def side(point: list[Tensor]) -> list[Tensor]:
        _assign(parts, point)
        counts.sides += 1
        _, gradient = loss_and_gradient(twin, data.x, data.y, loss)
        return [-slope for slope in gradient.values()]

    kinked = isinstance(twin, PReLUNet) and twin.p == 1.0
    time, first = 0.0, side(theta)
    step = _first_step(theta, first, tolerance, until)
    while time < until:
        if counts.steps + counts.rejected >= max_steps or step < 1e-14 * time:
            _assign(parts, theta)  # the last trial may have been rejected
            advice = f"{counts.steps} steps did not reach {until:g}; raise max_steps or tolerance"
            raise recorder.diverged(time, advice, method="general", steps=counts.steps)
        stop = min(until, recorder.next_time())
        size = min(step, stop - time)
        new, last, miss, moved = _attempt(theta, first, size, side)
        error = min(miss / tolerance, moved / tolerance**0.5) if kinked else miss / tolerance
        factor = 0.9 * error ** (-1.0 / _ORDER) if error > 0 else 5.0
        factor = min(5.0, max(0.2, factor)) if math.isfinite(error) else 0.2
        if not error <= 1.0:
            counts.rejected += 1
            step = size * factor
            continue
        counts.steps += 1
        # A step cut short to record says nothing against the longer one that was planned.
        step = max(step, size * factor) if size < step else size * factor
        time = stop if size == stop - time else time + size
        theta, first = new, last
        _assign(parts, theta)
        if time >= stop and not math.isfinite(recorder.note(time)):
            raise recorder.diverged(time, "the loss is not finite", method="general")


def _attempt(
    theta: list[Tensor],
    first: list[Tensor],
    size: float,
    side: Callable[[list[Tensor]], list[Tensor]],
) -> tuple[list[Tensor], list[Tensor], float, float]:
    """One step of length `size`: the new point, its right-hand side, its error, and its length.

    Error and length are relative to the neurons, at worst; infinite if the trial left the numbers.
    """
    slopes = [first]
    for weights in _STAGES:
        point = [
            t + size * sum(w * k[i] for w, k in zip(weights, slopes, strict=True) if w)
            for i, t in enumerate(theta)
        ]
        slopes.append(side(point))
    miss, moved = [], []
    for i, (old, new) in enumerate(zip(theta, point, strict=True)):
        gap = size * sum(w * k[i] for w, k in zip(_ERROR, slopes, strict=True) if w)
        miss.append(_relative(torch.as_tensor(gap), old, new, theta[0]))
        moved.append(_relative(new - old, old, new, theta[0]))
    if not all(map(math.isfinite, miss + moved)):  # max() would pass over a NaN
        return point, slopes[-1], math.inf, math.inf
    return point, slopes[-1], max(miss), max(moved)


def _relative(miss: Tensor, old: Tensor, new: Tensor, neurons: Tensor) -> float:
    """The largest error relative to the neuron (row or column) that it belongs to."""
    if miss.ndim < 2 or miss.shape != neurons.shape:
        floor = float(torch.linalg.vector_norm(neurons)) / neurons.numel() ** 0.5
        length = torch.maximum(old.abs(), new.abs()).clamp(min=max(floor, 1e-300))
        return float((miss.abs() / length).max())
    length = torch.maximum(old.norm(dim=1), new.norm(dim=1)).clamp(min=1e-300)
    return float((miss.norm(dim=1) / length).max())


def _first_step(theta: list[Tensor], slopes: list[Tensor], tolerance: float, until: float) -> float:
    size = max(float(t.norm()) for t in theta)
    speed = max(float(k.norm()) for k in slopes)
    return min(until, 0.1 * tolerance ** (1.0 / _ORDER) * size / max(speed, 1e-300))


def _thawed(net: nn.Module) -> nn.Module:
    """A float64 copy whose parameters are trainable where the original's are."""
    twin = double(net)
    for copied, original in zip(twin.parameters(), net.parameters(), strict=True):
        copied.requires_grad_(original.requires_grad)
    return twin


def _assign(parts: list[nn.Parameter], values: list[Tensor]) -> None:
    with torch.no_grad():
        for part, value in zip(parts, values, strict=True):
            part.copy_(value)


def _copy_back(twin: nn.Module, net: nn.Module) -> None:
    with torch.no_grad():
        for copied, original in zip(twin.parameters(), net.parameters(), strict=True):
            original.copy_(copied)
