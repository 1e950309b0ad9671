"""Gradient flow on the weights themselves, for any network, data and loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.flow.driver import Flow
from extremal.train.flow.runge_kutta import DORMAND_PRINCE_54, RungeKuttaStepper, State
from extremal.train.losses import Loss, loss_and_gradient, outputs_on, trainable


class WeightFlow(Flow):
    """Dormand & Prince 5(4) on a float64 network, which is changed in place.

    The error of a step is measured against each neuron's own length, so that neurons of 1e-7 are
    followed as well as neurons of 1. With p = 1 the flow may slide along a kink, where no step is
    short enough: a step is then also taken if it moves no neuron by more than sqrt(tolerance) of
    its length.

    Gradient flow conserves ||w||^2 + b^2 - ||v||^2 of each neuron of a `PReLUNet`; Runge-Kutta
    steps do within the tolerance. States are given out with the value of the start, to rounding.
    """

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
        super().__init__()
        self.net, self.data, self.loss, self.tolerance = net, data, loss, tolerance
        self.names, self.parts = list(trainable(net)), list(trainable(net).values())
        self.kinked = isinstance(net, PReLUNet) and net.p == 1.0
        self.last_loss = math.nan
        state = tuple(part.detach().clone() for part in self.parts)
        self.first_norms = self._norms(state) if _keeps_balance(net) else None
        self.stepper = RungeKuttaStepper(
            self._velocity,
            state,
            time,
            tolerance,
            self.counts,
            1.0,
            tableau=DORMAND_PRINCE_54,
            error=self._error,
        )
        self.first_loss = self.last_loss
        self.stepper.size = _first_step(state, self.stepper.slope, tolerance, until)

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.stepper.time

    def step(self, limit: float) -> None:
        """Take one step, not beyond `limit`."""
        self.stepper.advance(limit)
        self.mark_phases(self.last_loss)

    def write(self, net: nn.Module, time: float) -> None:
        """Put the weights as they were at a time within the last step into a network."""
        _assign(list(trainable(net).values()), self._state_at(time))

    def outputs(self, time: float) -> Tensor:
        """f on the training data at that time, (n,) or (n, C)."""
        _assign(self.parts, self._state_at(time))
        return outputs_on(self.net, self.data)

    def report(self) -> dict[str, object]:
        """What is to be said of the run."""
        return {"engine": "weights", "phases": self.phases}

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return self.stepper.is_at_rest

    def _velocity(self, state: State) -> State:
        _assign(self.parts, state)
        value, gradient = loss_and_gradient(self.net, self.data.x, self.data.y, self.loss)
        self.last_loss = float(value)  # The last stage of a step is at its end.
        return tuple(-slope for slope in gradient.values())

    def _state_at(self, time: float) -> State:
        """The state at a time within the last step, with the balance that neurons had at first.

        It is the projection onto that (Hairer, Lubich & Wanner 2006, Section IV.4), orthogonal to
        first order and so no farther than the flow is: (w, b) times 1 - s and v times 1 + s.
        """
        state = self.stepper.state_at(time)
        if self.first_norms is None:
            return state
        shift = _balancing_shift(self._norms(state), self.first_norms)
        factors = {"neurons": (1.0 - shift)[:, None], "hidden_bias": 1.0 - shift}
        factors["votes"] = 1.0 + shift
        return tuple(
            part * factors[name] if name in factors else part
            for name, part in zip(self.names, state, strict=True)
        )

    def _norms(self, state: State) -> tuple[Tensor, Tensor]:
        """||(w, b)|| and ||v|| of each neuron of a `PReLUNet`, (width,) each."""
        parts = dict(zip(self.names, state, strict=True))
        inner = _sizes("neurons", parts["neurons"])
        if "hidden_bias" in parts:
            inner = torch.hypot(inner, parts["hidden_bias"])
        return inner, _sizes("votes", parts["votes"])

    def _error_scale(self, name: str, old: Tensor, new: Tensor) -> Tensor:
        """The size that errors of a parameter are relative to: that of the neuron it belongs to."""
        size = torch.maximum(_sizes(name, old), _sizes(name, new))
        if not isinstance(self.net, PReLUNet):
            return torch.maximum(size, _sizes(name, old).square().mean().sqrt())
        neurons = torch.linalg.vector_norm(self.net.neurons.detach(), dim=1)
        if name == "bias":
            return torch.maximum(size, neurons.mean())
        votes = torch.linalg.vector_norm(self.net.votes.detach(), dim=0)
        # The size of a frozen vote or neuron does not tell the size of the trained part.
        own = neurons if self.net.neurons.requires_grad else torch.zeros_like(neurons)
        other = votes if self.net.votes.requires_grad and name != "votes" else 0.0 * votes
        return torch.maximum(size, torch.maximum(own, other))

    def _error(self, estimate: State, before: State, after: State) -> float:
        miss, moved = [], []
        for name, part, old, new in zip(self.names, estimate, before, after, strict=True):
            scale = self._error_scale(name, old, new)
            miss.append(_largest_ratio(_sizes(name, part), scale))
            moved.append(_largest_ratio(_sizes(name, new - old), scale))
        if not all(map(math.isfinite, miss + moved)):  # max() would pass over a NaN
            return math.inf
        error = max(miss) / self.tolerance
        return min(error, max(moved) / self.tolerance**0.5) if self.kinked else error


def _keeps_balance(net: nn.Module) -> bool:
    """Whether the flow conserves each neuron's balance: all its weights are trained."""
    if not isinstance(net, PReLUNet):
        return False
    parts = (net.neurons, net.votes, net.hidden_bias)
    return all(part is None or part.requires_grad for part in parts)


def _balancing_shift(now: tuple[Tensor, Tensor], first: tuple[Tensor, Tensor]) -> Tensor:
    """s with (1 - s)^2 n^2 - (1 + s)^2 m^2 = n0^2 - m0^2, for norms (n, m) and (n0, m0), (width,).

    Over n^2 + m^2, which is 1 then, it is d s^2 - 2 s + (d - d0) = 0 with d = n^2 - m^2.
    """
    size = torch.hypot(*now).clamp(min=1e-300)
    balance, wanted = (((n - m) / size) * ((n + m) / size) for n, m in (now, first))
    excess = balance - wanted
    return excess / (1.0 + (1.0 - balance * excess).clamp(min=0.0).sqrt())


def _sizes(name: str, part: Tensor) -> Tensor:
    """The sizes of a change: of rows for neurons, of columns for votes, of entries else."""
    if name == "votes":
        return torch.linalg.vector_norm(part, dim=0)
    return torch.linalg.vector_norm(part, dim=1) if part.ndim == 2 else part.abs()


def _largest_ratio(part: Tensor, scale: Tensor) -> float:
    """The largest quotient of a change and the size that it is relative to."""
    return float((part.abs() / scale.clamp(min=1e-300)).max())


def _first_step(theta: State, slopes: State, tolerance: float, until: float) -> float:
    # Weights that are all zero have no size of their own.
    size = max(float(t.norm()) for t in theta) or 1.0
    speed = max(float(k.norm()) for k in slopes)
    return min(
        until, 0.1 * tolerance ** (1.0 / DORMAND_PRINCE_54.order) * size / max(speed, 1e-300)
    )


def _assign(parts: list[nn.Parameter], values: State) -> None:
    with torch.no_grad():
        for part, value in zip(parts, values, strict=True):
            part.copy_(value)
