"""Gradient flow on the weights themselves, for any network, data and loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.gradient import all_outputs, loss_and_gradient, trainable
from extremal.train.loss import Loss
from extremal.train.runge_kutta import DORMAND, Counts, State, Stepper


class PlainFlow:
    """Dormand & Prince 5(4) on a float64 network, which is changed in place.

    The error of a step is measured against each neuron's own length, so that neurons of 1e-7 are
    followed as well as neurons of 1. With p = 1 the flow may slide along a kink, where no step is
    short enough: a step is then also taken if it moves no neuron by more than sqrt(tolerance) of
    its length.
    """

    dense = True

    def __init__(
        self,
        net: nn.Module,
        data: Dataset,
        loss: Loss,
        tolerance: float,
        until: float,
        *,
        time: float = 0.0,
    ) -> None:
        self.net, self.data, self.loss, self.tolerance = net, data, loss, tolerance
        self.parts = list(trainable(net).values())
        self.kinked = isinstance(net, PReLUNet) and net.p == 1.0
        self.counts = Counts()
        self.phases: dict[str, float] = {}
        self.first_loss = math.nan
        self.value = math.nan
        state = tuple(part.detach().clone() for part in self.parts)
        self.stepper = Stepper(
            self._side,
            state,
            time,
            tolerance,
            self.counts,
            1.0,
            pair=DORMAND,
            error=self._error,
        )
        self.first_loss = self.value
        self.stepper.size = _first_step(state, self.stepper.slope, tolerance, until)

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.stepper.time

    @property
    def phase(self) -> str:
        """Alignment until the loss has moved by a thousandth, fitting once it has fallen by 0.4."""
        if "fitting starts" in self.phases:
            return "fitting"
        return "waking" if "alignment ends" in self.phases else "alignment"

    def step(self, limit: float) -> None:
        """Take one step, not beyond `limit`."""
        self.stepper.advance(limit)
        share = self.value / self.first_loss
        if share < 0.999:
            self.phases.setdefault("alignment ends", self.time)
        if share < 0.6:
            self.phases.setdefault("fitting starts", self.time)

    def write(self, net: nn.Module, time: float) -> None:
        """Put the weights as they were at a time within the last step into a network."""
        _assign(list(trainable(net).values()), self.stepper.between(time))

    def outputs(self, time: float) -> Tensor:
        """f on the training data at that time, (n,) or (n, C)."""
        _assign(self.parts, self.stepper.between(time))
        return all_outputs(self.net, self.data)

    def report(self) -> dict[str, object]:
        """What is to be said of the run."""
        return {"phases": self.phases}

    def _side(self, state: State) -> State:
        _assign(self.parts, state)
        value, gradient = loss_and_gradient(self.net, self.data.x, self.data.y, self.loss)
        self.value = float(value)  # the last stage is at the end of the step
        return tuple(-slope for slope in gradient.values())

    def _error(self, estimate: State, before: State, after: State) -> float:
        miss, moved = [], []
        for part, old, new in zip(estimate, before, after, strict=True):
            miss.append(_relative(part, old, new, before[0]))
            moved.append(_relative(new - old, old, new, before[0]))
        if not all(map(math.isfinite, miss + moved)):  # max() would pass over a NaN
            return math.inf
        error = max(miss) / self.tolerance
        return min(error, max(moved) / self.tolerance**0.5) if self.kinked else error


def _relative(miss: Tensor, old: Tensor, new: Tensor, neurons: Tensor) -> float:
    """The largest error relative to the neuron (row or column) that it belongs to."""
    if miss.ndim < 2 or miss.shape != neurons.shape:
        floor = float(torch.linalg.vector_norm(neurons)) / neurons.numel() ** 0.5
        length = torch.maximum(old.abs(), new.abs()).clamp(min=max(floor, 1e-300))
        return float((miss.abs() / length).max())
    length = torch.maximum(old.norm(dim=1), new.norm(dim=1)).clamp(min=1e-300)
    return float((miss.norm(dim=1) / length).max())


def _first_step(theta: State, slopes: State, tolerance: float, until: float) -> float:
    size = max(float(t.norm()) for t in theta)
    speed = max(float(k.norm()) for k in slopes)
    return min(until, 0.1 * tolerance ** (1.0 / DORMAND.order) * size / max(speed, 1e-300))


def _assign(parts: list[nn.Parameter], values: State) -> None:
    with torch.no_grad():
        for part, value in zip(parts, values, strict=True):
            part.copy_(value)
