"""The late stage: a few directions on all samples, in a small subspace that is checked."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models.power import relu_power_with_slope
from extremal.train.closure import pushes
from extremal.train.gathering import Groups
from extremal.train.loss import Loss
from extremal.train.polar import Angles
from extremal.train.runge_kutta import State, Stepper


class Fitting:
    """A stepper for groups of neurons, with states (coordinates (k, r), theta (k,)).

    The coordinates are those of the span of the clusters' means, the directions at the start and
    their gradients there. `residual` is the largest share of a gradient that lies off that span,
    looked at whenever the time has grown tenfold.
    """

    def __init__(
        self,
        data: Dataset,
        loss: Loss,
        p: float,
        means: Tensor,
        groups: Groups,
        directions: Tensor,
        angles: Angles,
        stepper: Stepper,
        rate: float,
    ) -> None:
        self.loss, self.p, self.rate = loss, p, rate / len(data)
        self.x, self.y = data.x, data.y.to(data.x.dtype)
        member = torch.nonzero(groups.owner >= 0).squeeze(1)
        owner, count = groups.owner[member], len(groups.leaders)
        self.angles, self.start = angles.take(member).summed(groups.theta[member], owner, count)
        mass = groups.contribution[member].abs()
        unit = _unit(_sum(mass[:, None] * directions[member], owner, count))
        pull, _ = self._pull(self.x, unit, self.start)
        self.basis = torch.linalg.qr(torch.cat([means, unit, pull]).T).Q.T.contiguous()
        self.inner = self.x @ self.basis.T.to(self.x.dtype)  # (n, r)
        self.residual, self._look = 0.0, 0.0
        state = (unit @ self.basis.T, self.start)
        self.stepper = Stepper(
            self._side, state, stepper.time, stepper.tolerance, stepper.counts, stepper.size
        )

    def advance(self, limit: float) -> None:
        """Take one step, keep the directions on the sphere, and look at the residual."""
        self.stepper.advance(limit)
        place, theta = self.stepper.state
        self.stepper.state = (_unit(place), theta)
        if self.stepper.time >= self._look:
            self._look = 10.0 * self.stepper.time
            pull, _ = self._pull(self.x, self.directions(), theta)
            off = pull - (pull @ self.basis.T) @ self.basis
            share = torch.linalg.vector_norm(off, dim=1) / torch.linalg.vector_norm(pull, dim=1)
            self.residual = max(self.residual, float(share.max()))

    def directions(self) -> Tensor:
        """The groups' directions, (k, dim)."""
        return _unit(self.stepper.state[0]) @ self.basis

    def outputs(self) -> Tensor:
        """f on the training data, (n,), of the groups alone."""
        place, theta = self.stepper.state
        power, _ = relu_power_with_slope(self.inner @ place.T.to(self.inner.dtype), self.p)
        return (power @ self.angles.contribution(theta).to(power.dtype)).double()

    def turned(self) -> Tensor:
        """How far theta has come since the start, (k,)."""
        return self.stepper.state[1] - self.start

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


def _sum(values: Tensor, owner: Tensor, count: int) -> Tensor:
    shape = (count, *values.shape[1:])
    return torch.zeros(shape, dtype=values.dtype).index_add_(0, owner, values)


def _unit(rows: Tensor) -> Tensor:
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
