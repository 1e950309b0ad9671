"""Gradient flow of a one-output network without biases: stages, each as cheap as it can be.

1. Alignment. The network's output is negligible, so neurons do not interact: each takes its own
   steps in the places of a frame (`quiet`), pulled by known clusters or by samples.
2. Waking. Outputs count, neurons interact, until those that matter have gathered in a few
   directions (`waking`). Often they have when it begins.
3. Fitting. The few directions that are left are followed on all samples (`late`).
"""

from __future__ import annotations

import math

from torch import Tensor

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.flow.alignment_stage import Quiet
from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.coupled_stage import CoupledStage
from extremal.train.flow.fitting_stage import Late
from extremal.train.flow.neuron_dynamics import NeuronSystem, from_polar, to_polar
from extremal.train.flow.neuron_groups import Groups
from extremal.train.flow.runge_kutta import Counts, State, Stepper
from extremal.train.flow.sample_field import SampleField
from extremal.train.losses import Loss

_FITS = 0.6  # of the first loss: the data are being fitted
_NO_CHANGES = {"change": 0.0, "bound": 0.0, "residual": 0.0}


class StagedFlow:
    """The flow of a network from flow time `time`; `step` it, then `write` it.

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
        self.start: State = (place, theta)  # at the time reached, and where waking began after it
        self.quiet = Quiet(self.neurons, self.start, tolerance, self.counts)
        self.waking: CoupledStage | None = None
        self.fitting: Late | None = None
        self.phases: dict[str, float] = {}
        self.gathered = math.nan  # the time at which the last stage began
        self._past = _NO_CHANGES
        self._before: tuple[State, float] = (self.start, self.time)

    @property
    def phase(self) -> str:
        """Which stage the flow is in."""
        if self.fitting is not None:
            return "fitting"
        return "alignment" if self.waking is None else "waking"

    @property
    def dense(self) -> bool:
        """Whether `outputs` and `write` know the times within the last step, not just its end."""
        return self.phase != "alignment"

    @property
    def still(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        if self.fitting is not None:
            return self.fitting.still
        if self.waking is not None:
            return self.waking.still
        return self.quiet.still(self.start)

    @property
    def groups(self) -> Groups | None:
        """What the last stage follows, once it has begun."""
        return None if self.fitting is None else self.fitting.groups

    def step(self, limit: float) -> None:
        """Go forward in time, not beyond `limit`."""
        self._before = (self.start, self.time)
        if self.fitting is not None:
            self.fitting.advance(limit)
            self.time = self.fitting.time
        elif self.waking is not None:
            due = self.waking.advance(limit)
            self.time = self.waking.stepper.time
            if due:
                self._look(self.waking)
        else:
            self._align(limit)
        if self.waking is not None and "fitting starts" not in self.phases:
            loss = Loss(self.loss.name).value(self.outputs(self.time), self.data.y)
            if float(loss) < _FITS * self.quiet.first_loss:
                self.phases["fitting starts"] = self.time
                if self.fitting is not None:
                    self.fitting.closer()

    def rewind(self) -> None:
        """Undo the last step, if it was one of the alignment."""
        if self.waking is None:
            self.start, self.time = self._before

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,): of the groups alone in the last stage."""
        if self.fitting is not None:
            return self.fitting.outputs(time)
        state = self._state(time)
        if self.exact and self.known:
            return self.neurons.at(self.data.x, state)
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
        """What is to be said of the run: phases, directions left, changes and residuals."""
        groups, found = self.groups, self._changes()
        left = len(self.start[1]) if groups is None else len(groups.leaders)
        return {
            "engine": "stages",
            "phases": self.phases,
            "gathered": self.gathered,
            "directions_left": left,
            "neurons_left": left if groups is None else int((groups.owner >= 0).sum()),
            "subspace": self.start[0].shape[1] - 1,
            "change": found["change"] + self._past["change"],
            "bound": found["bound"] + self._past["bound"],
            "residual": max(found["residual"], self._past["residual"]),
        }

    def memory(self) -> dict[str, float]:
        """What a flow that goes on from here is to know of the way until here."""
        return {**{f"phase:{name}": t for name, t in self.phases.items()}, **self._changes()}

    def remember(self, memory: dict[str, float]) -> None:
        """Take up what `memory` gave."""
        for name, value in memory.items():
            if name.startswith("phase:"):
                self.phases[name.removeprefix("phase:")] = value
        self._past = {name: memory.get(name, 0.0) for name in _NO_CHANGES}

    def _changes(self) -> dict[str, float]:
        return _NO_CHANGES if self.fitting is None else self.fitting.changes()

    def _state(self, time: float) -> State:
        """All neurons before the last stage, at a time within the last step."""
        return self.start if self.waking is None else self.waking.stepper.between(time)

    def _align(self, limit: float) -> None:
        """Advance all neurons by themselves, or begin the next stage if their output counts."""
        left = limit - self.time
        found = self.quiet.advance(self.start, left)
        if found is not None:
            self.start, span = found
            self.time = limit if span == left else self.time + span
            return
        begun = self.phases.setdefault("alignment ends", self.time)
        tolerance, size = self.quiet.tolerance, float(self.quiet.aligning.size.median())
        side, first = self.neurons.side, self.quiet.first_loss
        stepper = Stepper(side, self.start, self.time, tolerance, self.counts, size)
        self.waking = CoupledStage(
            self.neurons, stepper, self.until, first, begun=begun, known=self.known
        )
        self._look(self.waking)

    def _look(self, waking: CoupledStage) -> None:
        """Begin the last stage if few directions are left to follow."""
        found = waking.few()
        if found is None:
            return
        self.gathered = self.time
        begun, ease = waking.begun, 1.0 / self.quiet.fastest
        self.fitting = Late(self.data, self.neurons, waking.stepper, *found, begun=begun, ease=ease)
        if "fitting starts" in self.phases:
            self.fitting.closer()
