"""Gradient flow of a one-output network without biases: stages, each as cheap as it can be.

1. Alignment (`alignment_stage`). The network's output is negligible, so neurons do not interact:
   each takes its own steps in the coordinates of a frame, pulled by known clusters or by samples.
2. Waking (`coupled_stage`). The outputs count and neurons interact, until those that matter have
   gathered in a few directions. Often they have done so when this stage begins.
3. Fitting (`fitting_stage`). The few directions that are left are followed on all samples.
"""

from __future__ import annotations

import math

from torch import Tensor

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.flow.alignment_stage import AlignmentStage
from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.coupled_stage import CoupledStage
from extremal.train.flow.fitting_stage import FittingStage
from extremal.train.flow.neuron_dynamics import NeuronSystem, from_polar, to_polar
from extremal.train.flow.neuron_groups import Groups
from extremal.train.flow.runge_kutta import Counts, State, Stepper
from extremal.train.flow.sample_field import SampleField
from extremal.train.losses import Loss

# The data are being fitted once the loss is below this share of the first loss.
_FITTING_LOSS_SHARE = 0.6
# Before the fitting stage nothing has been merged, so all that merging may change is zero.
_NO_CHANGES = {"change": 0.0, "bound": 0.0, "residual": 0.0}


class StagedFlow:
    """The flow of a network from flow time `time`: `step` goes forward, `write` gives the weights.

    With `known` clusters, `outputs` before the last stage are the clusters' means, unless they are
    to be `exact`, which costs a product with all samples each time.
    """

    def __init__(
        self,
        net: PReLUNet,
        data: Dataset,
        loss: Loss,
        tolerance: float,
        until: float,
        *,
        known: bool,
        exact: bool = False,
        time: float = 0.0,
    ) -> None:
        self.data, self.loss, self.until = data, loss, until
        self.time, self.known, self.exact = time, known, exact
        directions, self.angles, theta = to_polar(net)
        self.field: ClusterField | SampleField
        if known:
            self.field, place = ClusterField.of(data, net.p, directions)
        else:
            self.field, place = SampleField.of(data, net.p, directions, tolerance)
        rate = float(len(data)) if loss.reduction == "sum" else 1.0
        self.neurons = NeuronSystem(self.field, self.angles, loss, rate)
        self.counts = Counts()
        # The neurons at the time reached; after the alignment, at the time when it ended.
        self.state: State = (place, theta)
        self.alignment = AlignmentStage(self.neurons, self.state, tolerance, self.counts)
        self.coupled: CoupledStage | None = None
        self.fitting: FittingStage | None = None
        self.phases: dict[str, float] = {}
        self.fitting_start_time = math.nan
        self._earlier_changes = _NO_CHANGES
        self._previous: tuple[State, float] = (self.state, self.time)

    @property
    def phase(self) -> str:
        """Which stage the flow is in."""
        if self.fitting is not None:
            return "fitting"
        return "alignment" if self.coupled is None else "waking"

    @property
    def dense(self) -> bool:
        """Whether `outputs` and `write` know the times within the last step, not just its end."""
        return self.phase != "alignment"

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        if self.fitting is not None:
            return self.fitting.flow.stepper.is_at_rest
        if self.coupled is not None:
            return self.coupled.stepper.is_at_rest
        return self.alignment.is_at_rest(self.state)

    @property
    def groups(self) -> Groups | None:
        """The groups that the last stage follows, once it has begun."""
        return None if self.fitting is None else self.fitting.groups

    def step(self, limit: float) -> None:
        """Go forward in time, not beyond `limit`."""
        self._previous = (self.state, self.time)
        if self.fitting is not None:
            self.fitting.advance(limit)
            self.time = self.fitting.time
        elif self.coupled is not None:
            due = self.coupled.advance(limit)
            self.time = self.coupled.stepper.time
            if due:
                self._begin_fitting_if_few(self.coupled)
        else:
            self._step_alignment(limit)
        if self.coupled is not None and "fitting starts" not in self.phases:
            loss = Loss(self.loss.name).value(self.outputs(self.time), self.data.y)
            if float(loss) < _FITTING_LOSS_SHARE * self.alignment.first_loss:
                self.phases["fitting starts"] = self.time
                if self.fitting is not None:
                    self.fitting.tighten()

    def rewind(self) -> None:
        """Undo the last step, if it was one of the alignment."""
        if self.coupled is None:
            self.state, self.time = self._previous

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,): of the groups alone in the last stage."""
        if self.fitting is not None:
            return self.fitting.outputs(time)
        state = self._state(time)
        if self.exact and self.known:
            return self.neurons.outputs_at(self.data.x, state)
        return self.field.at_samples(self.neurons.outputs(state))

    def write(self, net: PReLUNet, time: float) -> None:
        """Put the neurons as they were at a time within the last step into a network."""
        if self.fitting is not None:
            directions, theta = self.fitting.neurons_at(time)
        else:
            place, theta = self._state(time)
            directions = self.field.frame.lift(place)
        from_polar(net, directions, self.angles, theta)

    def report(self) -> dict[str, object]:
        """The run in numbers: phases, directions left, changes and residuals."""
        groups, found = self.groups, self._changes()
        left = len(self.state[1]) if groups is None else len(groups.leaders)
        return {
            "engine": "stages",
            "phases": self.phases,
            "gathered": self.fitting_start_time,
            "directions_left": left,
            "neurons_left": left if groups is None else int((groups.owner >= 0).sum()),
            "subspace": self.state[0].shape[1] - 1,
            "change": found["change"] + self._earlier_changes["change"],
            "bound": found["bound"] + self._earlier_changes["bound"],
            "residual": max(found["residual"], self._earlier_changes["residual"]),
        }

    def memory(self) -> dict[str, float]:
        """What a flow that goes on from here needs to know of the way until here."""
        return {**{f"phase:{name}": t for name, t in self.phases.items()}, **self._changes()}

    def remember(self, memory: dict[str, float]) -> None:
        """Continue with what `memory` returned."""
        for name, value in memory.items():
            if name.startswith("phase:"):
                self.phases[name.removeprefix("phase:")] = value
        self._earlier_changes = {name: memory.get(name, 0.0) for name in _NO_CHANGES}

    def _changes(self) -> dict[str, float]:
        return _NO_CHANGES if self.fitting is None else self.fitting.changes()

    def _state(self, time: float) -> State:
        """All neurons before the last stage, at a time within the last step."""
        return self.state if self.coupled is None else self.coupled.stepper.state_at(time)

    def _step_alignment(self, limit: float) -> None:
        """Advance the neurons one by one, or begin the next stage if their outputs count."""
        left = limit - self.time
        found = self.alignment.advance(self.state, left)
        if found is not None:
            self.state, span = found
            self.time = limit if span == left else self.time + span
            return
        begun = self.phases.setdefault("alignment ends", self.time)
        tolerance = self.alignment.tolerance
        size = float(self.alignment.independent.step_size.median())
        stepper = Stepper(
            self.neurons.velocity, self.state, self.time, tolerance, self.counts, size
        )
        first = self.alignment.first_loss
        self.coupled = CoupledStage(
            self.neurons, stepper, self.until, first, begun=begun, known=self.known
        )
        self._begin_fitting_if_few(self.coupled)

    def _begin_fitting_if_few(self, coupled: CoupledStage) -> None:
        """Begin the last stage if few directions are left to follow."""
        found = coupled.groups_if_few()
        if found is None:
            return
        self.fitting_start_time = self.time
        self.fitting = FittingStage(
            self.data,
            self.neurons,
            coupled.stepper,
            *found,
            coupled_since=coupled.begun,
            growth_time=1.0 / self.alignment.growth_rate_bound,
        )
        if "fitting starts" in self.phases:
            self.fitting.tighten()
