"""Gradient flow of a one-output network without biases: stages, each as cheap as it can be.

1. Alignment. The network's output is negligible, so neurons do not interact: each takes its own
   steps in the places of a frame (`aligning`), pulled by known clusters or by samples.
2. Waking. Outputs count, neurons interact, until those that matter have gathered in a few
   directions. Often they have when it begins.
3. Fitting. The few directions that are left are followed on all samples (`fitting`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from extremal.data import Dataset
from extremal.models import PReLUNet
from extremal.models.power import relu_power
from extremal.train.ahead import run_ahead, together
from extremal.train.aligning import Aligning, across
from extremal.train.closure import Clusters, Constant
from extremal.train.fitting import Fitting
from extremal.train.frame import unit
from extremal.train.gathering import Groups, gathered
from extremal.train.loss import Loss
from extremal.train.polar import from_polar, to_polar
from extremal.train.runge_kutta import Counts, State, Stepper
from extremal.train.samples import Samples
from extremal.train.sketched import Sketched

_MANY = 400  # directions that the last stage takes at most, while the loss is above _LATE
_LATE = 1e-3
_FEW = 100  # directions for which smaller errors are cheap
_CLOSE = 0.1  # of the tolerance, for few directions, and for those that are merged later
_CLOSER = 0.002  # of the tolerance, for the late loss, which is some fifty times as sensitive
_SLIDE = 0.3  # of the root of the tolerance: a step that moves less may end beyond a kink


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
        self.data, self.loss, self.tolerance, self.until = data, loss, tolerance, until
        self.rate = float(len(data)) if loss.reduction == "sum" else 1.0
        directions, self.angles, self.theta = to_polar(net)
        self.field: Clusters | Samples
        if known:
            self.field, self.place = Clusters.of(data, net.p, directions)
        else:
            self.field, self.place = Samples.of(data, net.p, directions, tolerance)
        self.time, self.known, self.exact = time, known, exact
        self.counts = Counts()
        rest = self.field.outputs(self.place, torch.zeros_like(self.theta))
        push = self.field.push(loss, rest, self.rate)
        self.first_loss = self.field.loss(loss, rest)
        pull = (
            Constant(self.field, push)
            if isinstance(self.field, Clusters)
            else Sketched(self.field, push, tolerance)
        )
        first = 0.1 / float(push.abs().sum())
        self.aligning = Aligning(pull, self.angles, first, tolerance, self.counts)
        self.fastest = self.field.fastest * self.rate * (0.5 if loss.name == "logistic" else 1.0)
        self.phases: dict[str, float] = {}
        self.change = self.bound = 0.0
        self.waking: Stepper | None = None
        self.fitting: Fitting | None = None
        self.groups: Groups | None = None
        self.gathered = math.nan
        self.ease = 1.0 / self.fastest
        self._looked = 1.0
        self._look_time = 0.0
        self._past = {"change": 0.0, "bound": 0.0, "residual": 0.0}
        self._before = (self.place, self.theta, self.time)
        self._again = math.inf

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

    def step(self, limit: float) -> None:
        """Go forward in time, not beyond `limit`."""
        self._before = (self.place, self.theta, self.time)
        self._forward(limit)
        if self.waking is not None and "fitting starts" not in self.phases:
            loss = Loss(self.loss.name).value(self.outputs(self.time), self.data.y)
            if float(loss) < 0.6 * self.first_loss:
                self.phases["fitting starts"] = self.time
                if self.fitting is not None:
                    self.fitting.closer(_CLOSER * self.tolerance)

    def rewind(self) -> None:
        """Undo the last step, if it was one of the alignment."""
        if self.waking is None:
            self.place, self.theta, self.time = self._before

    @property
    def still(self) -> bool:
        """Whether nothing moves any more, and nothing ever will."""
        if self.fitting is not None:
            return not any(bool(part.any()) for part in self.fitting.stepper.slope)
        if self.waking is not None:
            return not any(bool(part.any()) for part in self.waking.slope)
        pull, growth = self.aligning.field.pull(self.place, torch.arange(len(self.theta)))
        return not bool(growth.any()) and not bool(across(pull, self.place).any())

    def memory(self) -> dict[str, float]:
        """What a flow that goes on from here is to know of the way until here."""
        return {
            **{f"phase:{name}": time for name, time in self.phases.items()},
            "change": self.change,
            "bound": self.bound,
            "residual": self._residual(),
        }

    def remember(self, memory: dict[str, float]) -> None:
        """Take up what `memory` gave."""
        for name, value in memory.items():
            if name.startswith("phase:"):
                self.phases[name.removeprefix("phase:")] = value
        self._past = {name: memory.get(name, 0.0) for name in ("change", "bound", "residual")}

    def _forward(self, limit: float) -> None:
        if self.fitting is not None:
            if self.time >= self._again:
                self._merge(self.fitting)
            self.fitting.advance(limit)
            self.time = self.fitting.stepper.time
        elif self.waking is not None:
            self._wake(self.waking, limit)
        else:
            self._align(limit)

    def write(self, net: PReLUNet, time: float) -> None:
        """Put the neurons as they were at a time within the last step into a network."""
        place, theta = self._places(time)
        directions = self.field.frame.lift(place)
        if self.fitting is not None and self.groups is not None:
            member = self.groups.owner >= 0
            mine = self.groups.owner[member]
            now = self.groups.theta[member] + self.fitting.turned(time)[mine]
            faded = self._faded(member, now)
            directions[member] = unit(self.fitting.directions(time)[mine] + faded)
            theta = theta.clone()
            theta[member] = now
        from_polar(net, directions, self.angles, theta)

    def outputs(self, time: float) -> Tensor:
        """f on the training data, (n,): of the groups alone in the last stage."""
        if self.fitting is not None:
            return self.fitting.outputs(time)
        place, theta = self._places(time)
        if self.exact and self.known:
            return self._on_samples(place, theta)
        found = self.field.outputs(place, self.angles.contribution(theta))
        return self.field.at_samples(found)

    def _on_samples(self, place: Tensor, theta: Tensor) -> Tensor:
        """f on the training data, (n,), of all neurons as they are."""
        directions = self.field.frame.lift(place).T.to(self.data.x.dtype)
        weight = self.angles.contribution(theta).to(self.data.x.dtype)
        parts = [relu_power(x @ directions, self.field.p) @ weight for x in self.data.x.split(4096)]
        return torch.cat(parts).double()

    def report(self) -> dict[str, object]:
        """What is to be said of the run: phases, directions left, changes and residuals."""
        left = len(self.theta) if self.groups is None else len(self.groups.leaders)
        return {
            "engine": "stages",
            "phases": self.phases,
            "gathered": self.gathered,
            "directions_left": left,
            "neurons_left": left if self.groups is None else int((self.groups.owner >= 0).sum()),
            "subspace": self.place.shape[1] - 1,
            "change": self.change + self._past["change"],
            "bound": self.bound + self._past["bound"],
            "residual": max(self._residual(), self._past["residual"]),
        }

    def _residual(self) -> float:
        return 0.0 if self.fitting is None else self.fitting.residual

    def _places(self, time: float) -> State:
        """All neurons, in the frame; those that the last stage left out stay as they were."""
        if self.waking is None:
            return self.place, self.theta
        return self.waking.state if self.fitting is not None else self.waking.between(time)

    def _faded(self, member: Tensor, theta: Tensor) -> Tensor:
        """What is left of the members' rests beside their groups' mean.

        Where nothing pulls along the rest, beta' = -p ratio g beta, and (log ||w||)' = ratio g: it
        fades like ||w||^-p.
        """
        assert self.waking is not None
        assert self.groups is not None
        rest = self.waking.state[0][:, -1:] * self.field.frame.rest
        own = rest[member] - self.groups.mean(rest)[self.groups.owner[member]]
        angles, start = self.angles.take(torch.nonzero(member).squeeze(1)), self.waking.state[1]
        grown = angles.log_norm(theta) - angles.log_norm(start[member])
        return torch.exp(-self.field.p * grown)[:, None] * own

    # Stage 1: alignment.

    def _align(self, limit: float) -> None:
        """Advance all neurons by themselves while their output stays below the tolerance."""
        largest = self._largest_output(self.place, self.theta)
        span = min(limit - self.time, self._safe_time())
        while largest < 0.3 * self.tolerance:
            place, theta = self.aligning.advance((self.place, self.theta), span)
            largest = self._largest_output(place, theta)
            if largest <= 2.0 * self.tolerance:
                self.place, self.theta = place, theta
                self.time = limit if span == limit - self.time else self.time + span
                return
            span, largest = 0.5 * span, 0.0
        self.phases.setdefault("alignment ends", self.time)
        self._look_time = self.time
        start = (self.place, self.theta)
        size = float(self.aligning.size.median())
        side = together(self.field, self.angles, self.loss, self.rate)
        self.waking = Stepper(side, start, self.time, self.tolerance, self.counts, size)
        self._look(self.waking)

    def _safe_time(self) -> float:
        """A time in which the output can't grow to the tolerance: sinh(2 theta) < exp(2 theta)."""
        log_total = float(torch.logsumexp(self.angles.log_ceiling(self.theta), 0))
        wait = (math.log(self.tolerance) - log_total) / (2.0 * self.fastest)
        return max(wait, 0.05 / self.fastest)

    def _largest_output(self, place: Tensor, theta: Tensor) -> float:
        return float(self.field.outputs(place, self.angles.contribution(theta)).abs().max())

    # Stage 2: waking.

    def _wake(self, stepper: Stepper, limit: float) -> None:
        stepper.advance(limit)
        self.time = stepper.time
        place, theta = stepper.state
        loss = self.field.loss(
            self.loss, self.field.outputs(place, self.angles.contribution(theta))
        )
        share = loss / self.first_loss
        if share <= 0.7 * self._looked or self.time >= 2.0 * self._look_time:
            self._looked, self._look_time = min(share, self._looked), self.time
            self._look(stepper)

    def _look(self, stepper: Stepper) -> None:
        """Begin the last stage if few directions are left to follow."""
        place, theta = stepper.state
        contribution = self.angles.contribution(theta)
        share = contribution.abs() / contribution.abs().sum()
        late = self._looked <= _LATE
        if self.known and self._looked > 0.6 and self.time < 3.0 * self.phases["alignment ends"]:
            return
        whole = self.field.outputs(place, contribution)

        def found(weight: Tensor) -> tuple[Groups, float]:
            return gathered(
                whole,
                lambda groups: self.field.merged(groups, place),
                place,
                contribution,
                theta,
                weight,
                tolerance=self.tolerance,
                leave=0.1 * self.tolerance,
                thin=self.field.thin,
            )

        if len(found(share)[0].leaders) > _MANY and not late:
            return
        weight = run_ahead(
            self.field, self.angles, self.loss, self.rate, stepper, share, self.until
        )
        groups, change = found(weight)
        if len(groups.leaders) > _MANY and not late:
            return
        self.gathered = self.time
        directions = self.field.frame.lift(place)
        self.change, self.bound = change, groups.moved(directions) * self.field.p
        self._fit(groups, groups.mean(directions), stepper)

    def _fit(self, groups: Groups, directions: Tensor, stepper: Stepper) -> None:
        """Follow groups with these directions from where a stepper stands."""
        self._again = self.time + 0.5 * (self.time - self.phases["alignment ends"] + self.ease)
        self.groups = groups
        self.fitting = Fitting(
            self.data,
            self.loss,
            self.field.p,
            self.field.frame.basis,
            groups,
            directions,
            self.angles,
            stepper,
            self.rate,
            self.tolerance * (_CLOSE if len(groups.leaders) <= _FEW else 1.0),
            _SLIDE * self.tolerance**0.5,
        )
        if "fitting starts" in self.phases:
            self.fitting.closer(_CLOSER * self.tolerance)

    def _merge(self, fitting: Fitting) -> None:
        """Gather directions that have met since the last look, if that saves much."""
        assert self.groups is not None
        place, theta = fitting.stepper.state
        place = torch.nn.functional.pad(place, (0, 1))
        contribution = fitting.angles.contribution(theta)
        share = contribution.abs() / contribution.abs().sum()
        few, change = gathered(
            fitting.outputs(self.time),
            lambda groups: fitting.values(unit(groups.mean(place)), groups.contributions()),
            place,
            contribution,
            theta,
            share,
            tolerance=_CLOSE * self.tolerance,
            leave=0.0,
            thin=1.0,
        )
        self._again = self.time + 0.5 * (self.time - self.phases["alignment ends"] + self.ease)
        if len(few.leaders) > 0.8 * len(theta):
            return
        member = self.groups.owner >= 0
        angle = self.groups.theta.clone()
        angle[member] += fitting.turned(self.time)[self.groups.owner[member]]
        new = self.groups.joined(few, angle, self.angles.contribution(angle))
        self.change += change
        directions = fitting.directions(self.time)
        self.bound += few.moved(directions) * self.field.p
        self._fit(new, few.mean(directions), fitting.stepper)
