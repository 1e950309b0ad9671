"""The last stage: groups in place of neurons, on all samples, that merge where they meet.

The late stage: a few directions on all samples, in a small subspace that is checked.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models import relu_power_with_slope
from extremal.train.flow.neuron_dynamics import NeuronAngles, NeuronSystem, unit
from extremal.train.flow.neuron_groups import Groups, groups_within_tolerance
from extremal.train.flow.runge_kutta import DORMAND_PRINCE_54, State, Stepper
from extremal.train.losses import Loss, negative_slopes


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
        angles: NeuronAngles,
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
        self.stepper.tolerance, self.stepper.pair = tolerance, DORMAND_PRINCE_54

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
        push = self.rate * negative_slopes(self.loss, outputs, self.y)
        return ((slope * push[:, None]).T @ x).double(), (push @ power).double()


_FEW = 100  # directions for which smaller errors are cheap
_CLOSE = 0.1  # of the tolerance, for few directions, and for those that are merged later
_CLOSER = 0.002  # of the tolerance, for the late loss, which is some fifty times as sensitive
_SLIDE = 0.3  # of the root of the tolerance: a step that moves less may end beyond a kink
_SAVES = 0.8  # of the directions: merging is worth it if no more are left


class Late:
    """Groups of neurons from where `stepper` stands; `begun` is when neurons began to interact.

    `change` and `bound` add up what each merging changed when it was done: on the training data,
    and at most on the unit ball.
    """

    def __init__(
        self,
        data: Dataset,
        neurons: NeuronSystem,
        stepper: Stepper,
        groups: Groups,
        change: float,
        *,
        begun: float,
        ease: float,
    ) -> None:
        self.data, self.neurons, self.tolerance = data, neurons, stepper.tolerance
        self.start = stepper.state  # of all neurons
        self.begun, self.ease = begun, ease
        directions = neurons.field.frame.lift(self.start[0])
        self.change, self.bound = change, groups.moved(directions) * neurons.field.p
        self.close = False
        self._follow(groups, groups.mean(directions), stepper)

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.fitting.stepper.time

    @property
    def still(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return not any(bool(part.any()) for part in self.fitting.stepper.slope)

    def changes(self) -> dict[str, float]:
        """`change`, `bound`, and the largest share of a gradient that its subspace left out."""
        return {"change": self.change, "bound": self.bound, "residual": self.fitting.residual}

    def closer(self) -> None:
        """Go on with smaller errors, from here on and after each merging."""
        self.close = True
        self.fitting.closer(_CLOSER * self.tolerance)

    def advance(self, limit: float) -> None:
        """Take one step, not beyond `limit`, with directions merged before it if it is time to."""
        if self.time >= self._again:
            self._merge()
        self.fitting.advance(limit)

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), of the groups alone, at a time within the last step."""
        return self.fitting.outputs(time)

    def neurons_at(self, time: float) -> State:
        """Directions (h, dim) and theta (h,) of all neurons at a time within the last step.

        Those that are in no group stay as they were when the stage began.
        """
        member = self.groups.owner >= 0
        mine = self.groups.owner[member]
        directions, theta = self.neurons.field.frame.lift(self.start[0]), self.start[1].clone()
        theta[member] = self.groups.theta[member] + self.fitting.turned(time)[mine]
        faded = self._faded(member, theta[member])
        directions[member] = unit(self.fitting.directions(time)[mine] + faded)
        return directions, theta

    def _faded(self, member: Tensor, theta: Tensor) -> Tensor:
        """What is left of the members' rests beside their groups' mean.

        Where nothing pulls along the rest, beta' = -p ratio g beta, and (log ||w||)' = ratio g: it
        fades like ||w||^-p.
        """
        field = self.neurons.field
        rest = self.start[0][:, -1:] * field.frame.rest
        own = rest[member] - self.groups.mean(rest)[self.groups.owner[member]]
        angles = self.neurons.angles.take(torch.nonzero(member).squeeze(1))
        grown = angles.log_norm(theta) - angles.log_norm(self.start[1][member])
        return torch.exp(-field.p * grown)[:, None] * own

    def _follow(self, groups: Groups, directions: Tensor, stepper: Stepper) -> None:
        """Follow groups with these directions from where a stepper stands."""
        self.groups = groups
        self.fitting = Fitting(
            self.data,
            self.neurons.loss,
            self.neurons.field.p,
            self.neurons.field.frame.basis,
            groups,
            directions,
            self.neurons.angles,
            stepper,
            self.neurons.rate,
            self.tolerance * (_CLOSE if len(groups.leaders) <= _FEW else 1.0),
            _SLIDE * self.tolerance**0.5,
        )
        self._again = self._next_look()
        if self.close:
            self.closer()

    def _next_look(self) -> float:
        """When to see again which directions have met: half as long again since the beginning."""
        return self.time + 0.5 * (self.time - self.begun + self.ease)

    def _merge(self) -> None:
        """Gather directions that have met since the last look, if that saves much."""
        few, change = self._met()
        self._again = self._next_look()
        if len(few.leaders) > _SAVES * len(self.groups.leaders):
            return
        member = self.groups.owner >= 0
        angle = self.groups.theta.clone()
        angle[member] += self.fitting.turned(self.time)[self.groups.owner[member]]
        new = self.groups.joined(few, angle, self.neurons.angles.contribution(angle))
        directions = self.fitting.directions(self.time)
        self.change += change
        self.bound += few.moved(directions) * self.neurons.field.p
        self._follow(new, few.mean(directions), self.fitting.stepper)

    def _met(self) -> tuple[Groups, float]:
        """Groups of the groups as they are now, and the change of the outputs that they make."""
        fitting = self.fitting
        place, theta = fitting.stepper.state
        place = torch.nn.functional.pad(place, (0, 1))
        contribution = fitting.angles.contribution(theta)
        return groups_within_tolerance(
            fitting.outputs(self.time),
            lambda groups: fitting.values(unit(groups.mean(place)), groups.contributions()),
            place,
            contribution,
            theta,
            contribution.abs() / contribution.abs().sum(),
            tolerance=_CLOSE * self.tolerance,
            leave=0.0,
            thin=1.0,
        )
