"""Gradient flow on a known Gaussian mixture: three stages, each as cheap as it can be.

1. Alignment. The network's output is negligible, so neurons do not interact: each takes its own
   steps in the clusters' K coordinates (`closure`).
2. Waking. Outputs count, neurons interact, still in the clusters' coordinates, until those that
   matter have gathered in a few directions.
3. Fitting. The few directions that are left are followed on all samples, in the span of the means,
   the directions and their gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.train.aligning import Aligning, turn
from extremal.train.closure import Clusters
from extremal.train.fitting import Fitting
from extremal.train.gathering import Groups, gather
from extremal.train.loss import Loss
from extremal.train.polar import from_polar, to_polar
from extremal.train.record import Record, Recorder
from extremal.train.runge_kutta import Counts, State, Stepper
from extremal.train.trajectory import Trajectory

_RULE = "be a one-output PReLUNet with nothing frozen, no biases and no preparation"
_MANY = 60  # directions that the last stage takes at most, while the loss is above _LATE
_LATE = 1e-3


def follow_mixture(
    net: nn.Module,
    data: Dataset,
    loss: Loss,
    until: float,
    tolerance: float,
    record: Record | None,
) -> Trajectory:
    """`gradient_flow` with method="mixture": the network is trained in place."""
    _check_plain(net)
    assert isinstance(net, PReLUNet)
    recorder = Recorder(record, net, data, loss, until)
    flow = MixtureFlow(net, data, loss, tolerance, until)
    recorder.note(0.0, flow.outputs())
    while flow.time < until:
        stop = min(until, recorder.next_time())
        try:
            flow.advance(stop)
        except ArithmeticError as error:
            flow.write(net)
            raise recorder.diverged(flow.time, str(error), method="mixture") from error
        flow.write(net)
        if not math.isfinite(recorder.note(stop, flow.outputs())):
            raise recorder.diverged(stop, "the loss is not finite", method="mixture")
    fitting = flow.fitting
    return recorder.finish(
        converged=True,
        method="mixture",
        steps=flow.counts.steps,
        rejected=flow.counts.rejected,
        right_hand_sides=round(flow.counts.sides),
        tolerance=tolerance,
        phases=flow.phases,
        directions_left=net.width if flow.groups is None else len(flow.groups.leaders),
        change=flow.change,
        residual=0.0 if fitting is None else fitting.residual,
    )


def _check_plain(net: nn.Module) -> None:
    good = isinstance(net, PReLUNet)
    _check.require(good, "net", _RULE, type(net).__name__)
    assert isinstance(net, PReLUNet)
    trained = all(part.requires_grad for part in net.parameters())
    simple = net.outputs == 1 and net.bias is None and net.hidden_bias is None
    plain = net.preparation.plain
    _check.require(trained and simple and plain, "net", _RULE, repr(net))


class MixtureFlow:
    """The flow of a one-output network without biases; `advance` it, then `write` it."""

    def __init__(
        self, net: PReLUNet, data: Dataset, loss: Loss, tolerance: float, until: float
    ) -> None:
        self.data, self.loss, self.tolerance, self.until = data, loss, tolerance, until
        self.rate = float(len(data)) if loss.reduction == "sum" else 1.0
        self.clusters = Clusters.of(data, net.p)
        directions, self.angles, self.theta = to_polar(net)
        self.place = directions @ self.clusters.basis.T  # (h, K)
        rest = directions - self.place @ self.clusters.basis
        length = torch.linalg.vector_norm(rest, dim=1, keepdim=True)
        self.rest = rest / torch.where(length > 0, length, 1.0)  # the part off the means' span
        self.time = 0.0
        self.counts = Counts()
        nothing = torch.zeros_like(self.clusters.share)
        push = self.clusters.push(loss, nothing, self.rate)
        self.aligning = Aligning(self.clusters, self.angles, push, tolerance, self.counts)
        self.phases: dict[str, float] = {}
        self.change = 0.0
        self.waking: Stepper | None = None
        self.fitting: Fitting | None = None
        self.groups: Groups | None = None
        self.end: State | None = None
        self._looked = 1.0

    def advance(self, limit: float) -> None:
        """Bring the flow to time `limit`."""
        while self.time < limit:
            if self.fitting is not None:
                self.fitting.advance(limit)
                self.time = self.fitting.stepper.time
            elif self.waking is not None:
                self._wake(self.waking, limit)
            else:
                self._align(limit)

    def write(self, net: PReLUNet) -> None:
        """Put the neurons as they are now into a network of the original's shape."""
        place, theta = self._by_clusters()
        directions = self._directions(place)
        if self.fitting is not None and self.groups is not None:
            member = self.groups.owner >= 0
            mine = self.groups.owner[member]
            directions[member] = self.fitting.directions()[mine]
            theta = theta.clone()
            theta[member] = self.groups.theta[member] + self.fitting.turned()[mine]
        from_polar(net, directions, self.angles, theta)

    def outputs(self) -> Tensor:
        """f on the training data, (n,): the clusters' mean outputs before the last stage."""
        if self.fitting is not None:
            return self.fitting.outputs()
        place, theta = self._by_clusters()
        return self.clusters.outputs(place, self.angles.contribution(theta))[self.clusters.group]

    def _directions(self, place: Tensor) -> Tensor:
        """Unit vectors (h, dim): what the means' span leaves of the length lies along the rest."""
        off = torch.sqrt((1.0 - place.square().sum(1)).clamp(min=0.0))
        return place @ self.clusters.basis + off[:, None] * self.rest

    def _by_clusters(self) -> State:
        """All neurons now, in the clusters' coordinates: those left out of the last stage go on."""
        if self.waking is None:
            return self.place, self.theta
        if self.time == self.until and self.end is not None:
            return self.end
        while self.waking.time < self.time:
            self.waking.advance(self.time)
        return self.waking.state

    # Stage 1: alignment.

    def _align(self, limit: float) -> None:
        """Advance all neurons by themselves while their output stays below the tolerance."""
        place, theta = self.place, self.theta
        largest = self._largest_output(place, theta)
        span = min(limit - self.time, self._safe_time())
        while largest < 0.3 * self.tolerance:
            place, theta = self.aligning.advance((self.place, self.theta), span)
            largest = self._largest_output(place, theta)
            if largest <= 2.0 * self.tolerance:
                self.place, self.theta = place, theta
                self.time = limit if span == limit - self.time else self.time + span
                break
            span, largest = 0.5 * span, 0.0
        if largest >= 0.3 * self.tolerance:
            self.phases["alignment ends"] = self.time
            start = (self.place, self.theta)
            size = float(self.aligning.size.median())
            self.waking = Stepper(
                self._together, start, self.time, self.tolerance, self.counts, size
            )

    def _safe_time(self) -> float:
        """A time in which the output can't grow to the tolerance: |c|' <= 2 g |c|."""
        centers = torch.cat([self.clusters.means, self._averages()])
        centers = centers / torch.linalg.vector_norm(centers, dim=1, keepdim=True)
        push = self.rate * self.clusters.share * (0.5 if self.loss.name == "logistic" else 1.0)
        fastest = float(self.clusters.pull(centers, push)[1].max())
        logs = self.angles.log_contribution(self.theta)
        log_total = float(torch.logsumexp(logs[torch.isfinite(logs)], 0))
        wait = (math.log(self.tolerance) - log_total) / (2.0 * fastest)
        return max(wait, 0.05 / fastest)

    def _averages(self) -> Tensor:
        means, label = self.clusters.means, self.clusters.label
        return torch.stack([means[label > 0].sum(0), means[label < 0].sum(0)])

    def _largest_output(self, place: Tensor, theta: Tensor) -> float:
        return float(self.clusters.outputs(place, self.angles.contribution(theta)).abs().max())

    # Stage 2: waking.

    def _together(self, state: State) -> State:
        outputs = self.clusters.outputs(state[0], self.angles.contribution(state[1]))
        push = self.clusters.push(self.loss, outputs, self.rate)
        return turn(state, self.clusters, self.angles, push)

    def _wake(self, stepper: Stepper, limit: float) -> None:
        stepper.advance(limit)
        self.time = stepper.time
        place, theta = stepper.state
        contribution = self.angles.contribution(theta)
        outputs = self.clusters.outputs(place, contribution)
        loss = self.clusters.loss(self.loss, outputs)
        first = self.clusters.loss(self.loss, torch.zeros_like(outputs))
        if loss > 0.6 * first or loss > 0.7 * self._looked:
            return
        self._looked = loss
        weight = contribution.abs() / contribution.abs().sum()
        now = gather(place, contribution, theta, weight, self.tolerance)
        if len(now.leaders) > _MANY and loss > _LATE * first:
            return
        weight, self.end = self._run_ahead(stepper, weight)
        groups = gather(place, contribution, theta, weight, self.tolerance)
        self.phases["fitting starts"] = self.time
        self.groups, self.change = groups, groups.change * self.clusters.p
        means = self.clusters.means @ self.clusters.basis
        self.fitting = Fitting(
            self.data,
            self.loss,
            self.clusters.p,
            means,
            groups,
            self._directions(place),
            self.angles,
            stepper,
            self.rate,
        )

    def _run_ahead(self, stepper: Stepper, weight: Tensor) -> tuple[Tensor, State]:
        """The largest share of all contributions that each neuron ever has, and the end."""
        ahead = Stepper(
            self._together, stepper.state, self.time, 10.0 * self.tolerance, Counts(), stepper.size
        )
        while ahead.time < self.until:
            ahead.advance(self.until)
            mass = self.angles.contribution(ahead.state[1]).abs()
            weight = torch.maximum(weight, mass / mass.sum())
        self.counts.sides += ahead.counts.sides
        return weight, ahead.state
