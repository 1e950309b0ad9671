"""The last stage: groups in place of neurons, on all samples, that merge where they meet."""

from __future__ import annotations

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.train.fitting import Fitting
from extremal.train.flow.neuron_groups import Groups, gathered
from extremal.train.flow.runge_kutta import State, Stepper
from extremal.train.frame import unit
from extremal.train.together import Together

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
        neurons: Together,
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
        return gathered(
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
