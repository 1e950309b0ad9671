"""The last stage: the few, each a neuron or for p = 1 a group of them, are followed on all samples.

`GroupFlow` integrates a fixed set of groups in a small subspace, and watches what lies off it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from extremal._tensors import unit_rows
from extremal.data import Dataset
from extremal.models import relu_power_with_slope
from extremal.train.flow.flow_stage import FlowStage, StagePlan
from extremal.train.flow.neuron_dynamics import NeuronSystem, polar_velocity
from extremal.train.flow.neuron_groups import Groups
from extremal.train.flow.runge_kutta import (
    DORMAND_PRINCE_54,
    AdaptiveStepper,
    RungeKuttaStepper,
    State,
)
from extremal.train.flow.sample_field import (
    KINK_TOLERANCES,
    LEFT_OFF_SHARE,
    OFF_SUBSPACE_TOLERANCES,
    kink_widths,
    main_directions,
    most_of_the_probes,
    orthonormal_rows,
    random_probes,
    rounded_power,
)
from extremal.train.losses import Loss, negative_slopes

# So few groups are cheap enough to be followed with smaller errors.
_FEW_GROUPS = 100
# The share of the tolerance for few groups.
_FEW_GROUPS_TOLERANCE_SHARE = 0.1
# Gradients are held against their subspace again once the loss is this share of what it was.
_WATCHED_LOSS_RATIO = 0.75
# The same once the flow time has grown by this factor.
_WATCHED_TIME_RATIO = 1.5
# What lies off the subspace is estimated by so many random projections.
_SKETCH_COLUMNS = 32
# It is computed where the estimate is above this share of what may lie off: it errs by an eighth.
_SUSPECT_SHARE = 0.5


class GroupFlow:
    """Groups of neurons at `directions`, as states (coordinates (k, r), theta (k,)) of a stepper.

    The coordinates are in the span of the neurons' frame, of the first directions and of their
    gradients, which grows where gradients leave it. `residual` is the largest share of a gradient
    that was seen off it, by random projections while it is small: it is looked at whenever the loss
    or the time has changed enough.
    """

    def __init__(
        self,
        data: Dataset,
        neurons: NeuronSystem,
        groups: Groups,
        directions: Tensor,
        stepper: AdaptiveStepper,
        tolerance: float,
        most_off: float,
        kink_width: Tensor | None,
    ) -> None:
        self.loss, self.p, self.rate = neurons.loss, neurons.field.p, neurons.rate / len(data)
        self.x, self.y = data.x, data.y.to(data.x.dtype)
        self.kink_width = None if kink_width is None else kink_width[:, None]
        member = torch.nonzero(groups.owner >= 0).squeeze(1)
        owner, count = groups.owner[member], len(groups.leaders)
        invariants = neurons.invariants.take(member)
        self.invariants, self.first_theta = invariants.summed(groups.theta[member], owner, count)
        start = unit_rows(directions)
        draw = torch.Generator().manual_seed(0)
        shape = (data.dim, _SKETCH_COLUMNS)
        self.projection = torch.randn(shape, dtype=torch.float64, generator=draw) / shape[1] ** 0.5
        probed = self.x @ random_probes(self.x).T.to(self.x.dtype)
        self.probe_slope = relu_power_with_slope(probed, self.p)[1]  # (n, probes)
        pull, _ = self._pull(self.x, start, self.first_theta)
        self._take_basis(torch.cat([neurons.field.frame.basis, start, pull]))
        self.most_off, self.residual = most_off, 0.0
        self._watched_loss, self._watched_time = math.inf, stepper.time
        self.stepper = RungeKuttaStepper(
            self._velocity,
            (start @ self.basis.T, self.first_theta),
            stepper.time,
            tolerance,
            stepper.counts,
            stepper.size,
        )

    def tighten(self, tolerance: float) -> None:
        """Go on with smaller errors; those made while the loss was large do not matter later."""
        self.stepper.tolerance, self.stepper.tableau = tolerance, DORMAND_PRINCE_54

    def advance(self, limit: float) -> None:
        """Watch the subspace now and then, take one step, and keep directions on the sphere."""
        if len(self.basis) < self.x.shape[1] and self._is_watch_due():
            self._widen_if_needed()
        self.stepper.advance(limit)
        place, theta = self.stepper.state
        self.stepper.state = (unit_rows(place), theta)

    def _is_watch_due(self) -> bool:
        """Whether the subspace is to be looked at again."""
        loss = float(Loss(self.loss.name).value(self.last_outputs, self.y))
        fallen = loss <= _WATCHED_LOSS_RATIO * self._watched_loss
        if not fallen and self.stepper.time < _WATCHED_TIME_RATIO * self._watched_time:
            return False
        self._watched_loss, self._watched_time = loss, self.stepper.time
        return True

    def _widen_if_needed(self) -> None:
        """Take what pulls groups and probes off the subspace into it, where that is too much."""
        place, theta = self.stepper.state
        weight, _ = self._weights(self.inner @ place.T.to(self.inner.dtype), theta)
        push = negative_slopes(self.loss, self.last_outputs, self.y)
        weight = torch.cat([weight, self.probe_slope * push[:, None]], 1)
        inside, projected = (
            torch.linalg.vector_norm((weight.T @ part).double(), dim=1)
            for part in (self.inner, self.off_projections)
        )
        found = projected / torch.hypot(inside, projected).clamp(min=1e-300)
        probed = found[len(theta) :].quantile(1.0 - LEFT_OFF_SHARE)
        share = float(torch.maximum(found[: len(theta)].max(), probed))
        if share > _SUSPECT_SHARE * self.most_off:
            off = unit_rows((weight.T @ self.x).double())
            off = off - (off @ self.basis.T) @ self.basis
            off = torch.cat([off[: len(theta)], most_of_the_probes(off[len(theta) :])])
            share = float(torch.linalg.vector_norm(off, dim=1).max())
        self.residual = max(self.residual, share)
        if share <= self.most_off:
            return
        directions = place @ self.basis
        self._take_basis(torch.cat([self.basis, main_directions(off, self.most_off)]))
        self.stepper = self.stepper.restarted(self._velocity, (directions @ self.basis.T, theta))

    def _take_basis(self, rows: Tensor) -> None:
        """Follow coordinates in the span of some rows (k, dim)."""
        self.basis, dtype = orthonormal_rows(rows), self.x.dtype
        self.inner = self.x @ self.basis.T.to(dtype)  # (n, r)
        off = self.projection - self.basis.T @ (self.basis @ self.projection)
        self.off_projections = self.x @ off.to(dtype)  # (n, columns)

    def directions(self, time: float) -> Tensor:
        """The groups' directions at a time within the last step, (k, dim)."""
        return unit_rows(self.stepper.state_at(time)[0]) @ self.basis

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), of the groups alone."""
        place, theta = self.stepper.state_at(time)
        s = self.inner @ unit_rows(place).T.to(self.inner.dtype)
        power, _ = rounded_power(s, self.p, self.kink_width)
        return (power @ self.invariants.contribution(theta).to(power.dtype)).double()

    def angle_since_start(self, time: float) -> Tensor:
        """How far theta has come since the start, (k,)."""
        return self.stepper.state_at(time)[1] - self.first_theta

    def _velocity(self, state: State) -> State:
        return polar_velocity(*self._pull(self.inner, *state), state, self.invariants)

    def _pull(self, x: Tensor, place: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """G (k, columns of x) and g (k,) on the samples; products in the samples' dtype."""
        weight, growth = self._weights(x @ place.T.to(x.dtype), theta)
        return (weight.T @ x).double(), growth

    def _weights(self, s: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """How much each sample pulls the groups, which have products s with it, (n, k), and g."""
        power, slope = rounded_power(s, self.p, self.kink_width)
        # The last right-hand side of a step is at its end.
        self.last_outputs = power @ self.invariants.contribution(theta).to(s.dtype)
        push = self.rate * negative_slopes(self.loss, self.last_outputs, self.y)
        return slope.mul_(push[:, None]), (push @ power).double()


@dataclass(frozen=True)
class GroupsCheck:
    """What groups alone, run ahead beside all neurons, were seen to miss before they were taken."""

    missed: float  # the largest difference of an output, over the largest output
    samples: int  # how many samples, or known clusters, both were run on
    until: float  # the flow time to which both were run


class FittingStage(FlowStage):
    """Groups of neurons from where `stepper` stands, followed by a `flow`.

    `change` and `bound` are what dropping and merging changed when it was done: on the training
    data, and at most on the unit ball. `residual` is the largest that the stage before has seen.
    """

    def __init__(
        self,
        plan: StagePlan,
        stepper: AdaptiveStepper,
        groups: Groups,
        change: float,
        check: GroupsCheck,
        *,
        residual: float,
    ) -> None:
        super().__init__(plan)
        self.start, self.begun = stepper.state, stepper.time  # of all neurons
        self.groups, self.check = groups, check
        field = plan.system.field
        directions = field.frame.lift(self.start[0])
        self.residual = residual
        self.change, self.bound = change, groups.change_bound(directions, field.p)
        few = len(groups.leaders) <= _FEW_GROUPS
        self.flow = GroupFlow(
            plan.data,
            plan.system,
            groups,
            groups.mean(directions),
            stepper,
            plan.tolerance * (_FEW_GROUPS_TOLERANCE_SHARE if few else 1.0),
            OFF_SUBSPACE_TOLERANCES * plan.tolerance,
            kink_widths(plan.data.x, field.p, KINK_TOLERANCES * plan.tolerance),
        )

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.flow.stepper.time

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return self.flow.stepper.is_at_rest

    def report(self) -> dict[str, float]:
        """When the stage began, what it follows, and what that changed."""
        return {
            "gathered": self.begun,
            "directions_left": len(self.groups.leaders),
            "neurons_left": int((self.groups.owner >= 0).sum()),
            "change": self.change,
            "bound": self.bound,
            "residual": max(self.residual, self.flow.residual),
            "missed": self.check.missed,
            "checked_samples": self.check.samples,
            "checked_until": self.check.until,
        }

    def tighten(self) -> None:
        """Go on with smaller errors from here on."""
        self.flow.tighten(self.plan.late_tolerance)

    def advance(self, limit: float) -> FlowStage | None:
        """Take one step, not beyond `limit`."""
        self.flow.advance(limit)
        return None

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), of the groups alone, at a time within the last step."""
        return self.flow.outputs(time)

    def neurons_at(self, time: float) -> State:
        """Directions (h, dim) and theta (h,) of all neurons at a time within the last step.

        Those that are in no group stay as they were when the stage began.
        """
        groups, member = self.groups, self.groups.owner >= 0
        mine = groups.owner[member]
        directions, theta = self.plan.system.field.frame.lift(self.start[0]), self.start[1].clone()
        theta[member] = groups.theta[member] + self.flow.angle_since_start(time)[mine]
        own = directions[member] - unit_rows(groups.mean(directions))[mine]
        faded = self._fading(member, theta[member])[:, None] * own
        directions[member] = unit_rows(self.flow.directions(time)[mine] + faded)
        return directions, theta

    def _fading(self, member: Tensor, theta: Tensor) -> Tensor:
        """What is left of how the members of groups were beside them, as a share.

        For p = 1 what pulls a group pulls all of it alike: w - ||w|| times the group's direction
        stays, so that in directions it fades like 1/||w||. For p > 1 groups have one member.
        """
        invariants = self.plan.system.invariants.take(torch.nonzero(member).squeeze(1))
        return torch.exp(invariants.log_norm(self.start[1][member]) - invariants.log_norm(theta))
