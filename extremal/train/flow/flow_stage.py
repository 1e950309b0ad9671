"""What the stages of a flow share: the problem, and what each stage can be asked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from extremal.data import Dataset
from extremal.train.flow.neuron_dynamics import NeuronSystem
from extremal.train.flow.runge_kutta import Counts, State

# The share of the tolerance while the data are fitted: the late loss is fifty times as sensitive.
_LATE_TOLERANCE_SHARE = 0.002
# The same for p = 1, where steps are as short as the rounded kinks ask for.
_LATE_KINK_TOLERANCE_SHARE = 0.005


@dataclass(frozen=True, eq=False)
class StagePlan:
    """The problem that every stage works on; where its subspace grows, later ones get that."""

    data: Dataset
    system: NeuronSystem
    tolerance: float
    alignment_tolerance: float  # smaller where that is cheap: neurons multiply these errors later
    horizon: float  # the flow time by which the flow will have ended
    zero_output_loss: float  # the mean one
    growth_rate_bound: float  # no angle grows faster than this
    known: bool  # whether clusters stand for the samples until the last stage
    exact: bool  # whether outputs are those of the samples even then
    counts: Counts

    @property
    def late_tolerance(self) -> float:
        """The tolerance while the data are fitted."""
        kinked = self.system.field.p == 1.0
        share = _LATE_KINK_TOLERANCE_SHARE if kinked else _LATE_TOLERANCE_SHARE
        return share * self.tolerance

    def outputs(self, state: State) -> Tensor:
        """f on the training data, (n,), of all neurons in a state of the system."""
        if self.exact and self.known:
            return self.system.outputs_at(self.data.x, state)
        return self.system.field.at_samples(self.system.outputs(state))


class FlowStage(ABC):
    """One part of a flow, from where the one before ended to where the next one begins."""

    # The phase that ends with this stage, as the flow's report calls it; "" for none.
    ended_phase: ClassVar[str] = ""
    # Whether states within a step cost nothing, so that steps need not end where one is asked for.
    dense: ClassVar[bool] = True
    # Whether the neurons' outputs count, so that the loss can fall.
    interacts: ClassVar[bool] = True

    def __init__(self, plan: StagePlan) -> None:
        self.plan = plan

    @property
    @abstractmethod
    def time(self) -> float:
        """The flow time reached."""

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""

    @abstractmethod
    def advance(self, limit: float) -> FlowStage | None:
        """Go forward in time, not beyond `limit`; the stage that follows, once this one is over."""

    @abstractmethod
    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,), at a time within the last step."""

    @abstractmethod
    def neurons_at(self, time: float) -> State:
        """Directions (h, dim) and theta (h,) of all neurons at a time within the last step."""

    def tighten(self) -> None:  # noqa: B027 - not every stage has errors to make smaller
        """Go on with smaller errors: the data are being fitted, and the loss is sensitive."""

    def report(self) -> dict[str, float]:
        """What the stage has left of the neurons and what that changed: nothing, unless said.

        What was not checked is not a number: what the few miss, where all neurons are followed.
        """
        count = len(self.plan.system.invariants.log_scale)
        return {
            "gathered": math.nan,
            "directions_left": count,
            "neurons_left": count,
            "change": 0.0,
            "bound": 0.0,
            "residual": math.nan,
            "missed": math.nan,
            "checked_samples": 0,
            "checked_until": math.nan,
        }
