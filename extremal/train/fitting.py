"""The late stage: a few directions on all samples, in a small subspace that is checked."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models.activations import relu_power_with_slope
from extremal.train.flow.neuron_dynamics import Angles
from extremal.train.flow.neuron_groups import Groups
from extremal.train.flow.runge_kutta import DORMAND, State, Stepper
from extremal.train.frame import unit
from extremal.train.losses import Loss, pushes


class Fitting:
    """A stepper for groups of neurons, with states (coordinates (k, r), theta (k,)).

    The coordinates are those of a given span, the directions at the start and their gradients
    there. `residual` is the largest share of a gradient that lies off that span,
    looked at whenever the time has grown tenfold. With p = 1 a step is also taken where it moves
    no coordinate by more than `slide`.
    """

    def __init__(
        self,
        data: Dataset,
        loss: Loss,
        p: float,
        span: Tensor,
        groups: Groups,
        directions: Tensor,
        angles: Angles,
        stepper: Stepper,
        rate: float,
        tolerance: float,
        slide: float,
    ) -> None:
        self.slide = slide
        self.loss, self.p, self.rate = loss, p, rate / len(data)
        self.x, self.y = data.x, data.y.to(data.x.dtype)
        member = torch.nonzero(groups.owner >= 0).squeeze(1)
        owner, count = groups.owner[member], len(groups.leaders)
        self.angles, self.start = angles.take(member).summed(groups.theta[member], owner, count)
        start = unit(directions)
        pull, _ = self._pull(self.x, start, self.start)
        self.basis = torch.linalg.qr(torch.cat([span, start, pull]).T).Q.T.contiguous()
        self.inner = self.x @ self.basis.T.to(self.x.dtype)  # (n, r)
        self.residual, self._look = 0.0, 0.0
        state = (start @ self.basis.T, self.start)
        self.stepper = Stepper(
            self._side,
            state,
            stepper.time,
            tolerance,
            stepper.counts,
            stepper.size,
            error=self._error if p == 1.0 else None,
        )

    def closer(self, tolerance: float) -> None:
        """Go on with smaller errors: those that are made while the loss is large are forgotten."""
        self.stepper.tolerance, self.stepper.pair = tolerance, DORMAND

    def advance(self, limit: float) -> None:
        """Take one step, keep the directions on the sphere, and look at the residual."""
        self.stepper.advance(limit)
        place, theta = self.stepper.state
        self.stepper.state = (unit(place), theta)
        if self.stepper.time >= self._look:
            self._look = 10.0 * self.stepper.time
            pull, _ = self._pull(self.x, unit(place) @ self.basis, theta)
            off = pull - (pull @ self.basis.T) @ self.basis
            share = torch.linalg.vector_norm(off, dim=1) / torch.linalg.vector_norm(pull, dim=1)
            self.residual = float(torch.nan_to_num(share, nan=0.0).max().clamp(min=self.residual))

    def directions(self, time: float) -> Tensor:
        """The groups' directions at a time within the last step, (k, dim)."""
        return unit(self.stepper.between(time)[0]) @ self.basis

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), of the groups alone."""
        place, theta = self.stepper.between(time)
        return self.values(unit(place), self.angles.contribution(theta))

    def values(self, place: Tensor, contribution: Tensor) -> Tensor:
        """f on the training data, (n,), of neurons at these coordinates (k, at least r)."""
        within = place[:, : self.inner.shape[1]].T.to(self.inner.dtype)
        power, _ = relu_power_with_slope(self.inner @ within, self.p)
        return (power @ contribution.to(power.dtype)).double()

    def turned(self, time: float) -> Tensor:
        """How far theta has come since the start, (k,)."""
        return self.stepper.between(time)[1] - self.start

    def _error(self, estimate: State, before: State, after: State) -> float:
        """As usual, but steps that hardly move are taken: along a kink none is short enough."""
        error = max(float(part.abs().max()) for part in estimate) / self.stepper.tolerance
        moved = max(float((new - old).abs().max()) for old, new in zip(before, after, strict=True))
        return min(error, moved / self.slide) if math.isfinite(error + moved) else math.inf

    def _side(self, state: State) -> State:
        place, theta = state
        pull, growth = self._pull(self.inner, place, theta)
        radial = (pull * place).sum(1, keepdim=True) / place.square().sum(1, keepdim=True)
        return self.angles.ratio(theta)[:, None] * (pull - radial * place), growth

    def _pull(self, x: Tensor, place: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """G (k, columns of x) and g (k,) on the samples; products in the samples' dtype."""
        s = x @ place.T.to(x.dtype)  # (n, k)
        power, slope = relu_power_with_slope(s, self.p)
        outputs = power @ self.angles.contribution(theta).to(x.dtype)
        push = self.rate * pushes(self.loss, outputs, self.y)
        return ((slope * push[:, None]).T @ x).double(), (push @ power).double()
