"""Gradient flow of a one-output network without biases: stages, each as cheap as it can be.

1. Alignment (`alignment_stage`). The network's output is negligible, so neurons do not interact:
   each takes its own steps in the coordinates of a frame, pulled by known clusters or by samples.
2. Waking (`coupled_stage`). The outputs count and neurons interact, until few are left that will
   ever matter. Often that is so when this stage begins; where it never is, it goes on to the end.
3. Fitting (`fitting_stage`). The few that are left are followed on all samples.

Each stage builds the next one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models import PReLUNet, relu_power
from extremal.train.flow.alignment_stage import AlignmentStage
from extremal.train.flow.cluster_field import ClusterField
from extremal.train.flow.driver import FITTING_LOSS_SHARE, Flow
from extremal.train.flow.flow_stage import FlowStage, StagePlan
from extremal.train.flow.neuron_dynamics import NeuronSystem, from_polar, to_polar
from extremal.train.flow.sample_field import SampleField
from extremal.train.losses import Loss, negative_slopes

# So many products of neurons and samples are formed in float64, more in the samples' own dtype:
# where outputs are differences of far larger numbers, neurons multiply what float32 rounds.
_MOST_EXACT_PRODUCTS = 1_000_000
# The share of the tolerance that alignment may err by where products are so few that it is cheap.
_CHEAP_ALIGNMENT_TOLERANCE_SHARE = 0.01
# The same for p = 1, where neurons that slide take steps as short as that share along sharp kinks.
_CHEAP_KINKED_ALIGNMENT_TOLERANCE_SHARE = 0.1
# Outputs below this do not change what pulls at the start.
_NEGLIGIBLE_OUTPUT = 1e-3
# What a flow that goes on from a file adds to, or takes the larger of.
_SUMMED_CHANGES = ("change", "bound")
_LARGEST_CHANGES = ("residual", "missed")


class StagedFlow(Flow):
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
        horizon: float,
        *,
        known: bool,
        exact: bool = False,
        time: float = 0.0,
    ) -> None:
        super().__init__()
        directions, invariants, theta = to_polar(net)
        small = len(theta) * len(data) <= _MOST_EXACT_PRODUCTS
        if small:
            data = data.to(torch.float64)
        field: ClusterField | SampleField
        if known:
            field, place = ClusterField.of(data, net.p, directions, tolerance)
        else:
            outputs = _first_outputs(data, net.p, directions, invariants.contribution(theta))
            push = negative_slopes(loss, outputs, data.y.double())
            field, place = SampleField.of(data, net.p, directions, tolerance, push)
        rate = float(len(data)) if loss.reduction == "sum" else 1.0
        system = NeuronSystem(field, invariants, loss, rate)
        zero = theta.new_zeros(len(field.label))
        kinked = net.p == 1.0 and not known
        cheap = (
            _CHEAP_KINKED_ALIGNMENT_TOLERANCE_SHARE if kinked else _CHEAP_ALIGNMENT_TOLERANCE_SHARE
        )
        slope = 0.5 if loss.name == "logistic" else 1.0
        self.plan = StagePlan(
            data=data,
            system=system,
            tolerance=tolerance,
            alignment_tolerance=tolerance * (cheap if small else 1.0),
            horizon=horizon,
            zero_output_loss=field.loss(loss, zero),
            growth_rate_bound=field.growth_rate_bound * rate * slope,
            known=known,
            exact=exact,
            counts=self.counts,
        )
        self.first_loss = self.plan.zero_output_loss
        self.stage: FlowStage = AlignmentStage(self.plan, (place, theta), time)
        self._earlier: dict[str, float] = {}
        self._tightened = False

    @property
    def time(self) -> float:
        """The flow time reached."""
        return self.stage.time

    @property
    def dense(self) -> bool:
        """Whether `outputs` and `write` know the times within the last step at no cost."""
        return self.stage.dense

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        return self.stage.is_at_rest

    def step(self, limit: float) -> None:
        """Go forward in time, not beyond `limit`, or on to the next stage."""
        following = self.stage.advance(limit)
        if following is not None:
            ended_phase, self.stage = self.stage.ended_phase, following
            if ended_phase:
                self.phases.setdefault(ended_phase, self.time)
            else:
                following.advance(limit)
        if self.stage.interacts and not self._tightened and self._fits():
            self.phases.setdefault("fitting starts", self.time)
            self._tightened = True
            self.stage.tighten()

    def _fits(self) -> bool:
        """Whether the data are being fitted, or were in a run that this one goes on from."""
        if "fitting starts" in self.phases:
            return True
        loss = Loss(self.plan.system.loss.name).value(self.outputs(self.time), self.plan.data.y)
        return float(loss) < FITTING_LOSS_SHARE * self.first_loss

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,): of the few alone in the last stage."""
        return self.stage.outputs(time)

    def write(self, net: PReLUNet, time: float) -> None:
        """Put the neurons as they were at a time within the last step into a network."""
        directions, theta = self.stage.neurons_at(time)
        from_polar(net, directions, self.plan.system.invariants, theta)

    def report(self) -> dict[str, object]:
        """The run in numbers: phases, directions left, changes and residuals."""
        return {
            "engine": "stages",
            "phases": self.phases,
            "subspace": len(self.stage.plan.system.field.frame.basis),
            **self.stage.report(),
            **self._changes(),
        }

    def _changes(self) -> dict[str, float]:
        """What dropping and merging changed, in this run and in those that it goes on from."""
        now, before = self.stage.report(), self._earlier
        summed = {name: now[name] + before.get(name, 0.0) for name in _SUMMED_CHANGES}
        largest = {
            name: _larger(now[name], before.get(name, math.nan)) for name in _LARGEST_CHANGES
        }
        return summed | largest

    def memory(self) -> dict[str, float]:
        """What a flow that goes on from here needs to know of the way until here."""
        known = {name: value for name, value in self._changes().items() if not math.isnan(value)}
        return {**super().memory(), **known}

    def remember(self, memory: dict[str, float]) -> None:
        """Continue with what `memory` returned."""
        super().remember(memory)
        self._earlier = dict(memory)


def _first_outputs(data: Dataset, p: float, directions: Tensor, contribution: Tensor) -> Tensor:
    """f on the training data, (n,), of neurons at the start; zeros where a bound is negligible."""
    bound = float(contribution.abs().sum() * torch.linalg.vector_norm(data.x, dim=1).max() ** p)
    if bound < _NEGLIGIBLE_OUTPUT:
        return torch.zeros(len(data), dtype=torch.float64)
    power = relu_power(data.x @ directions.T.to(data.x.dtype), p)
    return (power @ contribution.to(power.dtype)).double()


def _larger(first: float, second: float) -> float:
    """The larger of two numbers, of which one may not be known."""
    return second if math.isnan(first) else first if math.isnan(second) else max(first, second)
